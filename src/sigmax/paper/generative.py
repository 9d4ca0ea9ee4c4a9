"""Experiments with generative models: two moons in four dimensions, and images."""

import base64
import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, final

import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance

from sigmax.data import IMAGE_SETS, TwoMoons, load_images
from sigmax.generative import VAE, CombVAE, fit_together
from sigmax.generative.vae import AbstractVAE
from sigmax.paper.benchmark import PUBLISHED, method_rows, title_with_settings
from sigmax.plots import INK, MODEL, tidy
from sigmax.random import make_generator
from sigmax.report.tables import ReportTable, mean_and_error
from sigmax.runs.experiments import Experiment
from sigmax.runs.methods import Method, stopwatch, with_settings
from sigmax.runs.records import Record, Task, describe_machine, done, group_done, in_order

LATENT_GRID = np.linspace(-4, 4, 41)
MIN_PIXEL_STD = 0.01
"""Minimum std of a pixel, without which the density of nearly constant pixels is unbounded."""
FAR = 100.0
"""Distance from the origin of codes that are far from all others."""
CODE_COLOR = "#2f8fe0"
MAX_SHOWN = 1.5
"""Variance at the end of the colour scale of a map, relative to that of the data."""


GENERATIVE_METHODS = {
    "vae": Method("VAE", lambda seed: VAE("normal", random_state=seed)),
    "vae-shared": Method("σ-VAE", lambda seed: VAE("shared", random_state=seed)),
    "vae-student": Method("Student-VAE", lambda seed: VAE("student", random_state=seed)),
    "comb-vae": Method("Comb-VAE", lambda seed: CombVAE(random_state=seed)),
}


@final
class RunSettings(NamedTuple):
    """Settings of a task that are not parameters of the model."""

    n_train: int | None = None
    """Number of training rows, the first; None for all."""
    n_test: int = 1000
    """Number of test rows, the first."""
    n_importance: int = 500
    """Number of codes drawn per row for its log p(x)."""


def run_settings(task: Task) -> RunSettings:
    return RunSettings(**{k: v for k, v in task.settings.items() if k in RunSettings._fields})


def create_generative(task: Task, defaults: dict[str, Any]) -> AbstractVAE:
    own = {k: v for k, v in task.settings.items() if k not in RunSettings._fields}
    model = GENERATIVE_METHODS[task.method].create(task.seed)
    return with_settings(model, task.method, {**defaults, **own})


def fit_generative(models: Sequence[AbstractVAE], sets: Sequence[NDArray]) -> dict[str, float]:
    with stopwatch() as watch:
        fit_together(models, sets)
    return watch.per_model(len(models), together=len(models))


def score_generative(
    model: AbstractVAE, X_train: NDArray, X_test: NDArray, *, n_importance: int
) -> dict[str, float]:
    """Scores of a fitted model on training and test rows.

    ``elbo`` and ``log_prob`` are means in nats per row. ``rmse`` is that of the decoder's mean at
    the encoder's mean; ``variance_bias`` and ``variance_ratio`` compare the mean predicted variance
    there with the mean squared residual. ``variance_on_codes`` and ``variance_far`` are those at
    the codes of test rows and far from all codes, summed over the features, relative to the
    training rows; ``variance_median`` is the median relative variance of features that vary.
    """
    codes, data_variance = model.encode(X_test), X_train.var(axis=0, dtype=np.float64)
    at_codes, total = model.decode_dist(codes), data_variance.sum()
    variance, residual = at_codes.variance, (X_test - at_codes.mean) ** 2
    varies = data_variance > 1e-3 * data_variance.max()
    directions = np.random.default_rng(0).standard_normal((64, codes.shape[1]))
    far = FAR * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    return {
        "elbo_train": float(model.elbo(X_train).mean()),
        "elbo_test": float(model.elbo(X_test).mean()),
        "log_prob": float(model.log_prob(X_test, n_samples=n_importance).mean()),
        "rmse": float(np.sqrt(residual.mean())),
        "variance_bias": float(variance.mean() - residual.mean()),
        "variance_ratio": float(variance.mean() / residual.mean()),
        "variance_on_codes": float(variance.sum(axis=1).mean() / total),
        "variance_median": float(np.median(variance[:, varies] / data_variance[varies])),
        "variance_far": float(model.decode_dist(far).variance.sum(axis=1).mean() / total),
    }


