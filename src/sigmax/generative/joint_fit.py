"""Several models of one kind trained at once; a single fit is the case of one."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from sigmax.errors import InvalidArgumentError, TrainingError
from sigmax.estimators.atomic_fit import atomic_fit
from sigmax.estimators.blocks import stack_members
from sigmax.estimators.folds import duplicate_groups
from sigmax.estimators.progress import progress_bar
from sigmax.generative.autoencoder import Autoencoder
from sigmax.generative.data import GenerativeData, ModelRows, split_rows
from sigmax.generative.refresh import move_gates, refresh_all_moments
from sigmax.generative.schedule import VAEStage
from sigmax.random import make_key, named_generator, named_key
from sigmax.training import Progress, name_keys, train_stage

__all__ = ["fit_together"]

LAST_MOVES = 3
"""Moves of the gate after the last step."""

Model = Any  # an `AbstractVAE`, whose `fit` is the function below


def fit_together(models: Sequence[Model], sets: Sequence[Any]) -> None:
    """Fit each model to its own ``X``, all in one training.

    The models share class and settings, up to the seed, and the sets one shape; sets that are one
    and the same object are held once. Every model ends as if it had been fitted alone, up to
    rounding; one compilation serves them all, and they are spread over all devices. A training that
    fails or is interrupted leaves all models as they were.
    """
    with atomic_fit(models) as copies:
        train_models(copies, sets)


def train_models(models: Sequence[Model], sets: Sequence[Any]) -> None:
    """Fit unfitted models, which change on the way."""
    stages = [model._stages() for model in models]
    if len(models) != len(sets) or not models or not is_alike(models):
        raise InvalidArgumentError(
            "Models that are fitted together need the same class and settings, and one set each."
        )
    own = {id(X): number for number, X in reversed(list(enumerate(sets)))}
    firsts = sorted(own.values())
    prepared = [models[i]._networks_rows(sets[i], reset=True) for i in firsts]
    if any(rows.shape != prepared[0].shape for rows in prepared):
        raise InvalidArgumentError("Models that are fitted together need data of the same shape.")
    share, n_rows = models[0].validation_fraction, len(prepared[0])
    labels = [duplicate_groups(rows) if share else None for rows in prepared]
    data_sets = [firsts.index(own[id(X)]) for X in sets]
    starts, splits, keys = [], [], []
    for model, number in zip(models, data_sets, strict=True):
        if model is not models[firsts[number]]:
            copy_units(models[firsts[number]], model)
        key = make_key(model.random_state)
        splits.append(split_rows(n_rows, labels[number], share, key))
        starts.append(model._create_model(prepared[number], named_generator(key, "networks")))
        keys.append(named_key(key, "training"))
    folds, k = ModelRows.create(data_sets, splits), models[0]._n_neighbors(n_rows)
    plan = [replace(stage, keep_best=folds.held_out.shape[1] > 0) for stage in stages[0]]
    with progress_bar(plan, visible=models[0].verbose > 0) as report:
        data = GenerativeData.create(prepared, k)
        trained, histories = train(
            stack_members(starts), jnp.stack(keys), folds, data, plan, report
        )
    trained = jax.tree.map(np.asarray, trained)  # as NumPy, where a slice compiles nothing
    for i, (model, history) in enumerate(zip(models, histories, strict=True)):
        model.model_ = jax.tree.map(lambda leaf, i=i: jnp.asarray(leaf[i]), trained)
        model.history_ = as_history(history, plan[0], model)
        check_finite(model.history_)


def train(
    models: Autoencoder,
    keys: Key[Array, " members"],
    folds: ModelRows,
    data: GenerativeData,
    stages: Sequence[VAEStage],
    report: Callable[[Progress], None] | None,
) -> tuple[Autoencoder, list[dict[str, np.ndarray]]]:
    """All models through all stages: the finished models, and the history of each."""
    *warm_up, last = stages
    states, parts = None, []
    for stage in warm_up:  # which is not judged: the last stage goes on from its last step
        members, found = train_stage(models, keys, folds, data, stage, report)
        models, states = members.network, members.states
        parts.append(found)
    members, found = train_stage(models, keys, folds, data, last, report, states=states)
    histories = [
        {name: np.concatenate([part[name][:, 0] for part in own]) for name in own[0]}
        for own in zip(*parts, found, strict=True)
    ]
    finish = name_keys(keys, "finish"), folds, data, last.n_batch(folds)
    models = refresh_all_moments(members.best, *finish)
    for move in range(LAST_MOVES if last.step == "split" else 0):
        models = move_gates(models, name_keys(keys, f"last gate {move}"), folds, data)
    return models, histories


def is_alike(models: Sequence[Model]) -> bool:
    def settings(model):
        params = model.get_params(deep=False)
        return type(model), {k: str(v) for k, v in params.items() if k != "random_state"}

    return all(settings(model) == settings(models[0]) for model in models)


def copy_units(source: Model, target: Model) -> None:
    """What was learned of the rows of a set, for a second model of the same set."""
    target.n_features_in_, target.x_scaling_ = source.n_features_in_, source.x_scaling_
    if hasattr(source, "feature_names_in_"):
        target.feature_names_in_ = source.feature_names_in_
    elif hasattr(target, "feature_names_in_"):
        del target.feature_names_in_


def as_history(history: dict[str, np.ndarray], stage: VAEStage, model: Model) -> dict:
    """Means over the chunks of training, in the units of X."""
    log_unit = model._log_unit()
    likelihood, kl = history["log_likelihood"].astype(np.float64) - log_unit, history["kl"]
    found = {
        "step": stage.steps_per_chunk * (1 + np.arange(len(kl))),
        "elbo": likelihood - kl,
        "log_likelihood": likelihood,
        "kl": kl,
    }
    if stage.keep_best:
        found["held_out_elbo"] = history["score"].astype(np.float64) - log_unit
    return {name: values.tolist() for name, values in found.items()}


def check_finite(history: dict[str, list]) -> None:
    """Refuse a training that has broken down."""
    if not np.isfinite(history["elbo"][-1]):
        first = int(np.argmin(np.isfinite(history["elbo"])))
        raise TrainingError(
            f"The training broke down before step {history['step'][first]}:"
            " `learning_rate` must be smaller, or `min_std` larger."
        )
