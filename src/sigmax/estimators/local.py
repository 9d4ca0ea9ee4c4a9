"""Kernel regression in a learned metric, with a neural prior updated in closed form."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, final

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PRNGKeyArray
from numpy.typing import NDArray

from sigmax.checks import check_count
from sigmax.distributions import Mixture, Predictive
from sigmax.estimators.base import uncertainty_parts
from sigmax.estimators.blocks import stack_members
from sigmax.estimators.extrapolation import fit_edges
from sigmax.estimators.gates import create_gate
from sigmax.estimators.joint_fit import FitInputs
from sigmax.estimators.kept_rows import KeptRows, Memory
from sigmax.estimators.local_finish import finish_few_rows, finish_members, grow_beside
from sigmax.estimators.local_networks import create_network
from sigmax.estimators.local_predictor import LocalPredictor, as_mixture
from sigmax.estimators.local_recipe import LOCAL_DEFAULT, LOCAL_PRESETS, LocalRecipe
from sigmax.estimators.member_forests import GrownForests, MemberForests
from sigmax.estimators.members import AbstractNetworkRegressor, Moments
from sigmax.estimators.recalibration import (
    held_out_moments,
)
from sigmax.estimators.remembering import count_centers, predictor_of, remember, rim, widened
from sigmax.estimators.saving import named_leaves, restore
from sigmax.estimators.variance_base import mean_gates
from sigmax.inputs import Inputs
from sigmax.networks import Edges, LocalNetwork, LocalPosterior
from sigmax.random import named_generator
from sigmax.settings import store
from sigmax.tables import Table
from sigmax.training import Fold, Stage, TrainingData, held_out_density

__all__ = ["LocalRegressor"]


@final
class LocalRegressor(AbstractNetworkRegressor):
    """Kernel regression in a learned metric, with a neural prior updated in closed form.

    Networks give a normal-inverse-Gamma prior at every x. Training rows that are near, in a learned
    embedding and in input space, update it in closed form, each weighted by a kernel: the paper's
    local likelihood, with a metric that is learned. All networks are trained on the leave-one-out
    likelihood of the training rows. Where no row is near, the prediction is the prior, which tends
    to the mean and the variance of y. Several members are trained at once; the prediction is their
    mixture, with a forest beside every network where held-out rows are likelier by it.

    `recipe` shows the settings in force. The fitted model keeps the training rows; of more than
    524,288, the networks learn from all, in random shards, and one of at most 65,536 is kept.
    A memory-mapped array is then never read as a whole.

    Parameters
    ----------
    preset : None or "fast"
        None is the best we have, "fast" a cheaper one. Every setting left at None comes from it.
    n_members : int, default 5 (2 in "fast")
        Networks trained at once, of which the prediction is the equal mixture; ten with fewer than
        200 rows unless this is given or 1.
    hidden_sizes : tuple of int, default (128, 128) ((64, 64) in "fast")
        Units of the hidden layers of each network.
    n_components : int, default 3
        Components of each member's mixture of priors; 1 is a single Student-t.
    n_shared_layers : int, default 1
        Hidden layers that embedding, mean and spread have in common.
    embedding_size : int, default 32
        Dimensions of the learned embedding.
    n_waves : int, default 16
        Waves by which the networks see each feature.
    frequency : float, default 0.1
        Spread of the waves' frequencies at the start, in waves per standard deviation.
    input_scale : float, default 1.67
        Length-scale of the kernel in input space, in standard deviations of the features.
    min_concentration : float, default 2.0
        The least α of the prior: half its degrees of freedom.
    prior_rows : float, default 0.3
        How many rows the prior mean counts for, at the start of training.
    prior_variance : float, default 1.0
        Variance far from the data, in units of Var(y).
    n_steps : int, default None
        Training steps, at most; None takes their number from `effort`.
    effort : float, default 25.0 (12.0 in "fast")
        Without `n_steps`: steps per square root of the number of rows, or of 2,304 if there are
        fewer.
    n_primary : int, default 8
        Neighbourhoods of a batch.
    n_neighbors : int, default 64
        Rows of a neighbourhood: the context.
    n_queries : int, default 32
        The nearest of these rows, which are predicted from the context.
    learning_rate : float, default 0.004
        Step size of Adam, which falls to 0 along half a cosine.
    weight_decay : float, default 900.0
        Decoupled weight decay over the number of rows; with fewer than 3,600 rows less than that,
        as smooth functions without noise are learned from few rows, too.
    error_weight : float, default 0.5
        Weight of the squared error beside the likelihood.
    average_weights : bool, default True
        Keep averages of the weights over the last steps as snapshots.
    n_trees : int, default 30
        Trees of each member's forest, at most, which is mixed in where held-out rows say so; 0 for
        none. Of fewer than 200 different rows none is grown.
    n_inducing : int, default 1000
        Inducing points of the extrapolation gate, at most; all rows if there are fewer.
    validation_fraction : float, default 0.1
        Share of rows that each member holds out to choose its best snapshot; 0 keeps the last one.
        Rows of equal X are held out together. Of fewer than 200 rows, 20 rows or 40 % are held out
        unless this is given.
    patience : int, default 15
        Scorings without a better snapshot before training stops; 0 never stops early.
    recalibrate : bool, default True
        One factor on all scales and one bound on the degrees of freedom, from the members' held-out
        rows and their disagreement; with fewer than 200 rows also how far predictions are taken
        back to the mean and the variance of y.
    target_map : "auto", "none" or "normal-scores", default "auto" ("none" in "fast")
        What the networks learn: y itself, or a monotone function of it that makes its distribution
        Normal; "auto" lets held-out rows decide. Of fewer than 200 different rows, y itself is
        learned, whatever is asked.
    support : "auto" or (low, high), default "auto"
        Least and greatest possible value of y, of which either may be None: densities and intervals
        end there. "auto" is (0, None) if no y is negative and many are near 0 or the distribution
        is skewed, and otherwise no bound.
    categorical_features : list of str or int, optional
        Columns of ``X`` to read as categories, whatever their type says. Text, truth values and
        pandas' categories are read so anyway, but for text that is a date throughout.
    numeric_features : list of str or int, optional
        Columns of ``X`` to read as numbers, whatever their type says.
    random_state : int, RandomState, Generator or None
        Seed of all draws.
    verbose : int, default 0
        1 shows a progress bar.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax import LocalRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (200, 1))
    >>> y = 3 * X[:, 0] + rng.normal(0, 1 + X[:, 0])
    >>> model = LocalRegressor(preset="fast", n_steps=100, random_state=0).fit(X, y)
    >>> mean, std = model.predict([[1.0], [9.0]], return_std=True)
    >>> bool(std[0] < std[1])
    True
    >>> rows, weights = model.explain_neighbors([[1.0]], k=3)
    >>> rows.shape, bool(np.all(np.abs(X[rows[0]] - 1.0) < 2))
    ((1, 3), True)
    """

    default_recipe = LOCAL_DEFAULT
    presets = LOCAL_PRESETS
    largest_hold_out = 1024
    largest_at_once = 2**19

    networks_: LocalNetwork
    rows_: KeptRows
    forests_: MemberForests | None
    """Mixed with the networks, if held-out rows asked for that."""
    memory_: Memory
    """What is known of the rows beside their content."""
    predictor_: LocalPredictor
    """The members with the training set in their metrics."""

    def __init__(
        self,
        preset=None,
        *,
        n_members=None,
        hidden_sizes=None,
        n_components=None,
        n_shared_layers=None,
        embedding_size=None,
        n_waves=None,
        frequency=None,
        input_scale=None,
        min_concentration=None,
        prior_rows=None,
        prior_variance=None,
        n_steps=None,
        effort=None,
        n_primary=None,
        n_neighbors=None,
        n_queries=None,
        learning_rate=None,
        weight_decay=None,
        error_weight=None,
        average_weights=None,
        n_trees=None,
        n_inducing=None,
        validation_fraction=None,
        patience=None,
        recalibrate=None,
        target_map=None,
        support=None,
        categorical_features=None,
        numeric_features=None,
        random_state=None,
        verbose=0,
    ):
        store(self, locals())

    def partial_remember(self, X, y, sample_weight=None) -> "LocalRegressor":
        """Let new rows join the memory of every member, without a fit.

        Networks, the learned metric and all units stay; predictions near the new rows rest on them
        from now on, and the gate is shut there. The result is the same whether rows come together
        or one by one. On an error the model is as it was.

        No member has held out rows off the data of the fit. So each new one is predicted from all
        others, and predictions that rest on such rows become as much wider as these errors ask
        for. The factor of the fit and its conformal scores stay. A row with a category that no row
        of the fit has counts as a neighbour of all categories alike; a missing number or time in a
        column without any raises an error.

        Parameters
        ----------
        X : array-like or frame of shape (n, d)
            The columns of the fit.
        y : array-like of shape (n,) or (n, p)
        sample_weight : array-like of shape (n,), optional
            In the units of those of the fit; without, each row counts as one of the fit on average.

        Examples
        --------
        >>> import numpy as np
        >>> from sigmax import LocalRegressor
        >>> X = np.linspace(0, 1, 100)[:, None]
        >>> model = LocalRegressor(preset="fast", n_steps=50, random_state=0).fit(X, X[:, 0])
        >>> before = model.predict_gate([[2.0]])
        >>> after = model.partial_remember([[2.0]], [5.0]).predict_gate([[2.0]])
        >>> bool(before > 0.9), bool(after < 0.1)
        (True, True)
        """
        vars(self).update(remember(self, X, y, sample_weight))
        return self

    def predict_uncertainty(self, X) -> dict[str, NDArray[np.float64]]:
        """Where the uncertainty comes from, as standard deviations: total² = a² + e².

        Returns
        -------
        dict with
            ``total``, the standard deviation of the predictive distribution;
            ``aleatoric``, the noise that more data would not take away;
            ``epistemic``, which they would: each member's uncertainty about its mean, and the
            members' disagreement;
            ``evidence``, the effective number of training rows behind each prediction: the sum of
            their kernel weights;
            ``gate``, 0 on the data and 1 far from them.
        """
        dist, evidence, gate = self._predict(X)
        return uncertainty_parts(dist) | {"evidence": evidence, "gate": gate}

    def predict_gate(self, X) -> NDArray[np.float64]:
        """How far each row is off the data, from 0 to 1."""
        rows = self._completed(X)
        return rows.average(mean_gates(self.networks_, self._encoded(rows.table)))

    def predict_dist_and_gate(self, X) -> tuple[Predictive, NDArray[np.float64]]:
        """What `predict_dist` and `predict_gate` give, from one pass over the rows."""
        dist, _, gate = self._predict(X)
        return dist, gate

    def _predict(self, X) -> tuple[Predictive, NDArray[np.float64], NDArray[np.float64]]:
        """Predictive distribution, effective number of training rows, and gate."""
        rows = self._completed(X)
        inputs = self._encoded(rows.table)
        found = self.predictor_.predict(inputs)
        mixture = rows.mixture(as_mixture(self._with_forests(found, inputs)))
        evidence, gate = (
            rows.average(np.asarray(part).mean(axis=0)) for part in (found.count, found.gate)
        )
        return self._predictive(mixture), evidence, gate

    def explain_neighbors(self, X, k: int = 10) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """The training rows that contribute most to each prediction, and their weights.

        A weight is the row's share in the updated mean, averaged over the members; what is missing
        to 1 is the share of the other rows and of the prior.

        Returns
        -------
        rows : array of shape (n, k)
            Indices of rows given to `fit`, the largest contribution first; the rows of
            `partial_remember` are numbered on.
        weights : array of shape (n, k)
        """
        X = self._inputs(X)
        k = min(check_count("k", k), len(self.rows_.X))
        named, share = None, 0.0
        if self.forests_ is not None:
            named, share = self.forests_.named(np.asarray(X.coordinates)), self.forests_.share
        rows, shares = self.predictor_.contributors(X, k, named, share)
        return self.rows_.indices[rows.astype(int)], shares

    def _create_networks(
        self, X: Inputs, y: np.ndarray, recipe: LocalRecipe, key: PRNGKeyArray
    ) -> tuple[LocalNetwork, np.ndarray]:
        relevance, n_reals = self._relevance(X, y, key), len(self.features_.scaling.mean)
        gate, own_center = create_gate(
            np.asarray(X.coordinates), recipe.n_inducing, key, relevance=relevance
        )
        edges = Edges.none(n_reals, y.shape[1])

        def create(member: int) -> LocalNetwork:
            rng = named_generator(key, f"member {member}")
            return create_network(rng, X.input_shape, y.shape[1], gate, edges, recipe)

        return stack_members([create(member) for member in range(recipe.n_members)]), own_center

    def _stages(self, recipe: LocalRecipe) -> tuple[Stage, ...]:
        return recipe.stages()

    def _beside_training(self, folds: Fold, inputs: FitInputs) -> Callable[[], GrownForests] | None:
        return grow_beside(folds, inputs)

    def _finish(
        self,
        networks: LocalNetwork,
        folds: Fold,
        data: TrainingData,
        inputs: FitInputs,
        beside: GrownForests | None,
    ) -> Moments | None:
        self.forests_, recipe = None, inputs.recipe
        if inputs.has_few_rows or not recipe.validation_fraction:
            return super()._finish(networks, folds, data, inputs, beside)
        stage = self._stages(recipe)[-1]
        found = finish_members(networks, folds, data, inputs, stage, beside)
        self.networks_, self.forests_, moments = found
        return moments

    def _recalibrated(
        self, networks: LocalNetwork, folds: Fold, data: TrainingData, inputs: FitInputs
    ) -> LocalNetwork:
        return finish_few_rows(networks, folds, data, inputs)

    def _held_out_moments(self, folds: Fold, data: TrainingData, inputs: FitInputs) -> Moments:
        return held_out_moments(self.networks_, folds, data, held_out_density)

    def _keep_rows(self, inputs: FitInputs) -> None:
        key = inputs.keys[0]
        coordinates, features = np.asarray(inputs.X.coordinates), self.features_
        relevance = np.asarray(self.networks_.gate.relevance)[0]
        rng = named_generator(key, "edges")
        sizes = len(features.scaling.mean), inputs.y
        edges = fit_edges(coordinates, *sizes, relevance, features.trends(), rng)
        edges = stack_members([edges] * len(self.networks_.factor))
        self.networks_ = eqx.tree_at(lambda n: n.edges, self.networks_, edges)
        unit = float(inputs.weight.mean())
        weight = (inputs.weight / unit).astype(np.float32)
        rows = KeptRows(inputs.X, inputs.y.astype(np.float32), weight, inputs.indices)
        self._set_rows(rows, Memory(len(weight), count_centers(self.networks_), unit))

    def _encoded(self, table: Table) -> Inputs:
        """Rows to predict, taken to the range of the training data.

        Networks that extrapolate swing, each in its own way. `Edges` says what is known beyond;
        the gate sees the rows where they are.
        """
        return super()._encoded(table).within(*self._rim, len(self.features_.scaling.mean))

    def _set_rows(self, rows: KeptRows, memory: Memory | None = None) -> None:
        self.rows_, self.memory_, self._rim = rows, memory or self.memory_, rim(rows)
        self.predictor_ = predictor_of(self.networks_, rows, self.memory_)

    def __deepcopy__(self, memo: dict[int, Any]) -> "LocalRegressor":
        """A copy that shares what was learned, which is replaced at times but never changed."""
        copied = object.__new__(type(self))
        shared = {name: value for name, value in vars(self).items() if name.endswith("_")}
        settings = {name: value for name, value in vars(self).items() if name not in shared}
        vars(copied).update(copy.deepcopy(settings, memo) | shared)
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or a pickle needs: the predictor is made again."""
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "predictor_"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if hasattr(self, "rows_"):
            self._set_rows(self.rows_)

    def _mixture(self, X: Inputs) -> Mixture:
        return as_mixture(self._with_forests(self.predictor_.predict(X), X))

    def _with_forests(self, found: LocalPosterior, X: Inputs) -> LocalPosterior:
        """The members' predictions, with forests if there are any, and what later rows say."""
        if self.forests_ is not None:
            rows = np.asarray(X.coordinates), self.rows_.y, self.networks_.prior_variance
            edges = jax.tree.map(lambda leaf: leaf[0], self.networks_.edges)
            found = self.forests_.beside(found, *rows, edges, X.beyond)
        return widened(found, self.memory_.factor)

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        facts, arrays = super()._state()
        arrays |= {} if self.forests_ is None else self.forests_.state()
        facts |= {"n_centers": self.networks_.gate.is_used.shape[1]} | self.memory_.facts()
        return facts, arrays | named_leaves("rows", self.rows_)

    def _saved_recipe(self, facts: dict[str, Any]) -> LocalRecipe:
        recipe = super()._saved_recipe(facts)
        return replace(recipe, n_inducing=int(facts.get("n_centers", recipe.n_inducing)))

    def _set_state(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        super()._set_state(facts, arrays)
        n, p = len(arrays["rows.weight"]), len(self.units_.scaling.mean)
        n_members, n_features = (
            len(self.networks_.factor),
            self.networks_.gate.inducing_points.shape[-1],
        )
        self.forests_ = MemberForests.from_state(arrays, n_members, n, n_features)
        numbers = np.zeros((1, p), np.float32), np.zeros(1, np.float32), np.zeros(1, np.int64)
        one = KeptRows(self.features_.blank(1), *numbers)
        like = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (n, *leaf.shape[1:])), one)
        rows = restore(like, "rows", arrays)
        if not (rows.weight >= 0).all():
            raise ValueError("weights of training rows must be at least 0")
        n_centers = count_centers(self.networks_)
        self._set_rows(rows, Memory.from_facts(facts, self.n_rows_, n_centers))
