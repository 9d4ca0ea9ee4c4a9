"""What all networks share as estimators: settings, fit, prediction, saving."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import jax
import numpy as np
from jaxtyping import PRNGKeyArray
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from sigmax.checks import check_choice
from sigmax.compilation import on_device
from sigmax.distributions import Mixture, Predictive
from sigmax.errors import InvalidArgumentError
from sigmax.estimators.base import AbstractRegressor
from sigmax.estimators.extrapolation import column_relevance
from sigmax.estimators.held_out_scores import HeldOutScores
from sigmax.estimators.joint_fit import FitInputs, fit_together
from sigmax.estimators.recipe import DEFAULT, PRESETS
from sigmax.estimators.saving import named_leaves, restore
from sigmax.estimators.stream_fit import ArrayStream, fit_stream
from sigmax.features import Features
from sigmax.inputs import Inputs
from sigmax.random import named_generator
from sigmax.tables import Table
from sigmax.targets import TargetUnits
from sigmax.training import Fold, Stage, TrainingData

__all__ = ["AbstractNetworkRegressor", "Moments"]

Moments = tuple[np.ndarray, np.ndarray]
"""Means and variances."""


class AbstractNetworkRegressor(AbstractRegressor):
    """Members of one kind of network, trained at once by the engine, mixed in prediction.

    A setting of None, the default of most, is taken from the preset. A subclass gives the
    networks to start from, the stages to train them by, what follows, and their densities.
    """

    default_recipe = DEFAULT
    presets = PRESETS
    largest_hold_out: ClassVar[int] = 4096
    """More held-out rows than this say nothing new about which snapshot is best."""
    largest_at_once: ClassVar[int | None] = None
    """More rows than this are learned from in shards; None if that is not possible."""

    preset: str | None
    categorical_features: Any
    numeric_features: Any
    random_state: Any
    verbose: int

    networks_: Any
    units_: TargetUnits
    """Of y, with its map if there is one."""
    n_rows_: int
    """Rows of the fit that the model was prepared for, and keeps if it keeps rows."""
    n_learned_: int
    """Rows that were learned from: more, where they came in shards."""
    held_out_: HeldOutScores
    """What conformal intervals follow from."""

    def recipe(self, n_rows: int | None = None) -> dict[str, Any]:
        """All settings in force: those of the preset, with the given ones in their place.

        Parameters
        ----------
        n_rows : int, optional
            Some settings depend on the number of rows. By default it is that of the fitted rows,
            and before `fit` many.
        """
        if n_rows is None:
            n_rows = getattr(self, "n_rows_", None)
        recipe, settings = self._recipe(n_rows), super().recipe()
        return {name: getattr(recipe, name, value) for name, value in settings.items()}

    def _recipe(self, n_rows: int | None = None) -> Any:
        """The recipe that `recipe` shows."""
        recipe = self.default_recipe
        if self.preset is not None:
            recipe = self.presets[check_choice("preset", self.preset, self.presets)]
        if n_rows is not None:
            recipe = recipe.for_rows(n_rows)
        recipe = recipe.override(self.get_params(deep=False))
        return recipe if n_rows is None else recipe.fit_to(n_rows)

    @abstractmethod
    def _create_networks(
        self, X: Inputs, y: np.ndarray, recipe: Any, key: PRNGKeyArray
    ) -> tuple[Any, np.ndarray]:
        """Untrained members along a first axis, and the inducing point that each row is.

        ``y`` (rows, outputs) are the targets in standardised units.
        """

    def _relevance(self, X: Inputs, y: np.ndarray, key: PRNGKeyArray) -> np.ndarray:
        """Relevance of every coordinate to the gate; times may go on."""
        rng = named_generator(key, "relevance")
        found = column_relevance(np.asarray(X.coordinates), y, self.features_.column_of(), rng)
        found[self.features_.trends()] = 0.0
        return found

    @abstractmethod
    def _stages(self, recipe: Any) -> tuple[Stage, ...]:
        """How the members are trained."""

    def _beside_training(self, folds: Fold, inputs: FitInputs) -> Callable[[], Any] | None:
        """Work for the host that waits for nothing, and touches no device, while members train.

        ``folds`` are arrays of NumPy. What it returns has a member axis, and goes to `_finish`.
        """
        return None

    def _finish(
        self, networks: Any, folds: Fold, data: TrainingData, inputs: FitInputs, beside: Any
    ) -> Moments | None:
        """Keep the trained members, with whatever their held-out rows still decide.

        ``beside`` is what was done beside the training. Returns mean and variance of the rows that
        each member holds out, None if there are none.
        """
        networks = self._recalibrated(networks, folds, data, inputs)
        self.networks_ = jax.tree.map(np.asarray, networks)
        if not inputs.recipe.validation_fraction:
            return None
        return self._held_out_moments(folds, data, inputs)

    def _recalibrated(
        self, networks: Any, folds: Fold, data: TrainingData, inputs: FitInputs
    ) -> Any:
        """The trained members with whatever their held-out rows, if any, still decide."""
        return networks

    def _keep_rows(self, inputs: FitInputs) -> None:
        """Keep what prediction needs of the training rows; the networks are trained."""

    @abstractmethod
    def _held_out_moments(self, folds: Fold, data: TrainingData, inputs: FitInputs) -> Moments:
        """Mean and variance of the rows that each trained member holds out.

        Of shape (members, held out, outputs), in standardised units; anything for padding.
        """

    def _score_held_out(
        self, moments: Moments | None, folds: Fold, inputs: FitInputs
    ) -> HeldOutScores:
        """What rows that the trained members hold out say about the width of intervals."""
        if moments is None:
            return HeldOutScores.empty(len(folds.group), inputs.y.shape[1])
        mean, variance = (np.asarray(part, np.float64) for part in moments)
        return HeldOutScores.create(mean, variance, inputs.y, inputs.weight, folds)

    @abstractmethod
    def _mixture(self, X: Inputs) -> Mixture:
        """The members' densities at some rows: leaves (components, rows, outputs)."""

    def fit(self, X, y, sample_weight=None) -> "AbstractNetworkRegressor":
        """Learn from rows ``X`` (n, d) and targets ``y`` (n,) or (n, p).

        Parameters
        ----------
        X : array-like or frame of shape (n, d)
            Numbers, categories, truth values, times and dates, with gaps: an array, or a frame of
            pandas, polars or another library that narwhals reads.
        y : array-like of shape (n,) or (n, p)
            One target, or p targets with their own variances.
        sample_weight : array-like of shape (n,), optional
            How much each row counts; a row of weight 0 is as good as absent.
        """
        n_rows = X.shape[0] if hasattr(X, "shape") and len(X.shape) else 0
        if self.largest_at_once is not None and n_rows > self.largest_at_once:
            fit_stream(self, ArrayStream(X, y, sample_weight))
        else:
            fit_together([self], [(X, y, sample_weight)])
        return self

    def predict_dist(self, X) -> Predictive:
        """The equal mixture of the members' densities, in the units of ``y``."""
        return self._predictive(self._completed_mixture(X))

    def _conformal_interval(self, X, coverage: float) -> NDArray[np.float64]:
        check_is_fitted(self)
        if not len(self.held_out_):
            raise InvalidArgumentError(
                "`method` can be 'conformal' only where members hold rows out, with a"
                " `validation_fraction` above 0."
            )
        n_members = self.held_out_.members.shape[1]
        mean, variance = member_moments(self._completed_mixture(X), n_members)
        bounds = self.held_out_.interval(mean, variance, coverage)
        bounds = self.units_.restore(bounds.swapaxes(1, 2)).swapaxes(1, 2)
        bounds = self.units_.interval_ends(self.units_.within_support(bounds))
        return bounds[:, 0] if self.is_single_output_ else bounds

    def _completed_mixture(self, X) -> Mixture:
        """The members' densities, as mixtures over the completions of every row."""
        rows = self._completed(X)
        return rows.mixture(self._mixture(self._encoded(rows.table)))

    def _inputs(self, X) -> Inputs:
        """Rows to predict as networks take them, each by its first completion."""
        rows = self._completed(X)
        return self._encoded(rows.table[: rows.n_rows])

    def _encoded(self, table: Table) -> Inputs:
        """Complete rows as networks take them."""
        return self.features_(table)

    def _predictive(self, mixture: Mixture) -> Predictive:
        """A mixture in standardised units, in the units of y."""
        dist = self.units_.distribution(mixture)
        if self.is_single_output_:
            dist = jax.tree.map(lambda leaf: leaf[..., 0], dist)
        return Predictive(dist, self.units_.interval_ends if self.units_.has_repeated else None)

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        n_members = len(jax.tree.leaves(self.networks_)[0])
        facts = {"is_single_output": bool(self.is_single_output_)}
        facts |= {"n_rows": self.n_rows_, "n_members": n_members, "n_learned": self.n_learned_}
        facts |= self.features_.facts()
        arrays = named_leaves("networks", self.networks_)
        arrays |= {f"history.{name}": scores for name, scores in self.history_.items()}
        arrays |= self.held_out_.state()
        return facts, arrays | self.features_.state() | self.units_.state()

    def _set_state(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.is_single_output_ = bool(facts["is_single_output"])
        self.n_rows_, n_members = (int(facts[name]) for name in ("n_rows", "n_members"))
        self.n_learned_ = int(facts.get("n_learned", self.n_rows_))
        n_outputs = 1 if self.is_single_output_ else len(arrays["y.mean"])
        self.features_ = Features.from_state(facts, arrays, n_outputs)
        self.units_ = TargetUnits.from_state(arrays, n_outputs)
        self.held_out_ = HeldOutScores.from_state(arrays, n_members, n_outputs)
        self.history_ = {
            name.removeprefix("history."): scores
            for name, scores in arrays.items()
            if name.startswith("history.")
        }
        rows, key = self.features_.blank(2), jax.random.key(0)
        recipe, y = self._saved_recipe(facts), np.zeros((2, n_outputs), np.float32)
        check_stored_sizes(recipe, self.n_features_in_, rows, arrays)
        skeleton, _ = self._create_networks(rows, y, recipe, key)
        networks = restore(skeleton, "networks", arrays)
        if not np.all(getattr(networks, "factor", 1.0) > 0):
            raise ValueError("the factors on scales must be above 0")
        self.networks_ = jax.tree.map(on_device, networks)

    def _saved_recipe(self, facts: dict[str, Any]) -> Any:
        """The recipe that gives networks of the shapes that were saved."""
        return replace(self._recipe(self.n_rows_), n_members=int(facts["n_members"]))


def check_stored_sizes(
    recipe: Any, n_columns: int, rows: Inputs, arrays: dict[str, np.ndarray]
) -> None:
    """Refuse settings whose networks have more numbers than the file, before any is allocated."""
    width = [n_columns, *recipe.hidden_sizes, getattr(recipe, "embedding_size", 1)]
    sizes = [a * b for a, b in pairwise(width)]
    sizes.append(width[-2] * getattr(recipe, "n_components", 1))
    sizes.append(np.shape(rows.numbers)[1] * getattr(recipe, "n_waves", 1))
    if getattr(recipe, "extrapolate", hasattr(recipe, "n_inducing")):
        sizes.append(np.shape(rows.coordinates)[1] * recipe.n_inducing)
    n_stored = sum(array.size for array in arrays.values())
    if recipe.n_members * max(sizes) > n_stored:
        raise ValueError(f"the settings ask for more than the {n_stored:,} numbers that are stored")


def member_moments(mixture: Mixture, n_members: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of every member, whose draws, if there are several, follow each other."""
    # In blocks of rows, as a prediction has them, which come first.
    parts = Predictive(jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), mixture.components))
    shape = *parts.shape[:1], n_members, -1, *parts.shape[2:]
    means, variances = (part.reshape(shape) for part in (parts.mean, parts.variance))
    if mixture.log_weight is None:
        weight = np.full(means.shape, 1 / means.shape[2])
    else:
        weight = n_members * np.exp(mixture.log_weight).swapaxes(0, 1).reshape(shape)
    mean = np.sum(weight * means, axis=2, keepdims=True)
    variance = np.sum(weight * (variances + (means - mean) ** 2), axis=2)
    return mean[:, :, 0].swapaxes(0, 1), variance.swapaxes(0, 1)
