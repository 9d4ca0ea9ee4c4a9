"""Several seeds of one model trained at once."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from sigmax.compilation import clear_if_full
from sigmax.errors import InvalidArgumentError, TrainingError
from sigmax.estimators.atomic_fit import atomic_fit
from sigmax.estimators.folds import duplicate_groups
from sigmax.estimators.progress import training_bar
from sigmax.generative.base import AbstractVAE
from sigmax.generative.schedule import Plan
from sigmax.generative.training import Rows, Seed, train
from sigmax.neighbors import neighbor_graph
from sigmax.random import make_key, named_generator, named_key
from sigmax.sampling import neighbor_counts

__all__ = ["fit_together"]

LARGEST_HOLD_OUT = 4096
"""More held-out rows than this say nothing new about which snapshot is best."""

FEATURES_FOR_NEIGHBORS = 32
"""Principal components by which neighbours are searched where there are more features."""


def fit_together(models: Sequence[AbstractVAE], sets: Sequence[Any]) -> None:
    """Fit each model to its own ``X``, all in one training.

    The models share class and settings, up to the seed, and the sets one shape; sets that are one
    and the same object are held once. Every model ends as if it had been fitted alone, up to
    rounding; one compilation and, on an accelerator, one device serve them all. A training that
    fails or is interrupted leaves all models as they were.
    """
    clear_if_full()
    with atomic_fit(models) as copies:
        train_together(copies, sets)


def train_together(models: Sequence[AbstractVAE], sets: Sequence[Any]) -> None:
    """Fit unfitted models, which change on the way."""
    plans = [model._plan() for model in models]
    if len(models) != len(sets) or not models or not is_alike(models):
        raise InvalidArgumentError(
            "Models that are fitted together need the same class and settings, and one set each."
        )
    plan = plans[0]
    own = {id(X): number for number, X in reversed(list(enumerate(sets)))}
    firsts = sorted(own.values())
    prepared = [models[i]._networks_rows(sets[i], reset=True) for i in firsts]
    if any(rows.shape != prepared[0].shape for rows in prepared):
        raise InvalidArgumentError("Models that are fitted together need data of the same shape.")
    labels = [
        duplicate_groups(rows) if models[0].validation_fraction else None for rows in prepared
    ]
    seeds, keys = [], []
    for model, X in zip(models, sets, strict=True):
        group = firsts.index(own[id(X)])
        if model is not models[own[id(X)]]:
            copy_units(models[own[id(X)]], model)
        key = make_key(model.random_state)
        learned, held_out = hold_out(model, len(prepared[group]), labels[group], key)
        start = model._create_model(prepared[group], named_generator(key, "networks"))
        seeds.append(Seed.create(group, learned, held_out, start))
        keys.append(named_key(key, "training"))
    # Stacked and cut up as NumPy, where neither compiles anything.
    stacked = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *seeds)
    k = models[0]._n_neighbors(len(prepared[0]))
    with progress_bar(plan, visible=models[0].verbose > 0) as report:
        rows = create_rows(prepared, k)
        trained, histories = train(stacked, jnp.stack(keys), rows, plan, report)
    trained = jax.tree.map(np.asarray, trained)
    for i, (model, history) in enumerate(zip(models, histories, strict=True)):
        model.model_ = jax.tree.map(lambda leaf, i=i: jnp.asarray(leaf[i]), trained)
        model.history_ = as_history(history, plan, model)
        check_finite(model.history_)


def is_alike(models: Sequence[AbstractVAE]) -> bool:
    def settings(model):
        params = model.get_params(deep=False)
        return type(model), {k: str(v) for k, v in params.items() if k != "random_state"}

    return all(settings(model) == settings(models[0]) for model in models)


def copy_units(source: AbstractVAE, target: AbstractVAE) -> None:
    """What was learned of the rows of a set, for a second model of the same set."""
    target.n_features_in_, target.x_scaling_ = source.n_features_in_, source.x_scaling_
    if hasattr(source, "feature_names_in_"):
        target.feature_names_in_ = source.feature_names_in_
    elif hasattr(target, "feature_names_in_"):
        del target.feature_names_in_


def create_rows(sets: Sequence[np.ndarray], k: int) -> Rows:
    """All sets on the device, with lists of ``k`` neighbours."""
    graphs = [search_neighbors(X, k) for X in sets]
    counts = [neighbor_counts(graph).astype(np.float32) for graph in graphs]
    return Rows(*(jnp.asarray(np.stack(parts)) for parts in (sets, graphs, counts)))


def search_neighbors(X: np.ndarray, k: int) -> np.ndarray:
    """Lists of near rows, each row first in its own."""
    if k == 1:
        return np.arange(len(X), dtype=np.int32)[:, None]
    if X.shape[1] > 2 * FEATURES_FOR_NEIGHBORS:
        from sklearn.decomposition import PCA

        n_components = min(FEATURES_FOR_NEIGHBORS, *X.shape)
        X = PCA(n_components, svd_solver="randomized", random_state=0).fit_transform(X)
    return neighbor_graph(X, k)


def hold_out(
    model: AbstractVAE, n_rows: int, labels: np.ndarray | None, key: PRNGKeyArray
) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn from, and rows to choose the best snapshot by.

    Their numbers depend on that of the rows alone, so that seeds can be trained together. Rows of
    one of the ``labels`` are held out together: a copy to learn from would tell a model what it is
    judged by. A label with more rows than are held out counts as so many single rows.
    """
    n_held_out = min(round(model.validation_fraction * n_rows), LARGEST_HOLD_OUT, n_rows - 2)
    if labels is None or n_held_out <= 0:
        return np.arange(n_rows), np.empty(0, dtype=int)
    shuffled = named_generator(key, "held out").permutation(n_rows)
    is_large = np.bincount(labels)[labels] > n_held_out
    labels = np.where(is_large, n_rows + np.arange(n_rows), labels)[shuffled]
    is_held_out = fill_up(labels, n_held_out)
    # Where labels do not add up to the number, some rows are scored twice and some are not used.
    learned = shuffled[~is_held_out][: n_rows - n_held_out]
    return np.sort(learned), np.sort(np.resize(shuffled[is_held_out], n_held_out))