def latent_map(model: AbstractVAE, X_train: NDArray) -> NDArray:
    """Summed decoder variance over a grid of two latent axes, relative to that of the data.

    Flat, first latent axis fastest, at most a million.
    """
    z1, z2 = np.meshgrid(LATENT_GRID, LATENT_GRID)
    variance = model.decode_dist(np.column_stack([z1.ravel(), z2.ravel()])).variance
    return np.minimum(variance.sum(axis=1) / X_train.var(axis=0, dtype=np.float64).sum(), 1e6)


def groups_of(records: Sequence[Record]) -> dict[tuple[str, str], dict[str, list[Record]]]:
    """Done records: data set and settings -> method -> seeds."""
    ordered = in_order(records, GENERATIVE_METHODS)
    return group_done(ordered, lambda t: (t.dataset, t.settings_text), lambda t: t.method)


def shown_seeds(records: Sequence[Record]) -> dict[str, dict[str, Record]]:
    """Data set -> method -> record with pictures, for the settings with the most records."""
    groups = groups_of(records)
    shown: dict[str, dict[str, Record]] = {}
    sizes = {key: sum(map(len, methods.values())) for key, methods in groups.items()}
    for key in sorted(reversed(groups), key=sizes.__getitem__):  # the largest and first last
        found = {
            method: record
            for method, seeds in groups[key].items()
            for record in seeds
            if record.task.split == 0 and (record.curves or "sheet" in record.data)
        }
        if found:
            shown[key[0]] = found
    return {dataset: shown[dataset] for dataset, _ in groups if dataset in shown}


def variance_figure(shown: dict[str, Record], *, title: str) -> Figure:
    """Map of the decoder variance over the latent plane for each model, with codes."""
    figure = Figure(figsize=(1.2 + 3.6 * len(shown), 4.2), layout="constrained")
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    scale = PowerNorm(0.5, vmin=0, vmax=MAX_SHOWN)  # small variances get different colours, too
    limits, size = (LATENT_GRID[0], LATENT_GRID[-1]), len(LATENT_GRID)
    for axes, (method, record) in zip(panels, shown.items(), strict=True):
        square = np.reshape(record.curves["variance"], (size, size))
        colors: dict[str, Any] = {"cmap": "magma", "norm": scale, "shading": "gouraud"}
        image = axes.pcolormesh(LATENT_GRID, LATENT_GRID, square, **colors)
        codes = np.reshape(record.curves["codes"], (-1, 2))
        labels = record.curves.get("labels")
        ink = {"color": CODE_COLOR} if labels is None else {"c": labels, "cmap": "tab10"}
        axes.scatter(codes[:, 0], codes[:, 1], s=5, lw=0, **ink)
        axes.set(xlim=limits, ylim=limits, aspect="equal")
        axes.set_title(GENERATIVE_METHODS[method].title, fontsize=11)
        if axes is panels[0]:
            label = "summed variance, relative to that of the data"
            figure.colorbar(image, ax=list(panels), label=label, extend="max")
    figure.suptitle(title, fontsize=12)
    return figure


# Two moons.

TWO_MOONS = TwoMoons()
N_POINTS = 500
N_SAMPLES = 5_000
N_REFERENCE = 20_000

MOONS_SETTINGS = {"n_latent": 2, "hidden_sizes": (50,), "n_steps": 5_000, "batch_size": 500}
"""Settings of every model. The paper uses a network of low capacity, without its size."""


def new_rows(seed: int, purpose: int, n_rows: int) -> NDArray:
    """Rows that no model was trained on; ``purpose`` numbers independent draws."""
    return TWO_MOONS.sample(n_rows, random_state=[seed, purpose])[0]


