"""Estimators: scikit-learn on the outside, an expert and its fitted value inside."""

import inspect
import reprlib
from collections import UserDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import _safe_indexing, check_consistent_length
from sklearn.utils.validation import _check_sample_weight, _check_y, _num_samples, check_is_fitted

from sigmax.distributions import Predictive
from sigmax.errors import InvalidArgumentError, ModelFileError
from sigmax.experts.base import AbstractExpert
from sigmax.experts.linear import Linear, Marginal
from sigmax.experts.rows import Rows, TrainingRows
from sigmax.experts.stack import Stack, StackFitted
from sigmax.files import HEADER, read_bytes, read_header
from sigmax.metrics import censoring_bounds
from sigmax.model import Model
from sigmax.monitoring import Monitor
from sigmax.random import make_key, named_generator
from sigmax.saving import AbstractSavable
from sigmax.settings import check_choice, check_count, store
from sigmax.tables import Table
from sigmax.tables.reading import ParquetFiles
from sigmax.tables.table import check_names, read_target

R = TypeVar("R", bound="AbstractRegressor")  # beartype knows no Self

NO_SETTINGS = ("preset", "categorical_features", "numeric_features", "random_state", "verbose")
"""Arguments of constructors that do not belong to the method."""

INTERVALS = ("conformal", "distribution")
UNCERTAINTIES = ("total", "aleatoric", "epistemic")

LARGEST_AT_ONCE = 2**19
"""More rows than this are learned from in shards."""


