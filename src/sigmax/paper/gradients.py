"""Gradients: effect of locality batches on the sparsity and the variance of gradients.

A network is trained with the settings of the paper. At checkpoints, independent batches of equal
size are drawn uniformly and by locality; each gives an unbiased estimate of the gradient of the
mean negative log-likelihood of all rows.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sigmax.compilation import compiled
from sigmax.data import UCI_SETS, ToyProblem, load_uci
from sigmax.estimators import CombinedRegressor, MeanVarianceRegressor
from sigmax.experts.combined import Combined, VarianceNetwork, negative_log_likelihood
from sigmax.experts.ensemble import Prepared, prepare_fit
from sigmax.plots import MODEL, TRUTH, shade_range, tidy
from sigmax.random import make_key, named_generator
from sigmax.report.tables import ReportTable, mean_and_error, three_decimals
from sigmax.runs.experiments import Experiment
from sigmax.runs.methods import METHODS, create_model, stopwatch
from sigmax.runs.records import Record, Task, describe_machine, done, group_done
from sigmax.sampling import LocalitySampler
from sigmax.settings import check_count
from sigmax.training import Fold, TrainingData, start_members, train_chunk

SMALL = 1e-3
"""Largest absolute value of an entry that counts as zero."""

DEFAULTS = {"n_checkpoints": 20, "n_batches": 200}
PARTS = {"mean": "mean", "variance": "spread"}
"""Networks, and their fields of `VarianceNetwork`."""
DESIGNS = {"uniform": TRUTH, "locality": MODEL}

BATCHES_AT_ONCE = 25


def run_gradients(job: Sequence[Task]) -> list[Record]:
    return [run_task(task) for task in job]


def run_task(task: Task) -> Record:
    X, y, metadata = load_rows(task)
    n_checkpoints, n_batches = (
        check_count(name, task.settings.get(name, default), minimum=2)
        for name, default in DEFAULTS.items()
    )
    with stopwatch() as watch:
        training = Training.start(study_model(task), X, y)
        samplers = create_samplers(training.prepared, task.seed)
        streams = {name: iter(sampler) for name, sampler in samplers.items()}
        curves: dict[str, list[float]] = {"step": []}
        for step, network in training.checkpoints(n_checkpoints):
            curves["step"].append(float(step))
            for (part, design), stream in streams.items():
                batches = take_batches(stream, n_batches, len(X))
                gradients = batch_gradients(network, PARTS[part], *batches, training.data)
                for name, value in describe_gradients(gradients).items():
                    curves.setdefault(f"{name}_{part}_{design}", []).append(value)
    is_used = np.asarray(curves["step"]) > n_warmup_steps(task)
    means = {name: float(np.mean(np.asarray(curve)[is_used])) for name, curve in curves.items()}
    return done(
        task,
        scores={name: mean for name, mean in means.items() if name != "step"},
        curves=curves,
        seconds={"run": watch.run, "compile": watch.compile},
        data=metadata,
        machine=describe_machine(),
    )


def load_rows(task: Task) -> tuple[NDArray, NDArray, dict[str, Any]]:
    if task.dataset == "toy":
        X, y = ToyProblem().sample(500, random_state=task.split)
        return X, y, {"n_train": len(X), "n_features": X.shape[1]}
    data = load_uci(task.dataset)
    train, _ = data.splits[task.split % len(data.splits)]
    metadata = {"hash": data.content_hash, "n_train": len(train), "n_features": data.X.shape[1]}
    return data.X[train], data.y[train], metadata


def study_model(task: Task) -> CombinedRegressor | MeanVarianceRegressor:
    """Create the model of a task, without the settings of the study."""
    settings = {name: value for name, value in task.settings.items() if name not in DEFAULTS}
    model = create_model(replace(task, settings=settings))
    assert isinstance(model, CombinedRegressor | MeanVarianceRegressor)
    return model


def n_warmup_steps(task: Task) -> int:
    """Number of first steps, which train only the mean, with squared error."""
    expert = study_model(task).expert()
    assert isinstance(expert, Combined)
    *warmup, _ = expert.stages()
    return sum(stage.n_cycles for stage in warmup)


@final
class Training(NamedTuple):
    """Training with checkpoints."""

    prepared: Prepared
    folds: Fold
    data: TrainingData

    @classmethod
    def start(
        cls, model: CombinedRegressor | MeanVarianceRegressor, X: NDArray, y: NDArray
    ) -> "Training":
        """Prepare the training as `fit` does."""
        given, expert = model.unfitted().read_training(X, y), model.expert()
        assert isinstance(expert, Combined)
        start = prepare_fit(expert, given, make_key(model.random_state))
        graphs = {name: [graph] for name, graph in start.graphs.items()}
        data = TrainingData.create([start.X], [start.y], [start.own_center], graphs)
        groups = [0] * start.expert.n_members
        return cls(start, Fold.create([given.weight], start.held_out, groups, data.n_slots), data)

    def checkpoints(self, n_checkpoints: int) -> Iterator[tuple[int, VarianceNetwork]]:
        """Number of steps and network at checkpoints, evenly spaced in all stages."""
        networks, stages, step, n_seen = self.prepared.networks, self.prepared.stages, 0, 0
        n_steps = sum(stage.n_cycles * len(stage.phases) for stage in stages)
        for whole in stages:
            end = step + whole.n_cycles * len(whole.phases)
            n_chunks = max(1, round(n_checkpoints * end / n_steps) - n_seen)
            n_chunks = min(n_chunks, whole.n_cycles)
            stage = replace(whole, cycles_per_chunk=whole.n_cycles // n_chunks)
            members = start_members(networks, None, stage.one_chunk())
            for chunk in range(n_chunks):
                rows = self.folds, self.data
                members, _ = train_chunk(members, self.prepared.keys, rows, stage, chunk)
                step += stage.cycles_per_chunk * len(stage.phases)
                yield step, first_member(members.network)
            networks, n_seen = members.network, n_seen + n_chunks


def first_member(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[0], tree)


def create_samplers(prepared: Prepared, seed: int) -> dict[tuple[str, str], LocalitySampler]:
    """Samplers of locality batches and of uniform batches of the same size, for both networks."""
    key, samplers = make_key(seed), {}
    expert = cast(Combined, prepared.expert)
    sizes = (
        (expert.n_primary, expert.n_secondary, expert.n_neighbors),
        (expert.variance_n_primary, expert.variance_n_secondary, expert.variance_n_neighbors),
    )
    for part, (n_primary, n_secondary, n_neighbors) in zip(PARTS, sizes, strict=True):
        designs = ((n_primary * n_secondary, 1, 1), (n_primary, n_secondary, n_neighbors))
        for design, size in zip(DESIGNS, designs, strict=True):
            rng = named_generator(key, f"{design} batches of the {part}")
            sampler = LocalitySampler(*size, standardize=False, random_state=rng)
            samplers[part, design] = sampler.fit(prepared.X.coordinates)
    return samplers


def take_batches(
    stream: Iterator[tuple[NDArray, NDArray]], n_batches: int, n_rows: int
) -> tuple[Int[Array, "batches rows"], Float[Array, "batches rows"]]:
    """Next batches of a sampler, with weights for means over ``n_rows`` rows instead of sums."""
    index, weight = map(np.stack, zip(*itertools.islice(stream, n_batches), strict=True))
    return jnp.asarray(index, jnp.int32), jnp.asarray(weight / n_rows, jnp.float32)


@compiled
def batch_gradients(
    network: VarianceNetwork,
    part: str,
    index: Int[Array, "batches rows"],
    weight: Float[Array, "batches rows"],
    data: TrainingData,
) -> Float[Array, "batches parameters"]:
    """Gradient of the weighted loss of every batch with respect to one network, as a vector."""

    def gradient(batch):
        rows = data.rows(jnp.asarray(0), *batch)

        def loss(learning):
            whole = eqx.tree_at(lambda n: getattr(n, part), network, learning)
            return jnp.sum(rows.weight * negative_log_likelihood(whole, rows, data))

        return ravel_pytree(eqx.filter_grad(loss)(getattr(network, part)))[0]

    return lax.map(gradient, (index, weight), batch_size=BATCHES_AT_ONCE)


def describe_gradients(gradients: Float[Array, "batches parameters"]) -> dict[str, float]:
    """Share of entries near zero, ``si``, and mean variance of an entry over batches."""
    return {
        "si": float(jnp.mean(jnp.abs(gradients) <= SMALL)),
        "variance": float(jnp.mean(jnp.var(gradients, axis=0, ddof=1))),
    }


def gradient_tables(records: Sequence[Record]) -> list[ReportTable]:
    rows = []
    for dataset, repeats in group_done(records, lambda task: task.dataset).items():
        for part in PARTS:
            si, (uniform, locality) = (
                np.array([[r.scores[f"{name}_{part}_{d}"] for r in repeats] for d in DESIGNS])
                for name in ("si", "variance")
            )
            variances = (uniform, locality, locality / uniform)
            cells = [mean_and_error(values, digits=3) for values in si]
            cells += [mean_and_error(values, digits=three_decimals(values)) for values in variances]
            rows.append([f"{dataset}, {part}", *cells])
    if not rows:
        return []
    columns = [f"{name} {design}" for name in ("SI", "variance") for design in DESIGNS]
    return [
        ReportTable(
            title="gradients of equally large batches at the same parameters",
            header=["data set, network", *columns, "ratio"],
            rows=rows,
            notes=[
                f"SI: share of entries of a batch's gradient within ±{SMALL:g}. Variance: of an"
                " entry, over batches; ratio: locality divided by uniform. Means over the"
                " checkpoints after the warm-up; ± standard error over the repeats."
            ],
        )
    ]


def gradient_figures(records: Sequence[Record]) -> dict[str, Figure]:
    """Sparsity and variance during training of each data set, one row of panels per network."""
    titles = {"si": "sparsity index", "variance": "variance of the gradient"}
    figures = {}
    for dataset, repeats in group_done(records, lambda task: task.dataset).items():
        figure = Figure(figsize=(8.2, 5.4), layout="constrained")
        grid = figure.subplots(len(PARTS), 2, sharex=True)
        step = repeats[0].curves["step"]
        panels = itertools.product(PARTS, titles.items())
        for axes, (part, (name, title)) in zip(grid.flat, panels, strict=True):
            for design, color in DESIGNS.items():
                curves = np.asarray([r.curves[f"{name}_{part}_{design}"] for r in repeats])
                axes.plot(step, curves.mean(axis=0), color=color, lw=1.8, label=design)
                if len(repeats) > 1:
                    axes.plot(step, curves.T, color=color, lw=0.5, alpha=0.4)
            axes.set_title(f"{part} network: {title}", fontsize=10)
            shade_range(axes, 0.0, float(n_warmup_steps(repeats[0].task)))
            axes.set_xlim(0, step[-1])
            tidy(axes)
        for sparsity, variance in grid:
            sparsity.set_ylim(0, 1)
            variance.set_yscale("log")
            variance.tick_params(which="both", labelsize=8)
        for axes in grid[-1]:
            axes.set_xlabel("training step")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        legend: dict[str, Any] = {"loc": "outside lower center", "ncols": len(labels)}
        figure.legend(handles, labels, fontsize=9, frameon=False, **legend)
        figure.suptitle(dataset, fontsize=12)
        figures[f"gradients_{dataset}"] = figure
    return figures


GRADIENTS = Experiment(
    name="gradients",
    about="sparsity and variance of gradients, uniform against locality batches",
    datasets=("boston", "concrete", "wine_red", "yacht"),
    methods=("combined-paper",),
    n_splits=3,
    known_methods={"combined-paper": METHODS["combined-paper"]},
    other_datasets=("toy", *UCI_SETS),
    run=run_gradients,
    tables=gradient_tables,
    figures=gradient_figures,
)