def run_moons(job: Sequence[Task]) -> list[Record]:
    """Fit a method to the data of each seed, and compare its samples with new data."""
    machine, run = describe_machine(), run_settings(job[0])
    models = [create_generative(task, MOONS_SETTINGS) for task in job]
    sets = [TWO_MOONS.sample(run.n_train or N_POINTS, random_state=task.seed)[0] for task in job]
    seconds = fit_generative(models, sets)
    records = []
    for task, model, X in zip(job, models, sets, strict=True):
        test = new_rows(task.seed, 1, run.n_test)
        samples = model.sample(N_SAMPLES, random_state=task.seed)
        scores = score_generative(model, X, test, n_importance=run.n_importance)
        scores["excess"] = float(TWO_MOONS.log_prob(test).mean()) - scores["log_prob"]
        scores |= score_samples(samples, task.seed)
        others = score_samples(new_rows(task.seed, 5, N_SAMPLES), task.seed)
        scores |= {f"{name}_of_data": value for name, value in others.items()}
        curves: dict[str, NDArray] = {}
        if task.split == 0:
            curves = {"codes": model.encode(X), "reconstructions": model.reconstruct(X)}
            curves |= {"samples": samples, "variance": latent_map(model, X)}
            curves = {name: np.round(values, 3).ravel() for name, values in curves.items()}
        metadata: dict[str, Any] = {"n_train": len(X), "n_test": len(test), "n_features": 4}
        parts = {"seconds": seconds, "data": metadata, "machine": machine}
        records.append(done(task, scores=scores, curves=curves, **parts))
    return records


def score_samples(samples: NDArray, seed: int) -> dict[str, float]:
    """Distances of samples from new data, and the share of samples off the data."""
    data, reference = new_rows(seed, 2, N_SAMPLES), new_rows(seed, 3, N_REFERENCE)
    return {
        "energy": energy_distance(samples, data),
        "sliced_wasserstein": sliced_wasserstein(samples, data),
        "off_data": share_off_data(samples, reference, new_rows(seed, 4, N_REFERENCE)),
    }


def energy_distance(a: NDArray, b: NDArray) -> float:
    r"""Energy distance of two samples of rows, in its root form.

    $\sqrt{2 E\|A - B\| - E\|A - A'\| - E\|B - B'\|}$ with means over all pairs, including those of
    a row with itself. For two samples of n rows of one distribution it is about
    $\sqrt{2 E\|A - A'\| / n}$, not 0.
    """
    squared = 2 * cdist(a, b).mean() - cdist(a, a).mean() - cdist(b, b).mean()
    return float(np.sqrt(max(squared, 0.0)))


def sliced_wasserstein(a: NDArray, b: NDArray, n_directions: int = 200) -> float:
    """Mean Wasserstein distance of two samples of rows along random directions."""
    directions = make_generator(0).standard_normal((a.shape[1], n_directions))
    directions /= np.linalg.norm(directions, axis=0)
    pairs = zip((a @ directions).T, (b @ directions).T, strict=True)
    return float(np.mean([wasserstein_distance(*pair) for pair in pairs]))


def share_off_data(samples: NDArray, reference: NDArray, fresh: NDArray) -> float:
    """Share of ``samples`` that are farther from the data than 99.9 % of ``fresh`` data are.

    The distance of a row is that to the nearest row of ``reference``, a large sample of the data.
    """
    tree = KDTree(reference)
    return float(np.mean(tree.query(samples)[0] > np.quantile(tree.query(fresh)[0], 0.999)))


MOONS_SCORES = {
    "energy distance": ("energy", 3),
    "sliced W₁": ("sliced_wasserstein", 3),
    "off the data": ("off_data", 4),
    "test log p(x)": ("log_prob", 3),
    "below true": ("excess", 3),
    "σ² on codes": ("variance_on_codes", 3),
    "σ² far": ("variance_far", 2),
}