@final
class LatePresets(UserDict[str, Any]):
    """Experts by name, in a dictionary of a module that is imported when they are used."""

    def __init__(self, module: str, name: str):
        self.origin = module, name

    @cached_property
    def data(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        module, name = self.origin
        return getattr(import_module(f"sigmax.experts.{module}"), name)


class AbstractRegressor(RegressorMixin, AbstractSavable):
    """A scikit-learn regressor that predicts a distribution for every row.

    Its arguments are settings of an expert; ``model_`` is what the expert has learned.
    """

    model_type = Model
    setting_type = AbstractExpert
    presets: ClassVar[Mapping[str, AbstractExpert]] = MappingProxyType({})
    """Experts by name, "default" among them."""

    model_: Model
    model_: Model
    preset: Any = None
    categorical_features: Any = None
    numeric_features: Any = None
    random_state: Any = None
    verbose: int = 0

    def expert(self) -> AbstractExpert:
        """Return the expert with all settings in force: those of the preset and the arguments.

        Returns
        -------
        AbstractExpert
            Frozen dataclass of `sigmax.experts`.

        Examples
        --------
        >>> from sigmax import GPRegressor
        >>> GPRegressor(n_restarts=1).expert().n_restarts
        1
        """
        given = self.changed_arguments()
        name = "default" if self.preset is None else self.preset
        if isinstance(self.preset, AbstractExpert):
            name, given = "default", self.preset.changes() | given
        presets = dict(self.presets)
        return presets[check_choice("preset", name, presets)].override(given)

    def changed_arguments(self) -> dict[str, Any]:
        """Arguments of the constructor that differ from their defaults, or in their types."""
        given = {}
        for name, parameter in inspect.signature(type(self)).parameters.items():
            value, default = getattr(self, name), parameter.default
            is_default = type(value) is type(default) and bool(value == default)
            if name not in NO_SETTINGS and not is_default:
                given[name] = value
        return given

    def settings(self) -> dict[str, Any]:
        """Return the values of the constructor's settings, including those of the preset.

        Returns
        -------
        dict
            Value of each setting by name.

        Examples
        --------
        >>> from sigmax import GPRegressor
        >>> GPRegressor(n_restarts=1).settings()["n_restarts"]
        1
        """
        expert = self.expert()
        names = [name for name in self.get_params(deep=False) if name not in NO_SETTINGS]
        return {name: getattr(expert, name) for name in names}

    def set_settings(self: R, **settings: Any) -> R:
        """Set arguments of the constructor, or further fields of the expert.

        Parameters
        ----------
        **settings
            Values by name. Fields of the expert that are not arguments are stored in ``preset``.

        Returns
        -------
        self

        Raises
        ------
        InvalidArgumentError
            If the expert has no such field, or a value does not obey its rule.

        Examples
        --------
        >>> from sigmax import GPRegressor
        >>> GPRegressor().set_settings(n_restarts=1).n_restarts
        1
        """
        arguments = self._get_param_names()
        fields = {name: value for name, value in settings.items() if name not in arguments}
        if fields:
            name = "default" if self.preset is None else self.preset
            expert = name if isinstance(name, AbstractExpert) else self.presets.get(name)
            unknown = sorted(fields.keys() - (expert.declared() if expert else {}))
            if expert is None or unknown:
                known = f"{type(self).__name__} has no setting {', '.join(unknown)}."
                raise InvalidArgumentError(known)
            self.preset = expert.override(fields)
        return self.set_params(**{name: settings[name] for name in settings.keys() - fields})

    @property
    def is_network(self) -> bool:
        """True if several such models can be trained in one call."""
        return "default" in self.presets and self.presets["default"].is_network

    def fit(self: R, X, y, sample_weight=None) -> R:
        """Fit the model to rows ``X`` (n, d) and targets ``y`` (n,) or (n, p).

        Parameters
        ----------
        X : array-like or frame of shape (n, d)
            Numbers, categories, truth values, times and dates, with missing values: an array, or a
            frame of pandas, polars or another library that narwhals reads.
        y : array-like of shape (n,) or (n, p)
            One target, or p targets, each with its own variance.
        sample_weight : array-like of shape (n,), optional
            Weight of each row; a row of weight 0 has no effect. For Gaussian processes it is the
            precision: twice the weight is half the noise variance.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from sigmax import LinearRegressor
        >>> X = np.linspace(0, 1, 20)[:, None]
        >>> LinearRegressor().fit(X, 2 * X[:, 0]).predict([[0.5]]).round(2)
        array([1.])
        """
        fit_together([self], [(X, y, sample_weight)])
        return self

    def read_training(self, X, y, sample_weight=None, *, merges: bool = True) -> TrainingRows:
        """Checked rows; the estimator gets the names of the columns."""
        kinds = {"categorical": self.categorical_features, "numeric": self.numeric_features}
        return TrainingRows.read(self, X, y, sample_weight, merges=merges, **kinds)

    def read(self, X) -> Table:
        """Rows to predict, checked against the columns of the fit."""
        check_is_fitted(self)
        return Table.read(self, X, self.model_.features.schema)

    @property
    def fitted(self) -> Any:
        """Fitted value of the expert, of the class that belongs to the estimator."""
        return self.model_.fitted

    def predict_dist(self, X) -> Predictive:
        """Predict the distribution of every row and output, in the units of ``y``.

        Parameters
        ----------
        X : array-like or frame of shape (n, d)

        Returns
        -------
        Predictive
            With ``mean``, ``std``, ``log_prob``, ``cdf``, ``sf``, ``quantile``, ``interval``,
            ``crps`` and ``sample``.

        Examples
        --------
        >>> import numpy as np
        >>> from sigmax import LinearRegressor
        >>> X = np.linspace(0, 1, 20)[:, None]
        >>> dist = LinearRegressor().fit(X, 2 * X[:, 0]).predict_dist([[0.5], [1.0]])
        >>> dist.cdf([1.0, 9.0]).round(2)
        array([0.5, 1. ])
        """
        table = self.read(X)
        return self.model_.predict(table)

    def predict(self, X, return_std: bool = False) -> Any:
        """Predict the mean of every row and, on request, the standard deviation.

        Parameters
        ----------
        X : array-like or frame of shape (n, d)
        return_std : bool
            True to return the total predictive standard deviation as well.

        Returns
        -------
        mean, or (mean, std) : arrays of shape (n,) or (n, p)

        Examples
        --------
        >>> import numpy as np
        >>> from sigmax import LinearRegressor
        >>> X = np.linspace(0, 1, 20)[:, None]
        >>> mean, std = LinearRegressor().fit(X, 2 * X[:, 0]).predict([[0.5]], return_std=True)
        >>> mean.round(2), bool(std[0] < 0.01)
        (array([1.]), True)
        """
        dist = self.predict_dist(X)
        return (dist.mean, dist.std) if return_std else dist.mean

    def predict_interval(
        self, X, coverage: float = 0.9, method: str = "distribution"
    ) -> NDArray[np.float64]:
        """Predict an interval for every row and output.

        Parameters
        ----------
        X : array-like or frame of shape (n, d)
        coverage : float
            Nominal coverage: the probability that a new y is inside its interval.
        method : "conformal" or "distribution"
            "distribution" is the central interval of the predictive distribution. "conformal" takes
            the mean and the relative spread from the distribution, and the width from the errors of
            held-out training rows. Conformal intervals are infinite if there are too few such rows,
            fewer than nine for a coverage of 0.9.

        Returns
        -------
        array of shape (n, 2), or (n, p, 2) for p outputs
            The last axis has the lower and the upper end.

        Examples
        --------
        >>> import numpy as np
        >>> from sigmax import LinearRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(size=(200, 1))
        >>> model = LinearRegressor().fit(X, X[:, 0] + rng.normal(size=200))
        >>> model.predict_interval([[0.5]]).round(0)
        array([[-1.,  2.]])
        """
        if check_choice("method", method, INTERVALS) == "conformal":
            table = self.read(X)
            return self.model_.conformal_interval(table, coverage)
        return self.predict_dist(X).interval(coverage)

    def predict_quantiles(self, X, alpha=(0.05, 0.5, 0.95)) -> NDArray[np.float64]:
        """Predict quantiles of every row and output.

        Parameters
        ----------
        X : array-like or frame of shape (n, d)
        alpha : float or sequence of float
            Levels between 0 and 1.

        Returns
        -------
        array of shape (n, levels), or (n, p, levels) for p outputs

        Examples
        --------
        >>> import numpy as np
        >>> from sigmax import LinearRegressor
        >>> X = np.linspace(0, 1, 20)[:, None]
        >>> LinearRegressor().fit(X, 2 * X[:, 0]).predict_quantiles([[0.5]], alpha=[0.1, 0.9]).shape
        (1, 2)
        """
        return self.predict_dist(X).quantile(np.atleast_1d(np.asarray(alpha, dtype=float)))

    def predict_uncertainty(self, X) -> dict[str, NDArray[np.float64]]:
        """Predict the parts of the uncertainty as standard deviations.

        The parts satisfy total² = aleatoric² + epistemic².

        Parameters
        ----------
        X : array-like or frame of shape (n, d)

        Returns
        -------
        dict
            ``total``: standard deviation of the predictive distribution.
            ``aleatoric``: noise, which more rows would not reduce.
            ``epistemic``: lack of data, which more rows would reduce. It consists of the
            disagreement of the ensemble members, and of the uncertainty of each member about its
            mean if it has one.
            ``gate``: 0 near the training rows, 1 out of distribution (estimators with a gate).
            ``evidence``: effective number of training rows behind a prediction (`LocalRegressor`).

        Examples
        --------
        >>> import numpy as np
        >>> from sigmax import LinearRegressor
        >>> X = np.linspace(0, 1, 20)[:, None]
        >>> sorted(LinearRegressor().fit(X, 2 * X[:, 0]).predict_uncertainty(X))
        ['aleatoric', 'epistemic', 'total']
        """
        table = self.read(X)
        dist, others = self.model_.describe(table)
        return {
            "total": dist.std,
            "aleatoric": np.sqrt(dist.aleatoric_variance),
            "epistemic": np.sqrt(dist.epistemic_variance),
            **others,
        }

    def explain_uncertainty(self, X, part: str = "total", columns=None) -> pd.DataFrame:
        """Compute how much each prediction's standard deviation would change without a column.

        The cell of a column is replaced by those of 16 similar training rows, like a missing cell,
        and the prediction is the mixture over them. A positive number means that the prediction
        would be wider by this number without the cell. A negative number means that the cell makes
        the prediction wider than a usual value would.

        Parameters
        ----------
        X : array or data frame of shape (n, columns)
        part : "total", "aleatoric" or "epistemic"
            Part of the uncertainty, as in `predict_uncertainty`.
        columns : sequence of names, optional
            Columns to explain, all by default. Each column takes a prediction of 16 rows per row.

        Returns
        -------
        data frame of shape (n, columns)
            In the units of y, with ``columns`` or those of ``X``. With p outputs, (n, p times
            columns) and names (output, column).

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, size=(200, 2))
        >>> model = SigmaxRegressor("quick", random_state=0)
        >>> model = model.fit(X, 5 * X[:, 0] + 0.1 * rng.normal(size=200))
        >>> change = model.explain_uncertainty(X[:20]).mean()
        >>> bool(change["x0"] > 1 > 0.1 > abs(change["x1"]))
        True
        """
        table, part = self.read(X), check_choice("part", part, UNCERTAINTIES)
        name = "variance" if part == "total" else f"{part}_variance"
        position = {name: i for i, name in enumerate(self.model_.features.column_names)}
        names = list(getattr(self, "feature_names_in_", table.schema.names))
        if columns is not None:
            if isinstance(columns, str):
                raise InvalidArgumentError(f"`columns` must be a list of names, got {columns!r}.")
            if unknown := [name for name in columns if name not in position]:
                raise InvalidArgumentError(f"`columns` must be columns of X, got {unknown[0]!r}.")
            names = list(columns)
        known = np.sqrt(getattr(self.model_.predict(table), name))
        changes = [
            np.sqrt(getattr(self.model_.predict(table, position[column]), name)) - known
            for column in names
        ]
        stacked = np.stack(changes, axis=-1) if names else np.empty((*known.shape, 0))
        if self.model_.is_single_output:
            return pd.DataFrame(stacked, columns=names)
        frames = [pd.DataFrame(own, columns=names) for own in stacked.swapaxes(0, 1)]
        return pd.concat(frames, axis=1, keys=range(len(frames)))

    def predict_gate(self, X) -> NDArray[np.float64] | None:
        """Predict the gate of every row: 0 near the training rows, 1 out of distribution.

        Parameters
        ----------
        X : array-like or frame of shape (n, d)

        Returns
        -------
        array of shape (n,), or None if the estimator has no gate

        Examples
        --------
        >>> import numpy as np
        >>> from sigmax import SigmaxRegressor
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> model = SigmaxRegressor("quick", random_state=0).fit(X, X[:, 0])
        >>> model.predict_gate([[0.5], [9.0]]).round(1)
        array([0., 1.])
        """
        table = self.read(X)
        return self.model_.gate(table)

    def predict_dist_and_gate(self, X) -> tuple[Predictive, NDArray[np.float64] | None]:
        """`predict_dist` and `predict_gate` from one pass over the rows."""
        table = self.read(X)
        dist, others = self.model_.describe(table)
        return dist, others.get("gate")

    @property
    def largest_at_once(self) -> int | None:
        """Number of rows above which a fit learns from shards; None if it never does."""
        return None

    def add_rows(self: R, X, y, sample_weight=None) -> R:
        """Add rows to a fitted model without fitting again.

        Networks, hyper-parameters, weights of experts and units of the target do not change, but
        predictions near the new rows are based on them, and the gate is closed there. This works
        for `LocalRegressor`, and for the linear model, the processes, forests and networks of
        `SigmaxRegressor`; other estimators raise an error. If an error is raised, the model is
        unchanged.

        `LocalRegressor` predicts each new row that is out of distribution from all others, and
        widens predictions near such rows according to these errors. Calibration and conformal
        scores remain those of the fit. A row with an unseen category is equally far from all
        categories; a missing number or time in a column without missing values raises an error.

        Parameters
        ----------
        X : array-like or frame of shape (n, d)
            The columns of the fit.
        y : array-like of shape (n,) or (n, p)
        sample_weight : array-like of shape (n,), optional
            In the units of the weights of the fit. By default, each row has the average weight of a
            row of the fit.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from sigmax import SigmaxRegressor
        >>> X = np.linspace(0, 1, 100)[:, None]
        >>> model = SigmaxRegressor("quick", random_state=0).fit(X, X[:, 0])
        >>> before = model.predict_gate([[9.0]])
        >>> after = model.add_rows([[9.0]], [5.0]).predict_gate([[9.0]])
        >>> bool(before > 0.9), bool(after < 0.1)
        (True, True)
        """
        table = self.read(X)
        y = np.asarray(_check_y(y, multi_output=True, y_numeric=True, estimator=self), np.float64)
        check_consistent_length(table.numbers, y)
        if sample_weight is not None:
            checks = {"dtype": np.float64, "ensure_non_negative": True}
            sample_weight = _check_sample_weight(sample_weight, y, **checks)
        model = self.model_.add_rows(table, y, sample_weight)
        if model is None:
            raise InvalidArgumentError(
                f"{type(self).__name__} stores no training rows that others could be added to: fit"
                " it again with them, or use LocalRegressor or SigmaxRegressor."
            )
        self.model_ = model
        return self

    def explain_neighbors(self, X, k: int = 10) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Find the training rows that contribute most to each prediction.

        Forests and the networks of `LocalRegressor` average over training rows; other methods have
        no such weights and raise an error. A weight is the row's share in the mean. Other rows, and
        experts that do not average over rows, have the rest.

        Parameters
        ----------
        X : array-like or frame of shape (n, d)
        k : int
            Number of training rows for each prediction.

        Returns
        -------
        rows : array of shape (n, k)
            Indices of rows given to `fit`, the largest contribution first; the rows of `add_rows`
            follow them. Fewer columns than ``k`` if no prediction has so many.
        weights : array of shape (n, k)
            0 where fewer rows contribute than to another prediction.

        Examples
        --------
        >>> import numpy as np
        >>> from sigmax import SigmaxRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(size=(50, 1))
        >>> model = SigmaxRegressor(experts=["forest"], random_state=0).fit(X, X[:, 0])
        >>> rows, weights = model.explain_neighbors([[0.5]], k=3)
        >>> bool(np.all(abs(X[rows] - 0.5) < 0.3)), bool(weights.sum() < 1)
        (True, True)
        """
        table, k = self.read(X), check_count("k", k)
        found = self.fitted.explain_neighbors(self.model_.encode(table), k)
        if found is None:
            raise InvalidArgumentError(
                f"{type(self).__name__} has no expert that averages over training rows: use"
                " LocalRegressor, or SigmaxRegressor with a forest or networks."
            )
        return found

    def monitor(self, X=None, y=None, **settings: Any) -> Monitor:
        """Return tests of whether predictions still hold on labelled rows.

        Parameters
        ----------
        X, y : array-like or frame, and array-like, optional
            Labelled rows to begin with; more rows can be added with ``update(X, y)``.
        **settings
            Settings of `Monitor`, such as ``alpha`` and ``coverage``.

        Returns
        -------
        Monitor

        Examples
        --------
        >>> import numpy as np
        >>> from sigmax import LinearRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(400, 1))
        >>> y = X[:, 0] + rng.normal(size=400)
        >>> model = LinearRegressor().fit(X[:200], y[:200])
        >>> model.monitor(X[200:], y[200:]).has_alarm, model.monitor(X[200:], y[200:] + 2).has_alarm
        (False, True)
        """
        found = Monitor(self, **settings)
        return found if X is None else found.update(X, y)

    @property
    def history_(self) -> dict[str, np.ndarray]:
        """Validation scores (validations, members) by the stage of the training."""
        return getattr(self.fitted, "history")  # noqa: B009 (networks alone have one)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


def read_errors(y_error: Any, n_rows: int, is_single_output: bool) -> NDArray[np.float64]:
    """Standard deviations of the known errors of rows, checked."""
    if not is_single_output:
        raise InvalidArgumentError("`y_error` needs a single target: fit one model per output.")
    rule = f"numbers of at least 0, one or as many as the {n_rows:,} rows"
    try:
        error = np.asarray(y_error, np.float64)
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"`y_error` must be {rule}, got {reprlib.repr(y_error)}."
        ) from None
    is_bad = ~(np.isfinite(error) & (error >= 0))
    if error.shape not in ((), (n_rows,)) or is_bad.any():
        found = f"{error[is_bad].flat[0]:g}" if is_bad.any() else f"shape {error.shape}"
        raise InvalidArgumentError(f"`y_error` must be {rule}, got {found}.")
    return np.broadcast_to(error, n_rows).copy()


def read_bounds(y: Any, censoring: Any, error: Any) -> NDArray[np.float64]:
    if error is not None:
        raise InvalidArgumentError("`censoring` and `y_error` exclude each other: choose one.")
    bounds = censoring_bounds(y, censoring)
    if (bounds[:, 0] < bounds[:, 1]).all():
        raise InvalidArgumentError("`censoring` must leave a target observed, got none.")
    return bounds


def fit_together(estimators: Sequence[AbstractRegressor], data: Sequence[tuple]) -> None:
    """Fit each estimator to its own ``(X, y)`` or ``(X, y, sample_weight)`` in one call.

    The estimators have the same class and settings, except for the seed, as for the splits of a
    cross-validation or the repeats of an experiment. Up to rounding, each is the same as if fitted
    alone. All networks are trained at the same time: they are compiled once, and distributed over
    all devices.

    Parameters
    ----------
    estimators : sequence of estimators
        They are fitted in place.
    data : sequence of tuples
        Arguments of `fit` for each estimator.

    Returns
    -------
    None

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax import LinearRegressor
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> models = [LinearRegressor(), LinearRegressor()]
    >>> fit_together(models, [(X, X[:, 0]), (X, -X[:, 0])])
    >>> [round(float(model.predict([[0.5]])[0]), 2) for model in models]
    [0.5, -0.5]
    """
    copies = [estimator.unfitted() for estimator in estimators]
    experts = [copy.expert() for copy in copies]  # raises errors of wrong settings first
    for copy in copies:
        check_count("verbose", copy.verbose, minimum=0)
    rows = [copy.read_training(*given) for copy, given in zip(copies, data, strict=True)]
    if any(expert != experts[0] for expert in experts):
        raise InvalidArgumentError(
            "Models that are fitted together need the same settings and data of the same shape."
        )
    keys = [make_key(copy.random_state) for copy in copies]
    encoded = [Rows.encode(own, experts[0].target(own)) for own in rows]
    fitted = experts[0].fit_together(encoded, keys, verbose=copies[0].verbose)
    for estimator, copy, own, one in zip(estimators, copies, encoded, fitted, strict=True):
        estimator.become(copy, Model.create(own, one))


@final
class CombinedRegressor(AbstractRegressor):
    """Regression with reliable variances: the "Combined" method of Detlefsen et al. (2019).

    The method has four ideas, each with a switch: batches of neighbours with Horvitz-Thompson
    weights (`locality`), separate training steps for mean and variance (`split`), a Student-t
    prediction from an inverse-Gamma variance (`inverse_gamma`), and a variance that tends to that
    of y far from the data (`extrapolate`). `sigmax.experts.combined` has the method in one file.

    Parameters
    ----------
    preset : None, "fast", "paper" or a `sigmax.experts.Combined`
        Other defaults: "fast" is cheaper, "paper" has the settings of the paper. An argument below
        replaces the preset's value if it differs from its own default. All further settings are
        fields of `sigmax.experts.Combined`, as in ``preset=Combined(batch_size=64)``.
    n_members : int
        Number of ensemble members. They are trained together, and the prediction is their mixture
        with equal weights.
    locality, split, inverse_gamma, extrapolate : bool
        The four ideas of the paper: LS, MV, IG and EX.
    hidden_sizes : tuple of int
        Units of the hidden layers of each network.
    n_steps : int
        Total number of training steps, of the mean and of the variance.
    learning_rate : float
        Step size of Adam for the mean.
    validation_fraction : float
        Share of the rows that each ensemble member holds out to choose its best checkpoint, at
        least 20 rows or 40 % of them; 0 holds out none and keeps the last checkpoint. Rows with
        equal X are held out together.
    support, categorical_features, numeric_features, random_state, verbose
        As in `SigmaxRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax import CombinedRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (200, 1))
    >>> y = 3 * X[:, 0] + rng.normal(0, 1 + X[:, 0])
    >>> model = CombinedRegressor("fast", n_steps=300, random_state=0).fit(X, y)
    >>> mean, std = model.predict([[1.0], [9.0]], return_std=True)
    >>> bool(std[0] < std[1])
    True
    """

    presets = LatePresets("combined", "PRESETS")

    def __init__(
        self,
        preset=None,
        *,
        n_members=5,
        locality=True,
        split=True,
        inverse_gamma=True,
        extrapolate=True,
        hidden_sizes=(128, 128),
        n_steps=4000,
        learning_rate=3e-3,
        validation_fraction=0.1,
        support: Any = "auto",
        categorical_features=None,
        numeric_features=None,
        random_state=None,
        verbose=0,
    ):
        store(self, locals())


@final
class MeanVarianceRegressor(AbstractRegressor):
    """Mean-variance network: `CombinedRegressor` with its four switches off.

    A mean network and a variance network, trained together on the Gaussian likelihood (Nix and
    Weigend). With ``n_members=5`` it is the deep ensemble of Lakshminarayanan et al.; its
    prediction is the exact mixture of the members.

    Parameters
    ----------
    preset : None, "fast", "paper" or a `sigmax.experts.Combined`
        Other defaults and further settings, as in `CombinedRegressor`.
    n_members : int
        Number of ensemble members. They are trained together, and the prediction is their mixture
        with equal weights. 1 is a single network.
    loss : "beta", "faithful" or "likelihood"
        "likelihood" is the Gaussian likelihood, "beta" is β-NLL with β = ½ (Seitzer et al.), and
        "faithful" combines the squared error for the mean with the likelihood for the variance
        (Stirn et al.).
    hidden_sizes : tuple of int
        Units of the hidden layers of each network.
    n_steps : int
        Total number of training steps.
    learning_rate : float
        Step size of Adam for the mean.
    validation_fraction, support, categorical_features, numeric_features, random_state, verbose
        As in `CombinedRegressor` and `SigmaxRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax import MeanVarianceRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (200, 1))
    >>> y = 3 * X[:, 0] + rng.normal(0, 1 + X[:, 0])
    >>> model = MeanVarianceRegressor("fast", n_steps=300, random_state=0).fit(X, y)
    >>> model.predict_interval([[1.0], [9.0]], coverage=0.9).shape
    (2, 2)
    """

    presets = LatePresets("combined", "PLAIN_PRESETS")

    def __init__(
        self,
        preset=None,
        *,
        n_members=1,
        loss="likelihood",
        hidden_sizes=(128, 128),
        n_steps=4000,
        learning_rate=3e-3,
        validation_fraction=0.1,
        support: Any = "auto",
        categorical_features=None,
        numeric_features=None,
        random_state=None,
        verbose=0,
    ):
        store(self, locals())


@final
class MCDropoutRegressor(AbstractRegressor):
    """MC dropout: dropout before every weight layer, also in prediction (Gal and Ghahramani).

    The network is trained on the squared error. The precision of the noise maximises the
    likelihood of the validation rows; if nothing is held out, it maximises that of the training
    rows, which is too high if the network overfits. The prediction is the mixture of the networks
    under ``n_draws`` random masks, each with this noise.

    Parameters
    ----------
    preset : None, "fast", "paper" or a `sigmax.experts.Dropout`
        Other defaults and further settings, as in `CombinedRegressor`: "fast" is smaller and stops
        early.
    dropout_rate : float
        Probability that a unit, including an input, is dropped.
    n_draws : int
        Number of random masks in the prediction.
    n_members : int
        Number of networks; 1 is the method as published.
    hidden_sizes : tuple of int
        Units of the hidden layers.
    n_steps : int
        Training steps. Random masks make training noisy, so many steps are needed.
    learning_rate : float
        Step size of Adam.
    validation_fraction, support, categorical_features, numeric_features, random_state, verbose
        As in `CombinedRegressor` and `SigmaxRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax import MCDropoutRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (200, 1))
    >>> y = 3 * X[:, 0] + rng.normal(size=200)
    >>> model = MCDropoutRegressor("fast", n_steps=300, random_state=0).fit(X, y)
    >>> model.predict_interval([[1.0], [9.0]], coverage=0.9).shape
    (2, 2)
    """

    presets = LatePresets("stochastic", "DROPOUT_PRESETS")

    def __init__(
        self,
        preset=None,
        *,
        dropout_rate=0.05,
        n_draws=100,
        n_members=1,
        hidden_sizes=(128, 128),
        n_steps=20_000,
        learning_rate=3e-3,
        validation_fraction=0.1,
        support: Any = "auto",
        categorical_features=None,
        numeric_features=None,
        random_state=None,
        verbose=0,
    ):
        store(self, locals())


@final
class BayesianRegressor(AbstractRegressor):
    """Bayesian neural network: Gaussian weights, Flipout gradients (Wen et al.), learned noise.

    The prior of every weight is N(0, 1), divided by the square root of the number of inputs of its
    layer. The prediction is the mixture of the networks under ``n_draws`` draws of all weights,
    each with the learned noise.

    Parameters
    ----------
    preset : None, "fast", "paper" or a `sigmax.experts.Bayesian`
        Other defaults and further settings, as in `CombinedRegressor`: "fast" has a quarter of the
        steps.
    n_draws, n_members, n_steps, learning_rate
        As in `MCDropoutRegressor`; a draw is one of all weights.
    hidden_sizes : tuple of int
        Units of the hidden layers. Wider networks fit worse, because every weight costs evidence.
    validation_fraction, support, categorical_features, numeric_features, random_state, verbose
        As in `CombinedRegressor` and `SigmaxRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax import BayesianRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (200, 1))
    >>> y = 3 * X[:, 0] + rng.normal(size=200)
    >>> model = BayesianRegressor("fast", n_steps=300, random_state=0).fit(X, y)
    >>> model.predict_interval([[1.0], [9.0]], coverage=0.9).shape
    (2, 2)
    """

    presets = LatePresets("stochastic", "BAYESIAN_PRESETS")

    def __init__(
        self,
        preset=None,
        *,
        n_draws=100,
        n_members=1,
        hidden_sizes=(50, 50),
        n_steps=20_000,
        learning_rate=3e-3,
        validation_fraction=0.1,
        support: Any = "auto",
        categorical_features=None,
        numeric_features=None,
        random_state=None,
        verbose=0,
    ):
        store(self, locals())


@final
class LocalRegressor(AbstractRegressor):
    """Kernel regression in a learned metric, with a neural prior updated in closed form.

    Networks give a normal-inverse-Gamma prior at every x. Training rows that are near, both in a
    learned embedding and in input space, update it in closed form, each with a kernel weight. This
    is the paper's local likelihood with a learned metric. All networks are trained on the
    leave-one-out likelihood of the training rows. If no row is near, the prediction is the prior,
    which tends to the mean and the variance of y. The prediction is the mixture of the ensemble
    members.

    The fitted model stores the training rows. With more than 524,288 rows, the networks learn from
    all rows, in random shards, and one shard of at most 65,536 rows is stored; a memory-mapped
    array is then never read as a whole.

    Parameters
    ----------
    preset : None, "fast" or a `sigmax.experts.Local`
        Other defaults and further settings, as in `CombinedRegressor`: "fast" is cheaper.
    n_members, hidden_sizes, validation_fraction
        As in `CombinedRegressor`.
    n_steps : int, optional
        Maximum number of training steps; by default it grows with the square root of the number of
        rows.
    learning_rate : float
        Initial step size of Adam, which decreases to 0 along half a cosine.
    weight_decay : float
        Decoupled weight decay, multiplied by 1,500 plus the number of rows.
    support, categorical_features, numeric_features, random_state, verbose
        As in `SigmaxRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax import LocalRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (200, 1))
    >>> y = 3 * X[:, 0] + rng.normal(0, 1 + X[:, 0])
    >>> model = LocalRegressor("fast", n_steps=100, random_state=0).fit(X, y)
    >>> mean, std = model.predict([[1.0], [9.0]], return_std=True)
    >>> bool(std[0] < std[1])
    True
    >>> rows, weights = model.explain_neighbors([[1.0]], k=3)
    >>> rows.shape, bool(np.all(np.abs(X[rows[0]] - 1.0) < 2))
    ((1, 3), True)
    """

    presets = LatePresets("local", "LOCAL_PRESETS")

    def __init__(
        self,
        preset=None,
        *,
        n_members=5,
        hidden_sizes=(128, 128),
        n_steps=None,
        learning_rate=4e-3,
        weight_decay=1000.0,
        validation_fraction=0.1,
        support: Any = "auto",
        categorical_features=None,
        numeric_features=None,
        random_state=None,
        verbose=0,
    ):
        store(self, locals())

    def fit(self, X, y, sample_weight=None) -> "LocalRegressor":
        n_rows = X.shape[0] if hasattr(X, "shape") and len(X.shape) else 0
        if n_rows > LARGEST_AT_ONCE:
            from sigmax.experts.stream import ArrayStream  # compiled by JAX, imported late

            return self.fit_stream(ArrayStream(X, y, sample_weight))
        return super().fit(X, y, sample_weight)

    fit.__doc__ = AbstractRegressor.fit.__doc__

    @property
    def largest_at_once(self) -> int:
        """Number of rows above which a fit learns from shards."""
        return LARGEST_AT_ONCE

    def fit_stream(self, stream: Any, **options: Any) -> "LocalRegressor":
        """Fit to the rows of a stream, which need not fit into memory."""
        from sigmax.experts.stream import fit_stream

        copy = self.unfitted()
        check_count("verbose", copy.verbose, minimum=0)
        expert: Any = copy.expert()
        key = make_key(copy.random_state)

        readers = copy.read_training, partial(Table.read, copy)
        model = fit_stream(expert, stream, key, *readers, verbose=copy.verbose, **options)
        return self.become(copy, model)

    @property
    def n_rows_(self) -> int:
        """Number of training rows that predictions rest on."""
        return len(self.fitted.rows)

    @property
    def n_learned_(self) -> int:
        """Number of training rows that networks have learned from."""
        return self.fitted.n_learned


class AbstractGPRegressor(AbstractRegressor):
    """Gaussian processes: attributes of the fitted value."""

    @property
    def length_scale_(self) -> NDArray[np.float64]:
        """Length-scale of every column in its units: (d,), or (p, d) for p outputs.

        The geometric mean of the draws where hyper-parameters are averaged over. Numbers and times
        come first, then flags of missing values and cycles of times, then categories, any two of
        which are 1 apart.
        """
        length_scale = np.exp(self.fitted.log_length_scale)
        scale = self.model_.features.scaling.scale
        length_scale[:, : len(scale)] *= scale
        return length_scale[0] if self.model_.is_single_output else length_scale

    @property
    def log_evidence_(self) -> NDArray[np.float64]:
        return self.fitted.log_evidence

    @property
    def df_(self) -> float:
        return self.fitted.df

    @property
    def n_iter_(self) -> int:
        return self.fitted.n_iter


@final
class GPRegressor(AbstractGPRegressor):
    """Exact Gaussian process with one length-scale per column and Gaussian noise.

    The noise is the same for all rows, unless ``noise="varying"``. All categories of a column are
    equally far apart; each such column has one length-scale.

    With many rows the hyper-parameters maximise the marginal likelihood. Up to 200 rows, or ten per
    column up to 500, they are averaged over, under weak priors: the prediction is the mixture of
    the processes of 32 draws from the posterior of the hyper-parameters. Each process has an
    unknown constant, and its total variance is integrated out, so its densities are Student-t. Time
    grows with the cube of the number of rows and memory with its square, so more than 5,000 rows
    raise an error.

    Parameters
    ----------
    n_restarts : int
        Number of starts of the optimiser; the best result is used. The first start is always the
        same (length-scales √d, noise 0.1 on standardised data), and the others are random. With
        more than 1,000 rows, the starts are compared on 1,000 of them, and the best continues with
        all.
    max_iter : int
        Largest number of L-BFGS iterations of a start; 0 uses the first start unchanged.
    average : bool
        True to average over the hyper-parameters if there are few rows. False always maximises the
        marginal likelihood, which with few rows gives intervals that are too narrow.
    noise : "constant" or "varying"
        "varying" averages over constant noise and noise whose logarithm is a smooth function of x,
        weighted by their evidence. With more rows than are averaged over, the likelier one is used;
        more than 1,000 rows raise an error. It implies `average`.
    variance_prior : "sample" or "wide"
        Prior of the total variance if hyper-parameters are averaged over: with "wide" it may be far
        larger than that of the sample, with "sample" it is close to it, as optimisation needs.
    support, categorical_features, numeric_features, random_state, verbose
        As in `SigmaxRegressor`.

    Attributes
    ----------
    log_evidence_ : array of shape (p,)
        Log marginal likelihood of every output, on standardised data; if hyper-parameters are
        averaged over, the log of its average over their prior.
    length_scale_ : array of shape (d,) or (p, d)
        In the units of the columns of ``X``.
    df_ : float
        Degrees of freedom of the Student-t densities; infinite if they are Normal.
    n_iter_ : int
        L-BFGS iterations of the last step, the largest number of any output.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax import GPRegressor
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = GPRegressor(n_restarts=1, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[1.5], [60.0]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.5)) < 0.01), bool(std[1] > 50 * std[0])
    (True, True)
    """

    presets = LatePresets("gaussian_process", "EXACT_PRESETS")

    def __init__(
        self,
        *,
        n_restarts=3,
        max_iter=100,
        average=True,
        noise="constant",
        variance_prior="wide",
        support: Any = "auto",
        categorical_features=None,
        numeric_features=None,
        random_state=None,
        verbose=0,
    ):
        store(self, locals())


@final
class SparseGPRegressor(AbstractGPRegressor):
    """Sparse Gaussian process with trained inducing points (Titsias 2009), for many rows.

    Time grows linearly with the number of rows. The hyper-parameters and the inducing points
    maximise a lower bound of the marginal likelihood.

    Parameters
    ----------
    n_inducing : int
        Number of inducing points, at most one per distinct row; they start as centres of k-means.
    n_restarts : int
        Number of starts of the optimiser, as in `GPRegressor`. They are compared on at most 1,000
        rows, as exact processes; the one with the largest bound continues with the inducing points.
    max_iter : int
        Largest number of L-BFGS iterations of each of these steps; 0 uses the first start. With
        more than 5,000 rows they use 5,000 of them, and ten more iterations use all.
    average : bool
        True to average over the hyper-parameters, as in `GPRegressor`, if there are as few rows and
        no more distinct ones than inducing points.
    support, categorical_features, numeric_features, random_state, verbose
        As in `SigmaxRegressor`.

    Attributes
    ----------
    log_evidence_, length_scale_, df_, n_iter_
        As in `GPRegressor`; the evidence is a lower bound.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax import SparseGPRegressor
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = SparseGPRegressor(n_inducing=10, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.5]])[0] - np.sin(1.5)) < 0.01)
    True
    """

    presets = LatePresets("gaussian_process", "SPARSE_PRESETS")

    def __init__(
        self,
        *,
        n_inducing=500,
        n_restarts=3,
        max_iter=100,
        average=True,
        support: Any = "auto",
        categorical_features=None,
        numeric_features=None,
        random_state=None,
        verbose=0,
    ):
        store(self, locals())


@final
class LinearRegressor(AbstractRegressor):
    r"""Bayesian linear regression with a Student-t prediction, in closed form.

    Numbers and times are standardised, and missing values are replaced by the mean and flagged.
    Categories are one-hot or, in columns with many categories, replaced by the mean and the spread
    of the target. The coefficients have the prior $\beta \sim N(0, \sigma^2 / \lambda)$ and the
    noise variance an inverse-gamma prior; $\lambda$ maximises the marginal likelihood. It is the
    baseline that any other model should beat.

    Parameters
    ----------
    categorical_features, numeric_features : list of str or int, optional
        Columns to read as categories or as numbers, regardless of their type.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax import LinearRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> model = LinearRegressor().fit(X, X @ [1.0, -2.0] + 0.5 * rng.normal(size=200))
    >>> mean, std = model.predict([[1.0, 1.0]], return_std=True)
    >>> mean.round(1), std.round(1)
    (array([-1.]), array([0.5]))
    """

    presets = MappingProxyType({"default": Linear()})

    def __init__(self, *, categorical_features=None, numeric_features=None):
        store(self, locals())


@final
class MarginalRegressor(AbstractRegressor):
    """Overall distribution of the training targets; all columns are ignored.

    It is a smoothed histogram: a mixture of Normal distributions at 99 quantiles, each as wide as
    the distance to its neighbours, but no narrower than Silverman's bandwidth. A model that is not
    better has learned nothing.

    Parameters
    ----------
    categorical_features, numeric_features : list of str or int, optional
        Columns to read as categories or as numbers; predictions do not depend on them.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax.estimators import MarginalRegressor
    >>> y = np.arange(100.0)
    >>> MarginalRegressor().fit(np.zeros((100, 1)), y).predict([[5.0]]).round(0)
    array([49.])
    """

    presets = MappingProxyType({"default": Marginal()})

    def __init__(self, *, categorical_features=None, numeric_features=None):
        store(self, locals())


@final
class SigmaxRegressor(AbstractRegressor):
    """Stack of a linear model, a Gaussian process, a forest and networks.

    Each expert is fitted to all rows, or to the largest random sample that it accepts, and predicts
    training rows with fits that have not seen them. The weights of the mixture maximise the
    likelihood of these predictions (Yao et al. 2018), so the data decide which experts count. Rows
    out of distribution are predicted by the overall distribution of the target.

    Parameters
    ----------
    effort : "quick", "default" or "best"
        "quick" fits the experts that take seconds: marginal, linear, Gaussian process and forest,
        the last three also on a transformed target if it is skewed. "default" adds networks
        (`LocalRegressor`), and "best" also the paper's method (`CombinedRegressor`).
    experts : "auto" or list
        Names ("linear", "gp", "forest", "local", "combined", "dropout", "bayesian") or experts of
        `sigmax.experts`, in place of those of the effort.
    time_limit : float, optional
        Seconds after which no further expert is started, and networks stop training and keep their
        best checkpoint. Warnings say which experts are left out or stopped.
    support : "auto" or (low, high)
        Smallest and largest possible value of y, or None for no bound: densities and intervals
        end there. "auto" is (0, None) if no y is negative and many are near 0 or the distribution
        is skewed, and otherwise no bound.
    atoms : list of float
        Values of y with a positive probability, such as 0 for days without rain, or a cap. Counts,
        rounded targets and values of at least 2 % of the rows are recognised automatically.
    categorical_features, numeric_features : list of str or int, optional
        Columns of ``X`` to read as categories or as numbers, regardless of their type. By default,
        text, truth values and pandas' categories are categories, and text that is a date throughout
        is a time.
    random_state : int, RandomState, Generator or None
        Seed of all random draws.
    verbose : int
        1 shows the progress and, before networks are trained, the scores of the other experts in
        standard deviations of y. An interruption (Ctrl-C) then keeps the fitted experts.

    Attributes
    ----------
    leaderboard_ : DataFrame
        Experts by weight, with their held-out scores and seconds.
    model_ : Model
        Encoding of the columns, units of the target, and the fitted experts with their weights.
    n_features_in_ : int
        Number of columns of ``X``.
    feature_names_in_ : array of str
        Names of the columns, if ``X`` was a frame.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax import SigmaxRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 6, size=(100, 1))
    >>> model = SigmaxRegressor(effort="quick", random_state=0)
    >>> model = model.fit(X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=100))
    >>> model.leaderboard_["expert"].iloc[0]
    'gp'
    >>> mean, std = model.predict([[1.5], [60.0]], return_std=True)
    >>> bool(abs(mean[0] - 1) < 0.1), bool(std[1] > 4 * std[0])
    (True, True)
    """

    presets = MappingProxyType({"default": Stack()})

    def __init__(
        self,
        effort="default",
        *,
        experts: Any = "auto",
        time_limit=None,
        support: Any = "auto",
        atoms=(),
        categorical_features=None,
        numeric_features=None,
        random_state=None,
        verbose=0,
    ):
        store(self, locals())

    def fit(
        self, X, y, sample_weight=None, groups=None, y_error=None, censoring=None
    ) -> "SigmaxRegressor":
        """Fit the stack to rows ``X`` (n, d) and targets ``y`` (n,) or (n, p).

        Parameters
        ----------
        X : array-like or frame of shape (n, d)
            Numbers, categories, truth values, times and dates, with missing values: an array, or a
            frame of pandas, polars or another library that narwhals reads. A random sample of
            524,288 rows is used if there are more.
        y : array-like of shape (n,) or (n, p)
            One target, or p targets, each with its own variance.
        sample_weight : array-like of shape (n,), optional
            Weight of each row; a row of weight 0 has no effect.
        groups : array-like of shape (n,), optional
            Group of each row, such as a patient or a site, if new rows will belong to other groups.
            The experts are then weighted and calibrated according to predictions of groups that
            they have not seen.
        y_error : number or array-like of shape (n,), optional
            Standard deviation of the known measurement error of each row, in the units of ``y``.
            The variance of y is the noise variance plus the square of the error. Only the marginal
            distribution, linear models and Gaussian processes can use errors, so only they are
            fitted.
        censoring : array-like of shape (n,), or pair of arrays, optional
            "above" for rows whose target is at least ``y`` (right-censored), "below" for those
            whose target is at most ``y``, "no" or None for observed ones. For intervals, a tuple
            ``(low, high)`` of bounds, which may be infinite and are equal to ``y`` if it is
            observed. The same experts are fitted as with ``y_error``.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from sigmax import SigmaxRegressor
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> model = SigmaxRegressor("quick", random_state=0).fit(X, 2 * X[:, 0])
        >>> model.predict([[0.5]]).round(2)
        array([1.])
        """
        fit_together([self], [(X, y, sample_weight, groups, y_error, censoring)])
        return self

    def predict_dist(self, X, y_error=None) -> Predictive:
        """Predict the distribution of every row and output, in the units of ``y``.

        Parameters
        ----------
        X : array-like or frame of shape (n, d)
        y_error : number or array-like of shape (n,), optional
            Standard deviation of the errors of new measurements. Without it, the distribution is
            that of a value measured without error: the function, and the noise that the model has
            learned.

        Returns
        -------
        Predictive
            With ``mean``, ``std``, ``log_prob``, ``cdf``, ``sf``, ``quantile``, ``interval``,
            ``crps`` and ``sample``.

        Examples
        --------
        >>> import numpy as np
        >>> from sigmax import SigmaxRegressor
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> model = SigmaxRegressor("quick", random_state=0).fit(X, 2 * X[:, 0])
        >>> model.predict_dist([[0.5]]).quantile(0.5).round(2)
        array([1.])
        """
        table = self.read(X)
        if y_error is None:
            return self.model_.predict(table)
        is_single = self.model_.is_single_output
        return self.model_.measure(table, read_errors(y_error, len(table), is_single))

    def read_training(
        self, X, y, sample_weight=None, groups=None, y_error=None, censoring=None, *, merges=True
    ) -> TrainingRows:
        """Checked rows, a random sample of them if they are many."""
        n_rows, taken = _num_samples(X), None
        check_consistent_length(X, groups)
        error = None if y_error is None else read_errors(y_error, n_rows, np.ndim(y) == 1)
        bounds = None if censoring is None else read_bounds(y, censoring, error)
        if n_rows > LARGEST_AT_ONCE:
            check_consistent_length(X, y, sample_weight)
            rng = named_generator(make_key(self.random_state), "sample of rows")
            taken = np.sort(rng.choice(n_rows, LARGEST_AT_ONCE, replace=False))
            X, y, sample_weight, groups, error, bounds = (
                None if part is None else _safe_indexing(part, taken)
                for part in (X, y, sample_weight, groups, error, bounds)
            )
        merges = merges and error is None and bounds is None
        rows = super().read_training(X, y, sample_weight, merges=merges)
        rows = rows if error is None else replace(rows, error=error[rows.indices])
        rows = rows if bounds is None else rows.censored(bounds[rows.indices])
        if groups is not None:
            if np.ndim(groups) != 1:
                found = f"shape {np.shape(groups)}"
                raise InvalidArgumentError(f"`groups` must be one label per row, got {found}.")
            label = pd.factorize(np.asarray(groups), use_na_sentinel=False)[0]
            if label.max() == 0:
                raise InvalidArgumentError("`groups` must have at least 2 different values, got 1.")
            rows = replace(rows, group=label[rows.indices])
        return rows if taken is None else replace(rows, indices=taken[rows.indices])

    @property
    def stack(self) -> StackFitted:
        """Fitted experts and their weights."""
        check_is_fitted(self)
        assert isinstance(self.fitted, StackFitted)
        return self.fitted

    def predict_shares(self, X) -> pd.DataFrame:
        """Predict the share of every expert in the prediction of every row.

        Out of distribution, the share of the marginal distribution tends to 1.

        Parameters
        ----------
        X : array-like or frame of shape (n, d)

        Returns
        -------
        data frame of shape (n, experts)

        Examples
        --------
        >>> import numpy as np
        >>> from sigmax import SigmaxRegressor
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> model = SigmaxRegressor("quick", random_state=0).fit(X, X[:, 0])
        >>> model.predict_shares([[0.5], [9.0]])["marginal"].round(1).tolist()
        [0.0, 1.0]
        """
        gate = self.predict_gate(X)
        assert gate is not None
        names = [one.name for one in self.stack.experts]
        return pd.DataFrame(self.stack.shares(gate).T, columns=names)

    @property
    def leaderboard_(self) -> pd.DataFrame:
        """Experts by weight: names, weights, held-out log-likelihood and CRPS, and seconds.

        Both scores are in units of the standard deviation of the target.
        """
        names = ("weight", "log_likelihood", "crps", "seconds")
        rows = [
            {"expert": one.name} | {name: getattr(one, name) for name in names}
            for one in self.stack.experts
        ]
        found = pd.DataFrame(rows).sort_values("weight", ascending=False)
        return found.reset_index(drop=True)

    @classmethod
    def setting(cls, value: Any) -> Any:
        """An argument of the constructor from the JSON of `save`."""
        if isinstance(value, list):
            return tuple(super(SigmaxRegressor, cls).setting(one) for one in value)
        return super().setting(value)


def find_class(name: str) -> type[AbstractRegressor]:
    """A final estimator of this module by its name."""
    found: Any = globals().get(str(name))
    is_ours = isinstance(found, type) and issubclass(found, AbstractRegressor)
    if is_ours and not found.__name__.startswith("Abstract"):
        return found
    raise ModelFileError(f"There is no estimator {name!r} in this sigmax.")


def load_estimator(path: str | Path) -> AbstractRegressor:
    """Load a model of any estimator that `save` wrote; no code in the folder is executed.

    Parameters
    ----------
    path : str or Path
        Folder of the model.

    Returns
    -------
    fitted estimator

    Raises
    ------
    ModelFileError
        If a file is missing, unknown or changed, or does not contain an estimator of sigmax.
    """
    header = Path(path) / HEADER
    if not header.is_file():
        raise ModelFileError(f"{str(path)!r} is not a sigmax model folder: no {HEADER} in it.")
    return find_class(str(read_header(header, read_bytes(header)).get("estimator"))).load(path)


def fit_parquet(
    model: AbstractRegressor, source: str | Sequence[str], target: str, *, drop=()
) -> AbstractRegressor:
    """Fit a model to Parquet files, which are read in row groups if they have many rows.

    Parameters
    ----------
    model : estimator
        A `LocalRegressor` learns from more than 524,288 rows in shards, in bounded memory, as
        from arrays. For other estimators, or fewer rows, the files are read into memory.
    source : str or list of str
        A file, a folder, or a pattern such as ``"rows/*.parquet"``; also in an object store, such
        as ``"s3://bucket/rows/*.parquet"``. All files have the same columns.
    target : str
        The column to predict. Rows without it are left out.
    drop : list of str
        Columns to leave out.

    Returns
    -------
    model
        The given estimator, fitted.

    Raises
    ------
    TableFileError, InvalidDataError
        If the files or the columns cannot be used.
    """
    files = ParquetFiles.open([source] if isinstance(source, str) else list(source))
    check_names([target], files.names, option="target")
    check_names(drop, files.names, option="drop")
    features = [name for name in files.names if name not in {target, *drop}]
    if isinstance(model, LocalRegressor) and files.n_rows > LARGEST_AT_ONCE:
        from sigmax.experts.stream import ParquetStream

        return model.fit_stream(ParquetStream(files, target, features))
    frame = files.read()
    y = read_target(frame, target)
    has_target = ~np.isnan(y)
    return model.fit(frame.loc[has_target].filter(items=features), y[has_target])
