"""Gaussian processes with a squared-exponential kernel: exact, and sparse for many rows."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from sigmax.errors import InvalidDataError
from sigmax.estimators.gp_average import VARIANCE_PRIORS
from sigmax.estimators.gp_base import AbstractGPRegressor
from sigmax.estimators.gp_inference import (
    BLOCK,
    Inducing,
    Posterior,
    exact_posterior,
    sparse_posterior,
)
from sigmax.estimators.gp_search import (
    SEARCH_ROWS,
    Found,
    best,
    climb_from_starts,
    exact_search,
    pad,
    slots,
    some_rows,
    sparse_search,
    starts,
    with_jitter,
)
from sigmax.estimators.inducing_points import k_means_centers
from sigmax.settings import COUNT, COUNT_OR_ZERO, FLAG, AbstractSettings, one_of, setting, store
from sigmax.targets import SUPPORT
from sigmax.training import pad_rows

__all__ = ["GPRegressor", "SparseGPRegressor"]

LARGEST_EXACT, LARGEST_VARYING = 5000, 1000

SPARSE_ROWS, POLISH_ITER = 5000, 10
"""With more rows than this, inducing points are trained on so many, then polished on all."""


@final
@dataclass(frozen=True, kw_only=True)
class GPSettings(AbstractSettings):
    """Settings of an exact Gaussian process."""

    n_restarts: int = setting(
        3,
        COUNT,
        """Starts of the optimiser, of which the best counts: the first is always the same
        (length-scales √d, noise 0.1 on standardised data), further ones are random. With more than
        1,000 rows the starts compete on 1,000 of them and the best goes on with all.""",
    )
    max_iter: int = setting(
        100,
        COUNT_OR_ZERO,
        "Largest number of L-BFGS iterations of a start; 0 keeps the first start as it is.",
    )
    average: bool = setting(
        True,
        FLAG,
        """Whether to average over the hyper-parameters with at most 200 rows, or ten per
        column up to 500. The optimiser then looks for modes of their posterior, about which they
        are drawn. False maximises the marginal likelihood at any number of rows, which with few is
        far too sure of itself.""",
    )
    noise: str = setting(
        "constant",
        one_of(("constant", "varying")),
        """Whether the noise may depend on x: "varying" averages over constant noise and noise whose
        logarithm is a smooth function, each by its evidence; of more rows than are averaged over
        the likelier one is taken, and more than 1,000 are refused. It implies `average`.""",
    )
    support: str | tuple[float | None, float | None] = setting(*SUPPORT)
    variance_prior: str = setting(
        "wide",
        one_of(VARIANCE_PRIORS),
        """What averaging assumes of the total variance: "wide" lets it be far larger than that of
        the sample, of which few rows tell little; "sample" holds it near that. Optimisation takes
        the latter, and looks at corners less.""",
    )


@final
@dataclass(frozen=True, kw_only=True)
class SparseGPSettings(AbstractSettings):
    """Settings of a sparse Gaussian process."""

    n_inducing: int = setting(
        500,
        COUNT,
        "Inducing points, at most one per distinct row; they start as centres of k-means.",
    )
    n_restarts: int = setting(
        3,
        COUNT,
        """Starts of the optimiser, as in `GPRegressor`; they compete on at most 1,000 rows, as
        exact processes, and the one of largest bound goes on with the inducing points.""",
    )
    max_iter: int = setting(
        100,
        COUNT_OR_ZERO,
        """Largest number of L-BFGS iterations of each of these steps; 0 keeps the first start. With
        more than 5,000 rows they are done on 5,000 of them, and ten more on all.""",
    )
    average: bool = setting(
        True,
        FLAG,
        """Whether to average over the hyper-parameters, as in `GPRegressor`, if there are as few
        rows and no more distinct ones than inducing points.""",
    )
    support: str | tuple[float | None, float | None] = setting(*SUPPORT)


@final
class GPRegressor(AbstractGPRegressor):
    """Exact Gaussian process with one length-scale per column and Gaussian noise.

    The noise is the same everywhere, unless ``noise="varying"``. Categories, dates and gaps are
    taken as they are: all levels of a column are equally far apart, by a length-scale of their own.

    With many rows the hyper-parameters maximise the marginal likelihood. Up to 200 rows, or ten
    per column up to 500, they are averaged over, under weak priors: the prediction is the mixture
    of the processes of 32 draws from the posterior of the hyper-parameters, each with an unknown
    constant added and with its total variance integrated out, which makes its densities Student-t.
    Time grows with the cube of the number of rows and memory with its square, so more than 5,000
    rows are refused.

    Parameters
    ----------
    n_restarts : int, default 3
        Starts of the optimiser, of which the best counts: the first is always the same (length-
        scales √d, noise 0.1 on standardised data), further ones are random. With more than 1,000
        rows the starts compete on 1,000 of them and the best goes on with all.
    max_iter : int, default 100
        Largest number of L-BFGS iterations of a start; 0 keeps the first start as it is.
    average : bool, default True
        Whether to average over the hyper-parameters with at most 200 rows, or ten per column up to
        500. The optimiser then looks for modes of their posterior, about which they are drawn.
        False maximises the marginal likelihood at any number of rows, which with few is far too
        sure of itself.
    noise : "constant" or "varying", default "constant"
        Whether the noise may depend on x: "varying" averages over constant noise and noise whose
        logarithm is a smooth function, each by its evidence; of more rows than are averaged over
        the likelier one is taken, and more than 1,000 are refused. It implies `average`.
    variance_prior : "sample" or "wide", default "wide"
        What averaging assumes of the total variance: "wide" lets it be far larger than that of the
        sample, of which few rows tell little; "sample" holds it near that. Optimisation takes the
        latter, and looks at corners less.
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
        Seed of the random starts, and of the draws that are averaged over.
    verbose : int
        1 shows a progress bar.

    Attributes
    ----------
    log_evidence_ : array of shape (p,)
        Log marginal likelihood of every output, on standardised data; where hyper-parameters are
        averaged over, the log of its average over their prior.
    length_scale_ : array of shape (d,) or (p, d)
        In the units of the columns of ``X``; the geometric mean of the draws where there are many.
    df_ : float
        Degrees of freedom of the Student-t densities; infinite where they are Normal.
    n_iter_ : int
        L-BFGS iterations of the last step, the most of any output.

    Examples
    --------
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = GPRegressor(n_restarts=1, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[1.5], [60.0]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.5)) < 0.01), bool(std[1] > 50 * std[0])
    (True, True)
    """

    default_recipe = GPSettings()

    noise: str
    variance_prior: str

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

    @property
    def _noise_varies(self) -> bool:
        return self.noise == "varying"

    @property
    def _variance_prior(self) -> tuple[float, float]:
        return VARIANCE_PRIORS[self.variance_prior]

    def _averages(self, X) -> bool:
        return self._noise_varies or super()._averages(X)

    def _check_size(self, n_rows: int) -> None:
        if self._noise_varies and n_rows > LARGEST_VARYING:
            raise InvalidDataError(
                f"GPRegressor(noise='varying') takes at most {LARGEST_VARYING} rows, got"
                f" {n_rows}: use LocalRegressor."
            )
        if n_rows > LARGEST_EXACT:
            raise InvalidDataError(
                f"GPRegressor takes at most {LARGEST_EXACT} rows, got {n_rows}: use"
                " SparseGPRegressor."
            )

    def _infer(self, rows, rng, advance) -> tuple[Posterior, Found]:
        found = best(climb_from_starts(self.n_restarts, rows, self.max_iter, rng, advance))
        advance("all rows")
        if len(rows.y) > SEARCH_ROWS:
            found = exact_search(found.model, rows, self.max_iter)
        padded = pad(rows)
        return with_jitter(lambda jitter: exact_posterior(found.model, padded, jitter))[0], found


@final
class SparseGPRegressor(AbstractGPRegressor):
    """Gaussian process that sees its rows through a few inducing points (Titsias, 2009).

    Hyper-parameters and inducing points maximise a lower bound of the marginal likelihood, in
    which the posterior of the inducing values is optimal. Time grows in proportion to the number of
    rows, and memory hardly does. With at most 200 rows, or ten per column up to 500, of which every
    distinct one can have an inducing point, the process is that of `GPRegressor`, averaged over its
    hyper-parameters.

    Parameters
    ----------
    n_inducing : int, default 500
        Inducing points, at most one per distinct row; they start as centres of k-means.
    n_restarts : int, default 3
        Starts of the optimiser, as in `GPRegressor`; they compete on at most 1,000 rows, as exact
        processes, and the one of largest bound goes on with the inducing points.
    max_iter : int, default 100
        Largest number of L-BFGS iterations of each of these steps; 0 keeps the first start. With
        more than 5,000 rows they are done on 5,000 of them, and ten more on all.
    average : bool, default True
        Whether to average over the hyper-parameters, as in `GPRegressor`, if there are as few rows
        and no more distinct ones than inducing points.
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
        Seed of k-means, of the choice of rows, of the random starts and of the draws.
    verbose : int
        1 shows a progress bar.

    Attributes
    ----------
    log_evidence_ : array of shape (p,)
        Lower bound on the log marginal likelihood of every output, on standardised data; where
        hyper-parameters are averaged over, as in `GPRegressor`.
    length_scale_ : array of shape (d,) or (p, d)
        In the units of the columns of ``X``; the geometric mean of the draws where there are many.
    df_ : float
        Degrees of freedom of the Student-t densities; infinite where they are Normal.
    n_iter_ : int
        L-BFGS iterations of the last step, the most of any output.

    Examples
    --------
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = SparseGPRegressor(n_inducing=10, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.5]])[0] - np.sin(1.5)) < 0.01)
    True
    """

    default_recipe = SparseGPSettings()

    n_inducing: int

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

    def _averages(self, X) -> bool:
        return super()._averages(X) and len(np.unique(X, axis=0)) <= self.n_inducing

    def _infer(self, rows, rng, advance) -> tuple[Posterior, Found]:
        ends = climb_from_starts(self.n_restarts, rows, self.max_iter, rng, advance)
        advance("all rows")
        points = sparse_inducing_points(np.asarray(rows.X), self.n_inducing, rng)
        n_slots = slots(len(points))
        live, points = pad_rows(np.ones(len(points)), n_slots), pad_rows(points, n_slots)
        some = some_rows(rows, SPARSE_ROWS, rng)
        # Judged by the bound: an exact process may live on details that inducing points cannot see.
        hypers = [*starts(1, rows, rng), *(end.model for end in ends)]
        ends = [sparse_search(Inducing(hyper, points, live), some, 0) for hyper in hypers]
        found = sparse_search(best(ends).model, some, self.max_iter)
        if len(rows.y) > SPARSE_ROWS:
            found = sparse_search(found.model, rows, min(self.max_iter, POLISH_ITER))
        padded = pad(rows, multiple=BLOCK)
        return with_jitter(lambda jitter: sparse_posterior(found.model, padded, jitter))[0], found


def sparse_inducing_points(X: np.ndarray, n_points: int, rng: np.random.Generator) -> np.ndarray:
    """All distinct rows where there are few, else the centres of k-means on a sample."""
    distinct = np.unique(X, axis=0)
    if len(distinct) <= n_points:
        return distinct
    seed = int(rng.integers(2**31))
    sample = X[rng.choice(len(X), min(len(X), 100 * n_points), replace=False)]
    return k_means_centers(sample, n_points, seed)
