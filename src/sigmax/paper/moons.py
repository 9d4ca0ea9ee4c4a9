"""Two moons seen in four dimensions: samples of generative models against fresh data."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sigmax.data import TwoMoons
from sigmax.generative.base import AbstractVAE
from sigmax.paper.generative import (
    GENERATIVE_METHODS,
    RunSettings,
    create_generative,
    fit_generative,
    groups_of,
    latent_map,
    score_generative,
    score_text,
    title_with_settings,
)
from sigmax.paper.latent_pictures import shown_seeds, variance_figure
from sigmax.plots import INK, MODEL, tidy
from sigmax.runs.records import Record, Task, describe_machine, done
from sigmax.runs.registry import Experiment, register
from sigmax.runs.tables import ReportTable, mean_and_error
from sigmax.sample_distances import energy_distance, share_off_data, sliced_wasserstein

__all__ = [
    "moons_figures",
    "moons_tables",
    "run_moons",
    "score_samples",
]

TWO_MOONS = TwoMoons()
N_POINTS = 500
N_SAMPLES = 5_000
N_REFERENCE = 20_000

MOONS = {"n_latent": 2, "hidden_sizes": (50,), "n_steps": 5_000, "batch_size": 500}
"""Of every model. The paper has a network of low capacity here, and does not say which."""


def fresh(seed: int, purpose: int, n_rows: int) -> NDArray:
    """Rows that no model was trained on, for one purpose."""
    return TWO_MOONS.sample(n_rows, random_state=[seed, purpose])[0]


def run_moons(job: Sequence[Task]) -> list[Record]:
    """Fit a method to the data of each seed, and compare its samples with fresh data."""
    machine, run = describe_machine(), RunSettings.of(job[0])
    models = [create_generative(task, MOONS) for task in job]
    sets = [TWO_MOONS.sample(run.n_train or N_POINTS, random_state=task.seed)[0] for task in job]
    seconds = fit_generative(models, sets)
    records = []
    for task, model, X in zip(job, models, sets, strict=True):
        test = fresh(task.seed, 1, run.n_test)
        samples = model.sample(N_SAMPLES, random_state=task.seed)
        scores = score_generative(model, X, test, n_importance=run.n_importance)
        scores["excess"] = float(TWO_MOONS.log_prob(test).mean()) - scores["log_prob"]
        scores |= score_samples(samples, task.seed)
        others = score_samples(fresh(task.seed, 5, N_SAMPLES), task.seed)
        scores |= {f"{name}_of_data": value for name, value in others.items()}
        curves = moons_curves(model, X, samples) if task.split == 0 else {}
        facts: dict[str, Any] = {"n_train": len(X), "n_test": len(test), "n_features": 4}
        parts = {"seconds": seconds, "data": facts, "machine": machine}
        records.append(done(task, scores=scores, curves=curves, **parts))
    return records


def score_samples(samples: NDArray, seed: int) -> dict[str, float]:
    """Samples against fresh data, in the units of the data.

    Returns
    -------
    dict with
        ``energy`` and ``sliced_wasserstein``, distances from 5,000 fresh rows;
        ``off_data``, the share of samples whose nearest of 20,000 fresh rows is farther than it is
        for all but a thousandth of the data.
    """
    data, reference = fresh(seed, 2, N_SAMPLES), fresh(seed, 3, N_REFERENCE)
    return {
        "energy": energy_distance(samples, data),
        "sliced_wasserstein": sliced_wasserstein(samples, data, random_state=0),
        "off_data": share_off_data(samples, reference, fresh(seed, 4, N_REFERENCE)),
    }


def moons_curves(model: AbstractVAE, X: NDArray, samples: NDArray) -> dict[str, NDArray]:
    """What the pictures show of a model, flat, to three decimals."""
    rows = {
        "codes": model.encode(X),
        "reconstructions": model.reconstruct(X),
        "samples": samples,
        "variance": latent_map(model, X),
    }
    return {name: np.round(values, 3).ravel() for name, values in rows.items()}


COLUMNS = {
    "energy distance": ("energy", 3),
    "sliced W₁": ("sliced_wasserstein", 3),
    "off the data": ("off_data", 4),
    "test log p(x)": ("log_prob", 3),
    "below true": ("excess", 3),
    "σ² on codes": ("variance_on_codes", 3),
    "σ² far": ("variance_far", 2),
}

ON_SAMPLES = ("energy", "sliced_wasserstein", "off_data")


def moons_tables(records: Sequence[Record]) -> list[ReportTable]:
    """One table per settings: a row per method, and one for the data themselves."""
    return [moons_table(settings, methods) for (_, settings), methods in groups_of(records).items()]


def moons_table(settings: str, methods: dict[str, list[Record]]) -> ReportTable:
    rows = [
        [
            GENERATIVE_METHODS[method].title,
            *(score_text(found, name, digits) for name, digits in COLUMNS.values()),
        ]
        for method, found in methods.items()
    ]
    longest = max(methods.values(), key=len)
    truth = {
        **{name: [r.scores[f"{name}_of_data"] for r in longest] for name in ON_SAMPLES},
        "log_prob": [r.scores["log_prob"] + r.scores["excess"] for r in longest],
    }
    of_data = [
        mean_and_error(truth[name], digits=digits) if name in truth else ""
        for name, digits in COLUMNS.values()
    ]
    rows.append(["data", *of_data])
    some, run = longest[0], RunSettings.of(longest[0].task)
    return ReportTable(
        title=title_with_settings(
            f"two moons in four dimensions: {some.data['n_train']} points", settings
        ),
        header=["model", *COLUMNS],
        rows=rows,
        notes=[
            f"Mean ± standard error over seeds ({len(longest)}). Distances (energy: the root form)"
            f" between {N_SAMPLES:,} samples with noise and {N_SAMPLES:,} fresh points, in units of"
            " the data; the last row holds other fresh points against these, and has the true"
            " density's log p(x).",
            f"Off the data: share of samples whose nearest of {N_REFERENCE:,} fresh points is"
            " farther away than it is for 99.9 % of fresh points.",
            f"log p(x) of {run.n_test:,} fresh points with {run.n_importance} codes each, in nats;"
            " σ²: decoder variance summed over the four dimensions, at the codes of fresh points"
            " and far from all codes, over the variance of the data.",
            *nearer_note(methods),
        ],
    )


def nearer_note(methods: dict[str, list[Record]]) -> list[str]:
    """On how many seeds Comb-VAE's samples are nearer to the data than those of each other."""
    energy = {
        method: {record.task.split: record.scores["energy"] for record in found}
        for method, found in methods.items()
    }
    ours, counts = energy.pop("comb-vae", {}), []
    for method, theirs in energy.items():
        shared = ours.keys() & theirs.keys()
        if shared:
            nearer = sum(ours[split] < theirs[split] for split in shared)
            title = GENERATIVE_METHODS[method].title
            counts.append(f"{title}'s on {nearer} of {len(shared)} seeds")
    if not counts:
        return []
    return [
        f"In energy distance Comb-VAE's samples are nearer to the data than {', '.join(counts)}."
    ]