def moons_tables(records: Sequence[Record]) -> list[ReportTable]:
    tables = []
    for (_, settings), methods in groups_of(records).items():
        longest = max(methods.values(), key=len)
        truth = {
            name: [record.scores[f"{name}_of_data"] for record in longest]
            for name in ("energy", "sliced_wasserstein", "off_data")
        }
        truth["log_prob"] = [r.scores["log_prob"] + r.scores["excess"] for r in longest]
        of_data = [mean_and_error(truth.get(n, []), digits=d) for n, d in MOONS_SCORES.values()]
        some, run = longest[0], run_settings(longest[0].task)
        title = f"two moons in four dimensions: {some.data['n_train']} points"
        table = ReportTable(
            title=title_with_settings(title, settings),
            header=["model", *MOONS_SCORES],
            rows=[*method_rows(GENERATIVE_METHODS, methods, MOONS_SCORES), ["data", *of_data]],
            notes=[
                f"Mean ± standard error over seeds ({len(longest)}). Distances (energy: the root"
                f" form) between {N_SAMPLES:,} samples with noise and {N_SAMPLES:,} new points, in"
                " units of the data. Last row: other new points in place of samples, and log p(x)"
                " of the true density.",
                f"Off the data: share of samples whose nearest of {N_REFERENCE:,} new points is"
                " farther away than it is for 99.9 % of new points.",
                f"log p(x) of {run.n_test:,} new points with {run.n_importance} codes each, in"
                " nats; σ²: decoder variance summed over the four dimensions, at the codes of new"
                " points and far from all codes, relative to the variance of the data.",
                *energy_note(methods),
            ],
        )
        tables.append(table)
    return tables


def energy_note(methods: dict[str, list[Record]]) -> list[str]:
    """Number of seeds on which Comb-VAE has a smaller energy distance than each other model."""
    energy = {
        method: {record.task.split: record.scores["energy"] for record in found}
        for method, found in methods.items()
    }
    ours, counts = energy.pop("comb-vae", {}), []
    for method, theirs in energy.items():
        if shared := ours.keys() & theirs.keys():
            nearer = sum(ours[split] < theirs[split] for split in shared)
            counts.append(f"{GENERATIVE_METHODS[method].title} on {nearer} of {len(shared)} seeds")
    return [f"Comb-VAE has a smaller energy distance than {', '.join(counts)}."] if counts else []


def moons_figures(records: Sequence[Record]) -> dict[str, Figure]:
    """Figures of the first seed, for the settings with the most records."""
    shown = shown_seeds(records).get("moons")
    if not shown:
        return {}
    papers = {method: shown[method] for method in ("vae", "comb-vae") if method in shown}
    title = "two moons: variance over the latent plane"
    return {
        "moons_pairs": pairs_figure(papers or shown),
        "moons_variance": variance_figure(shown, title=title),
    }


def pairs_figure(shown: dict[str, Record]) -> Figure:
    """Every pair of the four features: data, then reconstructions and samples of each model."""
    some = next(iter(shown.values()))
    n_rows = min(some.data["n_train"], N_SAMPLES)  # a record may be untrusted
    rows = {
        "data": TWO_MOONS.sample(n_rows, random_state=some.task.seed)[0],
        "new data": new_rows(some.task.seed, 2, N_SAMPLES),
    }
    for method, record in shown.items():
        for name in ("reconstructions", "samples"):
            title = f"{GENERATIVE_METHODS[method].title}, {name}"
            rows[title] = np.reshape(record.curves[name], (-1, 4))
    pairs = list(itertools.combinations(range(4), 2))
    figure = Figure(figsize=(2.1 * len(pairs), 2.0 * len(rows)), layout="constrained")
    panels = figure.subplots(len(rows), len(pairs), squeeze=False, sharex="col", sharey="col")
    lower, upper = rows["new data"].min(axis=0) - 0.5, rows["new data"].max(axis=0) + 0.5
    for line, (title, X) in zip(panels, rows.items(), strict=True):
        color = INK if "data" in title else MODEL
        for axes, (i, j) in zip(line, pairs, strict=True):
            axes.scatter(X[:, i], X[:, j], s=1.5 if len(X) > 1000 else 3, color=color, lw=0)
            axes.set(xlim=(lower[i], upper[i]), ylim=(lower[j], upper[j]))
            tidy(axes)
            if title == "data":
                axes.set_title(f"v{j + 1} against v{i + 1}", fontsize=10)
        line[0].set_ylabel(title, fontsize=10)
    return figure