def fill_up(labels: np.ndarray, n_wanted: int) -> np.ndarray:
    """Which rows are taken if labels are taken whole, in their order, as long as they fit."""
    _, first, labels, counts = np.unique(
        labels, return_index=True, return_inverse=True, return_counts=True
    )
    is_taken, n_left = np.zeros(len(counts), dtype=bool), n_wanted
    for label in np.argsort(first):
        if counts[label] <= n_left:
            is_taken[label], n_left = True, n_left - counts[label]
        if not n_left:
            break
    return is_taken[labels]


def as_history(history: dict[str, np.ndarray], plan: Plan, model: AbstractVAE) -> dict:
    """Means over the chunks of training, in the units of X."""
    log_unit = model._log_unit()
    likelihood, kl = history["log_likelihood"].astype(np.float64) - log_unit, history["kl"]
    found = {
        "step": plan.steps_per_chunk * (1 + np.arange(len(kl))),
        "elbo": likelihood - kl,
        "log_likelihood": likelihood,
        "kl": kl,
    }
    if "held_out" in history:
        found["held_out_elbo"] = history["held_out"].astype(np.float64) - log_unit
    return {name: values.tolist() for name, values in found.items()}


def check_finite(history: dict[str, list]) -> None:
    """Refuse a training that has broken down."""
    if not np.isfinite(history["elbo"][-1]):
        first = int(np.argmin(np.isfinite(history["elbo"])))
        raise TrainingError(
            f"The training broke down before step {history['step'][first]}:"
            " `learning_rate` must be smaller, or `min_std` larger."
        )


@contextmanager
def progress_bar(
    plan: Plan, *, visible: bool
) -> Iterator[Callable[[int, dict[str, np.ndarray]], None]]:
    """What `train` should report to: a bar on the terminal, or nothing."""
    with training_bar(plan.n_chunks, visible=visible) as show:

        def report(chunk: int, scores: dict[str, np.ndarray]) -> None:
            if show:
                elbo = np.mean(scores["log_likelihood"] - scores["kl"])
                show(chunk, "training", f"bound {elbo:.2f}")

        yield report
