"""skpro: any estimator as a probabilistic regressor, and its predictions as distributions.

It needs skpro, ``pip install "sigmax[skpro]"``.
"""

# skpro is not typed: its classes and data frames have the type Any.
# pyright: reportIncompatibleMethodOverride=false

from typing import Any, ClassVar, final, no_type_check

import jax
import numpy as np
import pandas as pd
from sklearn.base import clone

from sigmax.distributions import Mixture, Normal, Predictive, StudentT
from sigmax.errors import InvalidArgumentError, MissingExtraError
from sigmax.estimators import GPRegressor, LocalRegressor, MeanVarianceRegressor

with MissingExtraError.unless_imported("sigmax.integrations.skpro needs skpro", "skpro"):
    from skpro.distributions.base import BaseDistribution
    from skpro.regression.base import BaseProbaRegressor
    from skpro.utils.sklearn import prep_skl_df


@final
class SkproDistribution(BaseDistribution):
    """The density of a `Predictive`, exactly, as a distribution of skpro.

    All values are those of the prediction. The energies, from which skpro computes the CRPS,
    are as exact as our CRPS; norms of the density are integrals over its quantiles.

    Parameters
    ----------
    predictive : Predictive
        Result of `predict_dist` of an estimator, of shape (n,) or (n, p).
    index, columns : pd.Index, optional
        Labels of the n rows and of the p outputs; numbers from 0 by default. A single density
        without labels is a scalar distribution.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax.distributions import Normal, Predictive
    >>> from sigmax.integrations.skpro import SkproDistribution
    >>> dist = SkproDistribution(Predictive(Normal(np.array([0.0, 10.0]), np.array([1.0, 2.0]))))
    >>> dist.ppf(0.9).round(2)
           0
    0   1.28
    1  12.56
    """

    _tags: ClassVar[dict[str, Any]] = {
        "authors": ["sigmax"],
        "python_dependencies": "sigmax",
        "capabilities:approx": ["pdfnorm"],
        "capabilities:exact": ["mean", "var", "energy", "pdf", "log_pdf", "cdf", "ppf"],
        "distr:measuretype": "continuous",
        "distr:paramtype": "composite",
    }

    _shape: Any

    @no_type_check  # skpro's checks read the signature of the function itself
    def __init__(self, predictive, index=None, columns=None):
        self.predictive = predictive
        super().__init__(index=index, columns=columns)

    def _init_shape_bc(self, index=None, columns=None) -> None:
        """Rows and columns of the prediction; skpro calls this."""
        n, p = (*self.predictive.shape, 1)[:2]
        if index is None and columns is None and n * p == 1:
            self._shape = ()
            return
        self.index = pd.RangeIndex(n) if self.index is None else self.index
        self.columns = pd.RangeIndex(p) if self.columns is None else self.columns
        if (len(self.index), len(self.columns)) != (n, p):
            raise InvalidArgumentError(
                f"`index` and `columns` must have {n} rows and {p} columns,"
                f" got {len(self.index)} and {len(self.columns)}."
            )
        self._shape = (n, p)

    def _iat(self, rowidx=None, colidx=None) -> "SkproDistribution":
        if rowidx is None or colidx is None:
            raise InvalidArgumentError("`iat` needs a row and a column.")
        return SkproDistribution(some_of(self.predictive, [rowidx], [colidx]))

    def _iloc(self, rowidx=None, colidx=None) -> "SkproDistribution":
        if all(isinstance(index, int | np.integer) for index in (rowidx, colidx)):
            return self._iat(rowidx, colidx)
        rows, columns = (
            np.arange(n) if indices is None else np.atleast_1d(np.arange(n)[indices])
            for n, indices in zip(self.shape, (rowidx, colidx), strict=True)
        )
        return SkproDistribution(
            some_of(self.predictive, rows, columns),
            index=self.index.take(rows),
            columns=self.columns.take(columns),
        )

    def _mean(self) -> np.ndarray:
        return self.predictive.mean.reshape(self._shape)

    def _var(self) -> np.ndarray:
        return self.predictive.variance.reshape(self._shape)

    def _log_pdf(self, x) -> np.ndarray:
        return self.predictive.log_prob(self._argument(x)).reshape(self._shape)

    def _pdf(self, x) -> Any:
        return np.exp(self._log_pdf(x))

    def _cdf(self, x) -> np.ndarray:
        x = self._argument(x)
        inner = self.predictive.cdf(np.where(np.isinf(x), 0.0, x))
        return np.where(np.isinf(x), (x > 0).astype(float), inner).reshape(self._shape)

    def _ppf(self, p) -> np.ndarray:
        p = self._argument(p)
        is_inner = (p > 0) & (p < 1)
        inner = self.predictive.inverse_cdf(np.where(is_inner, p, 0.5))
        outer = np.select([p == 0, p == 1], [-np.inf, np.inf], np.nan)
        return np.where(is_inner, inner, outer).reshape(self._shape)

    def _energy_x(self, x) -> Any:
        """E|X − x|, summed over the outputs."""
        return self._by_row(self.predictive.absolute_error(self._argument(x)))

    def _energy_self(self) -> Any:
        """E|X − X'| = 2 (E|X − y| − CRPS(y)) for any y, summed over the outputs."""
        center = self.predictive.mean
        error, crps = self.predictive.absolute_error(center), self.predictive.crps(center)
        exists = np.isfinite(error) & np.isfinite(crps)
        spread = 2 * (np.where(exists, error, 0.0) - np.where(exists, crps, 0.0))
        return self._by_row(np.where(exists, spread, np.inf))

    def pdfnorm(self, a=2) -> Any:
        """∫ p(x)^a dx, as an integral over quantiles: E[p(X)^(a − 1)]."""
        nodes, weights = np.polynomial.legendre.leggauss(128)
        quantiles = self.predictive.quantile((nodes + 1) / 2)
        log_probs = [self.predictive.log_prob(x) for x in np.moveaxis(quantiles, -1, 0)]
        norm = np.tensordot(weights / 2, np.exp((a - 1) * np.stack(log_probs)), axes=1)
        if not self.shape:
            return float(norm.item())
        return pd.DataFrame(norm.reshape(self._shape), index=self.index, columns=self.columns)

    def _sample(self, n_samples=None) -> Any:
        """Draws, seeded by NumPy's global state as all of skpro's."""
        draws = self.predictive.sample(1 if n_samples is None else n_samples)
        if not self.shape:
            return float(draws.item()) if n_samples is None else pd.DataFrame(draws.reshape(-1, 1))
        index = self.index
        if n_samples is not None:
            index = pd.MultiIndex.from_product([range(n_samples), self.index])
        return pd.DataFrame(draws.reshape(len(index), -1), index=index, columns=self.columns)

    def _argument(self, x) -> np.ndarray:
        """Values of skpro's shape in that of the prediction."""
        return np.asarray(x, np.float64).reshape(self.predictive.shape)

    def _by_row(self, values: np.ndarray) -> Any:
        if not self._shape:
            return values.sum()
        return values.reshape(self._shape).sum(axis=1, keepdims=True)

    @classmethod
    def get_test_params(cls, parameter_set="default") -> list[dict[str, Any]]:
        mean = np.random.default_rng(0).normal(size=(2, 3, 2))
        several = Predictive(Mixture(StudentT(mean, np.full_like(mean, 5.0), np.ones_like(mean))))
        one = Predictive(Normal(np.array([1.0]), np.array([2.0])))
        labels = {"index": pd.Index([1, 2, 5]), "columns": pd.Index(["a", "b"])}
        single = Predictive(Mixture(Normal(mean[..., 0], np.ones((2, 3)))))
        return [{"predictive": several} | labels, {"predictive": single}, {"predictive": one}]