MOONS = Experiment(
    name="moons",
    about="generative models of two moons in four dimensions: samples against new data",
    datasets=("moons",),
    methods=tuple(GENERATIVE_METHODS),
    n_splits=5,
    n_rows=lambda dataset: N_POINTS,
    known_methods=GENERATIVE_METHODS,
    quick={"n_steps": 1_000, "n_test": 200, "n_importance": 50},
    run=run_moons,
    tables=moons_tables,
    figures=moons_figures,
)


# Images.

MAX_CODES = 1_000
SHEET = np.linspace(-4, 4, 15)
"""Both axes of the sheet of samples over the latent plane."""
N_DRAWN = 6
"""Rows and columns of a sheet if the latent space is not a plane."""
N_GREYS = 16
"""Number of grey levels of a packed pixel; two pixels make a byte."""

DENSITY_SCORES = {
    "train ELBO": ("elbo_train", 1),
    "test ELBO": ("elbo_test", 1),
    "test log p(x)": ("log_prob", 1),
    "RMSE": ("rmse", 4),
}
VARIANCE_SCORES = {
    "bias": ("variance_bias", 5),
    "ratio": ("variance_ratio", 2),
    "on codes": ("variance_on_codes", 3),
    "median": ("variance_median", 3),
    "far": ("variance_far", 2),
}


def image_settings(dataset: str) -> dict[str, Any]:
    """The paper's settings: two latent dimensions for grey images, ten for colour images."""
    is_grey = len(IMAGE_SETS[dataset].shape) == 2
    return {"n_latent": 2 if is_grey else 10, "min_std": MIN_PIXEL_STD, "scaling": "none"}


load_cached_images = lru_cache(maxsize=1)(load_images)


def run_images(job: Sequence[Task]) -> list[Record]:
    data, machine = load_cached_images(job[0].dataset), describe_machine()
    run = run_settings(job[0])
    X_train, X_test = data.X_train[: run.n_train], data.X_test[: run.n_test]
    models = [create_generative(task, image_settings(data.name)) for task in job]
    seconds = fit_generative(models, [X_train] * len(models))
    metadata: dict[str, Any] = {
        "hash": data.content_hash,
        "note": data.note,
        "n_train": len(X_train),
        "n_test": len(X_test),
        "n_features": X_train.shape[1],
    }
    records = []
    for task, model in zip(job, models, strict=True):
        scores = score_generative(model, X_train, X_test, n_importance=run.n_importance)
        curves: dict[str, NDArray] = {}
        sheet: dict[str, Any] = {}
        if task.split == 0:
            sheet = {"sheet": pack(sample_sheet(model, data.shape, task.seed))}
            if model.n_latent == 2:
                codes = model.encode(X_test[:MAX_CODES])
                curves = {"codes": codes, "labels": data.y_test[: len(codes)]}
                curves["variance"] = latent_map(model, X_train)
                curves = {name: np.round(v.astype(float), 3).ravel() for name, v in curves.items()}
        parts = {"seconds": seconds, "data": {**metadata, **sheet}, "machine": machine}
        records.append(done(task, scores=scores, curves=curves, **parts))
    return records


