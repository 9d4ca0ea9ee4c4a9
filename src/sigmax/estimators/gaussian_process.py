"""Gaussian processes with a squared-exponential kernel: exact, and sparse for many rows."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, final

import jax
import numpy as np
from numpy.typing import NDArray

from sigmax.checks import check_count
from sigmax.distributions import Mixture, Normal, Predictive
from sigmax.errors import InvalidDataError
from sigmax.estimators.base import AbstractRegressor
from sigmax.estimators.executables import forget_when_many
from sigmax.estimators.gp_inference import (
    BLOCK,
    Hyper,
    Inducing,
    Posterior,
    Rows,
    exact_posterior,
    predict_latent,
    sparse_posterior,
)
from sigmax.estimators.gp_search import (
    Found,
    exact_search,
    pad,
    slots,
    sparse_search,
    starts,
    with_jitter,
)
from sigmax.random import make_key, named_generator
from sigmax.scaling import FARTHEST, Standardizer
from sigmax.training import bucket_size, pad_rows

__all__ = ["GPRegressor", "SparseGPRegressor"]

LARGEST_EXACT = 5000
SEARCH_ROWS = 1000
"""Rows on which the starts compete; the winner goes on with all of them."""

SPARSE_ROWS, POLISH_ITER = 5000, 10
"""With more rows than this, inducing points are trained on so many, then polished on all."""

ROWS_PER_CALL = 2048


class AbstractGPRegressor(AbstractRegressor):
    """One Gaussian process per output, on standardised data, in float64.

    A final class says how to find the posterior of one output.
    """

    n_restarts: int
    max_iter: int
    random_state: Any
    verbose: int

    posterior_: Posterior
    log_evidence_: NDArray[np.float64]

    @abstractmethod
    def _infer(
        self, rows: Rows, rng: np.random.Generator, advance: Callable[[str], None]
    ) -> tuple[Posterior, Found]:
        """The posterior of one output, and how it was found; ``advance`` is told every step."""

    def _check_settings(self) -> None:
        check_count("n_restarts", self.n_restarts)
        check_count("max_iter", self.max_iter, minimum=0)
        check_count("verbose", self.verbose, minimum=0)

    def fit(self, X, y, sample_weight=None) -> "AbstractGPRegressor":
        """Learn from rows ``X`` (n, d) and targets ``y`` (n,) or (n, p).

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,) or (n, p)
            One target, or p targets, each with a process of its own.
        sample_weight : array-like of shape (n,), optional
            Precision of each row relative to the others: twice the weight, half the noise
            variance. A row of weight 0 is as good as absent.
        """
        forget_when_many()
        self._check_settings()
        X, y, weight = self._check_training_rows(X, y, sample_weight)
        self._check_size(len(X))
        key = make_key(self.random_state)
        self.x_scaling_ = Standardizer.fit(X, weight)
        self.y_scaling_ = Standardizer.fit(y, weight, constant_scale=1e-6)
        X, y = standardize(self.x_scaling_, X), standardize(self.y_scaling_, y)
        weight = weight / weight.mean()

        from rich.progress import Progress
        from threadpoolctl import threadpool_limits

        n_outputs, inferred = y.shape[1], []
        # On busy cores, threads that wait for each other slow a Cholesky factor down 70-fold.
        with (
            jax.enable_x64(True),
            threadpool_limits(1, user_api="blas"),
            Progress(disable=self.verbose == 0) as bar,
        ):
            task = bar.add_task("", total=n_outputs * (self.n_restarts + 1))
            for output in range(n_outputs):

                def advance(step: str, output: int = output) -> None:
                    name = step if n_outputs == 1 else f"output {output + 1}: {step}"
                    bar.update(task, description=name, advance=1)

                rng = named_generator(key, f"output {output}")
                inferred.append(self._infer(Rows(X, y[:, output], weight), rng, advance))
        posteriors, found = zip(*inferred, strict=True)
        self.posterior_ = jax.tree.map(lambda *leaves: np.stack(leaves), *posteriors)
        self.log_evidence_ = np.array([one.log_evidence for one in found])
        self.n_iter_ = max(one.n_iter for one in found)
        return self

    def _check_size(self, n_rows: int) -> None:
        """Refuse more rows than can be dealt with."""

    def _climb_from_starts(
        self, rows: Rows, rng: np.random.Generator, advance: Callable[[str], None]
    ) -> list[Found]:
        """Where every start leads by the evidence of some rows, which may be all."""
        rows, found = some_rows(rows, SEARCH_ROWS, rng), []
        for number, start in enumerate(starts(self.n_restarts, rows.X.shape[1], rng), 1):
            advance(f"start {number} of {self.n_restarts}")
            found.append(exact_search(start, rows, self.max_iter))
        return found

    def predict_dist(self, X) -> Predictive:
        """Normal densities of new measurements, noise included, in the units of ``y``."""
        mean, latent, noise = self._predict(X)
        return Predictive(Mixture(Normal(mean[None], np.sqrt(latent + noise)[None])))

    def predict_uncertainty(self, X) -> dict[str, NDArray[np.float64]]:
        """Where the uncertainty comes from, as standard deviations: total² = a² + e².

        Returns
        -------
        dict with
            ``total``, the standard deviation of the predictive distribution;
            ``aleatoric``, that of the noise;
            ``epistemic``, that of the function, which more data would narrow.
        """
        _, latent, noise = self._predict(X)
        return {
            "total": np.sqrt(latent + noise),
            "aleatoric": np.sqrt(noise),
            "epistemic": np.sqrt(latent),
        }

    @property
    def length_scale_(self) -> NDArray[np.float64]:
        """How far each column must move to matter, in its units: (d,), or (p, d) for p outputs."""
        length_scale = np.exp(self.posterior_.hyper.log_length_scale) * self.x_scaling_.scale
        return length_scale[0] if self.is_single_output_ else length_scale

    def _predict(self, X) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Mean, variance of the function and variance of the noise, in the units of ``y``."""
        X = self._check_rows(X)
        X = standardize(self.x_scaling_, X)
        blocks = []
        with jax.enable_x64(True):
            for start in range(0, len(X), ROWS_PER_CALL):
                rows = X[start : start + ROWS_PER_CALL]
                padded = pad_rows(rows, bucket_size(len(rows), smallest=64))
                blocks.append(jax.tree.map(np.asarray, predict_latent(self.posterior_, padded)))
        means, variances = zip(*blocks, strict=True)
        mean, latent = (np.concatenate(part, axis=1)[:, : len(X)].T for part in (means, variances))
        scale = self.y_scaling_.scale
        noise = np.broadcast_to(np.exp(self.posterior_.hyper.log_noise) * scale**2, mean.shape)
        mean, latent = self.y_scaling_.mean + scale * mean, scale**2 * latent
        if self.is_single_output_:
            return mean[:, 0], latent[:, 0], noise[:, 0]
        return mean, latent, noise

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        arrays = {"log_evidence": self.log_evidence_}
        for name, scaling in (("x", self.x_scaling_), ("y", self.y_scaling_)):
            arrays |= {f"{name}_mean": scaling.mean, f"{name}_scale": scaling.scale}
        for part in (self.posterior_, self.posterior_.hyper):
            arrays |= {name: leaf for name, leaf in vars(part).items() if name != "hyper"}
        facts = {"is_single_output": bool(self.is_single_output_), "n_iter": self.n_iter_}
        return facts, arrays

    def _set_state(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.is_single_output_ = bool(facts["is_single_output"])
        self.log_evidence_, self.n_iter_ = arrays["log_evidence"], int(facts["n_iter"])
        self.x_scaling_ = Standardizer(arrays["x_mean"], arrays["x_scale"])
        self.y_scaling_ = Standardizer(arrays["y_mean"], arrays["y_scale"])
        p, m, d = len(arrays["y_mean"]), arrays["points"].shape[1], self.n_features_in_
        shapes = {"log_length_scale": (p, d), "log_variance": (p,), "log_noise": (p,)}
        shapes |= {"points": (p, m, d), "coefficients": (p, m), "reduction": (p, m, m)}
        for name, shape in shapes.items():
            if arrays[name].shape != shape or arrays[name].dtype != np.float64:
                raise ValueError(f"{name} is {arrays[name].dtype}{arrays[name].shape}, not {shape}")
        leaves = [arrays[name] for name in shapes]
        self.posterior_ = Posterior(Hyper(*leaves[:3]), *leaves[3:])


@final
class GPRegressor(AbstractGPRegressor):
    """Exact Gaussian process with one length-scale per column and Gaussian noise.

    Hyper-parameters maximise the marginal likelihood. Time grows with the cube of the number of
    rows and memory with its square, so more than 5,000 rows are refused.

    Parameters
    ----------
    n_restarts : int
        Starts of the optimiser, of which the best counts: the first is always the same (length-
        scales √d, noise 0.1 on standardised data), further ones are random. With more than
        1,000 rows the starts compete on 1,000 of them and the best goes on with all.
    max_iter : int
        Largest number of L-BFGS iterations of a start; 0 keeps the first start as it is.
    random_state : int, RandomState or None
        Seed of the random starts.
    verbose : int
        1 shows a progress bar.

    Attributes
    ----------
    log_evidence_ : array of shape (p,)
        Log marginal likelihood of every output, on standardised data.
    length_scale_ : array of shape (d,) or (p, d)
        In the units of the columns of ``X``.
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

    def __init__(self, *, n_restarts=3, max_iter=100, random_state=None, verbose=0):
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    def _check_size(self, n_rows: int) -> None:
        if n_rows > LARGEST_EXACT:
            raise InvalidDataError(
                f"GPRegressor takes at most {LARGEST_EXACT} rows, got {n_rows}: use"
                " SparseGPRegressor."
            )

    def _infer(self, rows, rng, advance) -> tuple[Posterior, Found]:
        found = best(self._climb_from_starts(rows, rng, advance))
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
    rows, and memory hardly does.

    Parameters
    ----------
    n_inducing : int
        Number of inducing points, at most one per distinct row; they start as centres of k-means.
    n_restarts : int
        Starts of the optimiser, as in `GPRegressor`; they compete on at most 1,000 rows, as exact
        processes, and the one of largest bound goes on with the inducing points.
    max_iter : int
        Largest number of L-BFGS iterations of each of these steps; 0 keeps the first start. With
        more than 5,000 rows they are done on 5,000 of them, and ten more on all.
    random_state : int, RandomState or None
        Seed of k-means, of the choice of rows and of the random starts.
    verbose : int
        1 shows a progress bar.

    Attributes
    ----------
    log_evidence_ : array of shape (p,)
        Lower bound on the log marginal likelihood of every output, on standardised data.
    length_scale_ : array of shape (d,) or (p, d)
        In the units of the columns of ``X``.
    n_iter_ : int
        L-BFGS iterations of the last step, the most of any output.

    Examples
    --------
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = SparseGPRegressor(n_inducing=10, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.5]])[0] - np.sin(1.5)) < 0.01)
    True
    """

    def __init__(self, *, n_inducing=500, n_restarts=3, max_iter=100, random_state=None, verbose=0):
        self.n_inducing = n_inducing
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    def _check_settings(self) -> None:
        super()._check_settings()
        check_count("n_inducing", self.n_inducing)

    def _infer(self, rows, rng, advance) -> tuple[Posterior, Found]:
        ends = self._climb_from_starts(rows, rng, advance)
        advance("all rows")
        points = inducing_points(np.asarray(rows.X), self.n_inducing, rng)
        n_slots = slots(len(points))
        live, points = pad_rows(np.ones(len(points)), n_slots), pad_rows(points, n_slots)
        some = some_rows(rows, SPARSE_ROWS, rng)
        # Judged by the bound: an exact process may live on details that inducing points cannot see.
        hypers = [*starts(1, points.shape[1], rng), *(end.model for end in ends)]
        ends = [sparse_search(Inducing(hyper, points, live), some, 0) for hyper in hypers]
        found = sparse_search(best(ends).model, some, self.max_iter)
        if len(rows.y) > SPARSE_ROWS:
            found = sparse_search(found.model, rows, min(self.max_iter, POLISH_ITER))
        padded = pad(rows, multiple=BLOCK)
        return with_jitter(lambda jitter: sparse_posterior(found.model, padded, jitter))[0], found


def standardize(scaling: Standardizer, values: np.ndarray) -> NDArray[np.float64]:
    """Standardised values in double precision, which a covariance needs."""
    return np.clip((values - scaling.mean) / scaling.scale, -FARTHEST, FARTHEST)


def best(found: list[Found]) -> Found:
    """The one of largest evidence."""
    return max(found, key=lambda one: one.log_evidence)


def some_rows(rows: Rows, n_rows: int, rng: np.random.Generator) -> Rows:
    """At most ``n_rows`` of the rows, drawn at random."""
    if len(rows.y) <= n_rows:
        return rows
    some = rng.choice(len(rows.y), n_rows, replace=False)
    return jax.tree.map(lambda leaf: leaf[some], rows)


def inducing_points(X: np.ndarray, n_points: int, rng: np.random.Generator) -> np.ndarray:
    """All distinct rows where there are few, else the centres of k-means on a sample."""
    distinct = np.unique(X, axis=0)
    if len(distinct) <= n_points:
        return distinct
    from sklearn.cluster import MiniBatchKMeans

    seed = int(rng.integers(2**31))
    sample = X[rng.choice(len(X), min(len(X), 100 * n_points), replace=False)]
    settings: dict[str, Any] = {"n_init": 1, "batch_size": 2048, "random_state": seed}
    return np.asarray(MiniBatchKMeans(n_points, **settings).fit(sample).cluster_centers_)