def some_of(predictive: Predictive, rows: Any, columns: Any) -> Predictive:
    """Densities of some rows and outputs, given by their positions."""
    found = predictive[np.asarray(rows)]
    if len(predictive.shape) == 1 or len(columns) == predictive.shape[1]:
        if np.array_equal(columns, np.arange(len(columns))):
            return found
    # The last axis of every leaf, that of a map's knots as well, is that of the outputs.
    return Predictive(jax.tree.map(lambda leaf: leaf[..., np.asarray(columns)], found.dist))


@final
class SkproRegressor(BaseProbaRegressor):
    """Any of our estimators as a probabilistic regressor of skpro.

    `predict_proba` gives the predictive distribution exactly, as a `SkproDistribution`. Intervals
    and quantiles are quantiles of it, as skpro defines them; for a discrete target, such as
    counts, `predict_interval` of the estimator ends at possible values.

    Parameters
    ----------
    estimator : estimator with ``predict_dist``, optional
        Unfitted; `fit` leaves it so and fits a copy. `LocalRegressor` by default.

    Attributes
    ----------
    estimator_
        The fitted copy.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from sigmax import GPRegressor
    >>> from sigmax.integrations.skpro import SkproRegressor
    >>> X = pd.DataFrame({"x": np.linspace(0, 6, 30)})
    >>> y = pd.DataFrame({"y": np.sin(X["x"])})
    >>> model = SkproRegressor(GPRegressor(average=False, random_state=0)).fit(X, y)
    >>> model.predict_interval(X[:2], coverage=0.9).columns.tolist()
    [('y', 0.9, 'lower'), ('y', 0.9, 'upper')]
    """

    _tags: ClassVar[dict[str, Any]] = {
        "authors": ["sigmax"],
        "python_dependencies": "sigmax",
        "capability:multioutput": True,
        "capability:missing": True,
        "X_inner_mtype": "pd_DataFrame_Table",
        "y_inner_mtype": "pd_DataFrame_Table",
    }

    @no_type_check  # see `SkproDistribution`
    def __init__(self, estimator=None):
        self.estimator = estimator
        super().__init__()

    def _fit(self, X, y) -> "SkproRegressor":
        estimator: Any = LocalRegressor() if self.estimator is None else self.estimator
        if not hasattr(estimator, "predict_dist"):
            rule = "an estimator with `predict_dist`, such as sigmax.LocalRegressor()"
            raise InvalidArgumentError(f"`estimator` must be {rule}, got {estimator!r}.")
        targets = y.to_numpy(dtype=float)
        targets = targets[:, 0] if targets.shape[1] == 1 else targets
        fresh: Any = clone(estimator)
        self.estimator_ = fresh.fit(prep_skl_df(X, copy_df=True), targets)
        return self

    def _predict(self, X) -> pd.DataFrame:
        mean = self.estimator_.predict(prep_skl_df(X, copy_df=True))
        columns = self._get_columns(method="predict")
        return pd.DataFrame(mean.reshape(len(X), -1), index=X.index, columns=columns)

    def _predict_proba(self, X) -> SkproDistribution:
        predictive = self.estimator_.predict_dist(prep_skl_df(X, copy_df=True))
        return SkproDistribution(
            predictive, index=X.index, columns=pd.Index(self._get_columns(method="predict"))
        )

    @classmethod
    def get_test_params(cls, parameter_set="default") -> list[dict[str, Any]]:
        network = MeanVarianceRegressor(n_steps=20, hidden_sizes=(4,), n_members=1, random_state=0)
        process = GPRegressor(average=False, n_restarts=1, max_iter=5, random_state=0)
        return [{"estimator": network}, {"estimator": process}]