def sample_sheet(model: AbstractVAE, shape: tuple[int, ...], seed: int) -> NDArray:
    """Samples with noise as one picture: over the latent plane, or from the prior."""
    if model.n_latent == 2:
        z1, z2 = np.meshgrid(SHEET, SHEET[::-1])  # the first row of a picture is its upper end
        dist = model.decode_dist(np.column_stack([z1.ravel(), z2.ravel()]))
        images = dist.sample(1, random_state=seed)[0]
    else:
        images = model.sample(N_DRAWN**2, random_state=seed)
    return tiled(np.clip(images, 0, 1).reshape(-1, *shape))


def tiled(images: NDArray) -> NDArray:
    """Arrange a square number of images (n, height, width[, channels]) as one picture."""
    side = round(len(images) ** 0.5)
    height, width, *channels = images.shape[1:]
    square = images.reshape(side, side, height, width, *channels)
    return square.swapaxes(1, 2).reshape(side * height, side * width, *channels)


def pack(picture: NDArray) -> dict[str, Any]:
    """Encode a picture with values in [0, 1] as JSON values, rounded to 16 grey levels."""
    levels = np.rint(picture * (N_GREYS - 1)).astype(np.uint8).ravel()
    pairs = np.append(levels, np.zeros(len(levels) % 2, np.uint8)).reshape(-1, 2)
    content = (pairs[:, 0] * N_GREYS + pairs[:, 1]).tobytes()
    return {"shape": list(picture.shape), "levels": base64.b64encode(content).decode()}