def moons_figures(records: Sequence[Record]) -> dict[str, Figure]:
    """The first seed's pictures by their names, of the settings with the most records.

    Pairs of features are shown for the paper's two models, where they are there.
    """
    shown = shown_seeds(records).get("moons")
    if not shown:
        return {}
    papers = {method: shown[method] for method in ("vae", "comb-vae") if method in shown}
    return {
        "moons_pairs": pairs_figure(papers or shown),
        "moons_variance": variance_figure(shown, title="two moons: variance over the latent plane"),
    }


def pairs_figure(shown: dict[str, Record]) -> Figure:
    """Every pair of the four features: data, then each model's reconstructions and samples."""
    some = next(iter(shown.values()))
    n_rows = min(some.data["n_train"], N_SAMPLES)  # whatever a stranger's record says
    rows = {
        "data": TWO_MOONS.sample(n_rows, random_state=some.task.seed)[0],
        "fresh data": TWO_MOONS.sample(N_SAMPLES, random_state=[some.task.seed, 2])[0],
    }
    for method, record in shown.items():
        title = GENERATIVE_METHODS[method].title
        for name in ("reconstructions", "samples"):
            rows[f"{title}, {name}"] = np.reshape(record.curves[name], (-1, 4))
    pairs = list(itertools.combinations(range(4), 2))
    figure = Figure(figsize=(2.1 * len(pairs), 2.0 * len(rows)), layout="constrained")
    panels = figure.subplots(len(rows), len(pairs), squeeze=False, sharex="col", sharey="col")
    lower, upper = rows["fresh data"].min(axis=0) - 0.5, rows["fresh data"].max(axis=0) + 0.5
    for line, (title, X) in zip(panels, rows.items(), strict=True):
        color = INK if "data" in title else MODEL
        for axes, (i, j) in zip(line, pairs, strict=True):
            axes.scatter(X[:, i], X[:, j], s=1.5 if len(X) > 1000 else 3, color=color, lw=0)
            axes.set(xlim=(lower[i], upper[i]), ylim=(lower[j], upper[j]))
            tidy(axes)
        line[0].set_ylabel(title, fontsize=10)
    for axes, (i, j) in zip(panels[0], pairs, strict=True):
        axes.set_title(f"v{j + 1} against v{i + 1}", fontsize=10)
    return figure


register(
    Experiment(
        name="moons",
        about="generative models of two moons in four dimensions: samples against fresh data",
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
)
