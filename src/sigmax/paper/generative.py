"""What the experiments with generative models share: methods, fits, scores and latent maps."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sigmax.generative import VAE, CombVAE, fit_together
from sigmax.generative.base import AbstractVAE
from sigmax.runs.fitting import stopwatch, with_settings
from sigmax.runs.methods import Method
from sigmax.runs.records import Record, Task, group_done, in_order
from sigmax.runs.tables import mean_and_error

__all__ = [
    "GENERATIVE_METHODS",
    "LATENT_GRID",
    "LEAST_PIXEL_STD",
    "RunSettings",
    "create_generative",
    "fit_generative",
    "groups_of",
    "latent_map",
    "score_generative",
    "score_text",
    "title_with_settings",
]

LATENT_GRID = np.linspace(-4, 4, 41)
"""Both axes of latent maps."""
LEAST_PIXEL_STD = 0.01
"""Without a least std, the density of pixels that hardly change has no bound."""
FAR = 100.0
"""How far from the origin a code is when it is far from all codes."""


GENERATIVE_METHODS = {
    "vae": Method("VAE", lambda seed: VAE("normal", random_state=seed)),
    "vae-shared": Method("σ-VAE", lambda seed: VAE("shared", random_state=seed)),
    "vae-student": Method("Student-VAE", lambda seed: VAE("student", random_state=seed)),
    "comb-vae": Method("Comb-VAE", lambda seed: CombVAE(random_state=seed)),
}


@final
@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Settings of a run that are not the model's; in a task they stand among those."""

    n_train: int | None = None
    """Rows to train on, the first; None is all."""
    n_test: int = 1000
    """Rows to test on, the first."""
    n_importance: int = 500
    """Codes drawn per row for its log p(x)."""

    @classmethod
    def of(cls, task: Task) -> "RunSettings":
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in task.settings.items() if name in names})


def create_generative(task: Task, usual: dict[str, Any]) -> AbstractVAE:
    """The task's method with the experiment's usual settings, and the task's own over them."""
    of_run = {field.name for field in fields(RunSettings)}
    own = {name: value for name, value in task.settings.items() if name not in of_run}
    model = GENERATIVE_METHODS[task.method].create(task.seed)
    return with_settings(model, task.method, {**usual, **own})


def fit_generative(models: Sequence[AbstractVAE], sets: Sequence[NDArray]) -> dict[str, float]:
    """Fit each model to its rows, several in one training; the seconds are those of one model."""
    n = len(models)
    with stopwatch() as watch:
        if n > 1:
            fit_together(models, sets)
        else:
            models[0].fit(sets[0])
    return watch.per_model(n, together=n)


def score_generative(
    model: AbstractVAE, X_train: NDArray, X_test: NDArray, *, n_importance: int
) -> dict[str, float]:
    """A fitted model on rows it has seen and on rows it has not.

    Returns
    -------
    dict with
        ``elbo_train`` and ``elbo_test``, mean evidence lower bounds, in nats per row;
        ``log_prob``, the mean log p(x) of the test rows, by importance sampling;
        ``rmse``, of the decoder's mean at the encoder's mean, over test rows and features;
        ``variance_bias``, the mean predicted variance there, less the mean squared residual;
        ``variance_ratio``, the first over the second of these;
        ``variance_on_codes`` and ``variance_far``, the predicted variance at the test rows' codes
        and far from all codes, summed over the features, over that of the training rows;
        ``variance_median``, the median of their quotient over test rows and features, without
        features that vary less than a thousandth of the one that varies most.
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
    """Decoder variance over a grid of two latent axes, summed over features, over the data's.

    Flat, the first latent axis fastest, and cut off at a million.
    """
    z1, z2 = np.meshgrid(LATENT_GRID, LATENT_GRID)
    variance = model.decode_dist(np.column_stack([z1.ravel(), z2.ravel()])).variance
    return np.minimum(variance.sum(axis=1) / X_train.var(axis=0, dtype=np.float64).sum(), 1e6)


def groups_of(records: Sequence[Record]) -> dict[tuple[str, str], dict[str, list[Record]]]:
    """Done records: data set and settings -> method -> seeds."""
    groups: dict[tuple[str, str], dict[str, list[Record]]] = {}
    found = group_done(
        in_order(records, GENERATIVE_METHODS), lambda t: (t.dataset, t.settings_text, t.method)
    )
    for (dataset, settings, method), seeds in found.items():
        groups.setdefault((dataset, settings), {})[method] = seeds
    return groups


def title_with_settings(text: str, settings: str) -> str:
    """A table's title, with the settings that differ from the usual ones."""
    return f"{text} ({settings})" if settings else text


def score_text(records: Sequence[Record], score: str, digits: int) -> str:
    """Mean and error of a score; a very large mean as a power of ten."""
    values = [record.scores[score] for record in records]
    mean = float(np.mean(values))
    return f"{mean:.1e}" if abs(mean) >= 1e5 else mean_and_error(values, digits=digits)