def unpack(packed: dict[str, Any]) -> NDArray[np.float64]:
    try:
        content = np.frombuffer(base64.b64decode(packed["levels"], validate=True), np.uint8)
    except ValueError as error:
        raise ValueError(f"a picture of samples is damaged: {error}") from error
    levels = np.column_stack([content // N_GREYS, content % N_GREYS]).ravel()
    shape = [int(n) for n in packed["shape"]]
    return levels[: np.prod(shape)].reshape(shape) / (N_GREYS - 1)


def set_title(dataset: str) -> str:
    return IMAGE_SETS[dataset].title if dataset in IMAGE_SETS else dataset


def image_tables(records: Sequence[Record]) -> list[ReportTable]:
    groups = groups_of(records)
    tables = []
    for (dataset, settings), methods in groups.items():
        title = set_title(dataset)
        tables.append(density_table(title, settings, methods))
        tables.append(
            ReportTable(
                title=title_with_settings(f"images: {title}, the decoder's variance", settings),
                header=["model", *VARIANCE_SCORES],
                rows=method_rows(GENERATIVE_METHODS, methods, VARIANCE_SCORES),
                notes=[
                    "Bias: mean predicted variance at the codes of test images, minus the mean"
                    " squared residual; ratio: the first divided by the second. On codes, and far"
                    " from all codes: summed over pixels, relative to the variance of the data;"
                    " median: of the relative variance of a pixel on the codes, for pixels that"
                    " vary."
                ],
            )
        )
    for settings in dict.fromkeys(settings for _, settings in groups):
        sets = {name: methods for (name, s), methods in groups.items() if s == settings}
        tables.append(published_images_table(settings, sets))
    return tables


def density_table(title: str, settings: str, methods: dict[str, list[Record]]) -> ReportTable:
    found = [record for seeds in methods.values() for record in seeds]
    first, n_seeds = found[0], max(map(len, methods.values()))
    devices = ", ".join(dict.fromkeys(str(r.machine.get("device", "?")) for r in found))
    together = max(int(r.seconds.get("together", 1)) for r in found)
    shared = f"; {together} seeds were trained at once and share the time" if together > 1 else ""
    rows = method_rows(GENERATIVE_METHODS, methods, DENSITY_SCORES)
    for row, seeds in zip(rows, methods.values(), strict=True):
        row.append(f"{sum(record.seconds['fit'] for record in seeds) / len(seeds):.0f}")
    return ReportTable(
        title=title_with_settings(f"images: {title}", settings),
        header=["model", *DENSITY_SCORES, "seconds to fit"],
        rows=rows,
        notes=[
            *([f"{title} here is {first.data['note']}."] if first.data["note"] else []),
            f"{first.data['n_train']:,} training images, the first {first.data['n_test']:,} test"
            f" images, {first.data['n_features']:,} pixel values in [0, 1] each. Mean ± standard"
            f" error over seeds ({n_seeds}); nats per image; log p(x) by importance sampling with"
            f" {run_settings(first.task).n_importance} codes per image; RMSE of the"
            f" reconstruction. The std (Student-t: scale) of a decoder is at least {MIN_PIXEL_STD},"
            " which bounds the density of nearly constant pixels.",
            f"Seconds without compilation, on: {devices}{shared}.",
        ],
    )


def published_images_table(settings: str, sets: dict[str, dict[str, list[Record]]]) -> ReportTable:
    names = {"elbo_train": "training ELBO", "log_prob": "test log p(x)"}
    compared = ("vae", "comb-vae")
    rows = []
    for score, paper in PUBLISHED["images"].items():
        for dataset in (dataset for dataset in sets if dataset in paper):
            row = [f"{names[score]}, {set_title(dataset)}"]
            for method in compared:
                mean, error = paper[dataset][method]
                ours = [record.scores[score] for record in sets[dataset].get(method, [])]
                row += [f"{mean:.2f} ± {error:.2f}", mean_and_error(ours)]
            rows.append(row)
    parts = [
        set_title(dataset)
        for dataset, methods in sets.items()
        if next(iter(methods.values()))[0].data["note"]
    ]
    subsets = f" Subsets here: {', '.join(parts)}." if parts else ""
    titles = [GENERATIVE_METHODS[method].title for method in compared]
    return ReportTable(
        title=title_with_settings("images: the paper's table and ours", settings),
        header=["", *(f"{title}, {who}" for title in titles for who in ("paper", "ours"))],
        rows=rows,
        notes=[
            "Not the same quantities. In the published code, log p(x) is the reconstruction term of"
            " one drawn code per image; ours is the marginal density by importance sampling. The"
            " paper gives CIFAR10 and SVHN 32 x 32 x 1 values, ours have 32 x 32 x 3, and nats are"
            " summed over them." + subsets
        ],
    )


def image_figures(records: Sequence[Record]) -> dict[str, Figure]:
    """Sheets of samples of the first seed and, for a latent plane, maps of the variance."""
    figures: dict[str, Figure] = {}
    for dataset, shown in shown_seeds(records).items():
        title = set_title(dataset)
        maps = {method: record for method, record in shown.items() if "codes" in record.curves}
        figure = Figure(figsize=(0.4 + 4.4 * len(shown), 5.0), layout="constrained")
        panels = figure.subplots(1, len(shown), squeeze=False)[0]
        for axes, (method, record) in zip(panels, shown.items(), strict=True):
            extent = (-4, 4, -4, 4) if maps else None
            axes.imshow(unpack(record.data["sheet"]), cmap="gray_r", vmin=0, vmax=1, extent=extent)
            axes.set_title(GENERATIVE_METHODS[method].title, fontsize=11)
            if not maps:
                axes.set_axis_off()
        source = "over the latent plane" if maps else "from the prior"
        figure.suptitle(f"{title}: samples with noise, {source}", fontsize=12)
        figures[f"images_{dataset}"] = figure
        if maps:
            text = f"{title}: variance over the latent plane, with codes of test images"
            figures[f"images_{dataset}_variance"] = variance_figure(maps, title=text)
    return figures


IMAGES = Experiment(
    name="images",
    about="generative models of images: densities and the variance of pixels",
    datasets=tuple(IMAGE_SETS),
    methods=tuple(GENERATIVE_METHODS),
    n_splits=3,
    n_rows=lambda dataset: IMAGE_SETS[dataset].n_train,
    known_methods=GENERATIVE_METHODS,
    quick={"n_steps": 300, "batch_size": 128, "n_train": 2000, "n_test": 200, "n_importance": 50},
    run=run_images,
    tables=image_tables,
    figures=image_figures,
)
