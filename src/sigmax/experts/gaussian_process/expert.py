"""Experts that fit one Gaussian process per output, on standardised data, in float64."""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import jax
import numpy as np
from jaxtyping import Array, Float

from sigmax.compilation import by_blocks, pad_rows
from sigmax.distributions import Mixture
from sigmax.errors import InvalidDataError
from sigmax.experts.base import AbstractExpert, AbstractFitted, HeldOut
from sigmax.experts.gaussian_process.hyper import (
    SEARCH_ROWS,
    VARIANCE_PRIORS,
    Found,
    averaged_posterior,
    best,
    exact_search,
    from_hyper,
    likelier_noise,
    mode_search,
    noise_modes,
    pad,
    slots,
    some_rows,
    sparse_search,
    starts,
    with_jitter,
)
from sigmax.experts.gaussian_process.inference import (
    BLOCK,
    GPRows,
    Hyper,
    Inducing,
    Posterior,
    exact_left_out,
    exact_posterior,
    predict_latent,
    predict_noise,
    sparse_left_out,
    sparse_posterior,
)
from sigmax.experts.leave_out import DuplicateGroups, LeftOut, total_density
from sigmax.experts.rows import LARGEST_EXACT, Rows
from sigmax.extrapolation import k_means_centers
from sigmax.inputs import Inputs
from sigmax.random import RandomKey, named_generator
from sigmax.settings import COUNT, COUNT_OR_ZERO, FLAG, one_of, setting

LARGEST_VARYING = 1000
"""Rows that an exact process with varying noise takes at most."""
LARGEST_AVERAGED, LARGEST_WIDE, ROWS_PER_LENGTH_SCALE = 200, 500, 10
"""Numbers of rows up to which hyper-parameters are averaged over; more rows determine them well
enough, except in tables of many columns."""
SPARSE_ROWS, POLISH_ITER = 5000, 10
"""With more rows than this, inducing points are trained on so many, then polished on all."""
ROWS_PER_CALL, AVERAGED_ROWS_PER_CALL = 2048, 512


def largest_averaged(n_length_scales: int) -> int:
    """Largest number of rows with which hyper-parameters are averaged over.

    Examples
    --------
    >>> largest_averaged(8), largest_averaged(30), largest_averaged(100)
    (200, 300, 500)
    """
    return max(LARGEST_AVERAGED, min(LARGEST_WIDE, ROWS_PER_LENGTH_SCALE * n_length_scales))


@final
class GPFitted(AbstractFitted):
    """Fitted Gaussian processes.

    The density is Normal, or the mixture of the Student-t densities of all draws of the
    hyper-parameters. Uncertainty of the function and of the hyper-parameters is epistemic.
    """

    posterior: Posterior
    """Posterior of every output under every draw of the hyper-parameters: leaves (outputs, draws,
    ...)."""
    df: float
    """Degrees of freedom of the Student-t densities; infinite where they are Normal."""
    log_evidence: Float[np.ndarray, " outputs"]
    """Log marginal likelihood of every output, or the log of its average over the prior of the
    hyper-parameters; of a sparse process a lower bound of it."""
    n_iter: int
    """L-BFGS iterations of the last search, the largest number of any output."""
    held_out: HeldOut
    """Leave-one-out densities in closed form, at the hyper-parameters given all rows."""

    def coordinates(self, X: Inputs) -> Float[np.ndarray, "rows coordinates"]:
        """Coordinates of rows before they are divided by length-scales, in double precision."""
        return np.asarray(X.coordinates, np.float64)

    @property
    def log_length_scale(self) -> Float[np.ndarray, "outputs length_scales"]:
        """Logarithms of the length-scales of standardised columns, averaged over the draws."""
        return np.mean(self.posterior.hyper.log_length_scale, axis=1)

    def latent(self, X: Inputs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean and variance of the function, and variance of the noise: (draws, rows, outputs).

        They are in transformed units. Where hyper-parameters are averaged over, variances are the
        squared scales of Student-t densities.
        """
        n_outputs, n_draws = np.shape(self.posterior.hyper.log_noise)
        processes = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), self.posterior)
        rows_per_call = ROWS_PER_CALL if n_draws == 1 else AVERAGED_ROWS_PER_CALL

        def predict(X: Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            parts = *predict_latent(processes, X), predict_noise(processes, X)
            return jax.tree.map(np.asarray, parts)

        with jax.enable_x64(True):
            found = by_blocks(predict, self.coordinates(X), axis=1, rows_per_call=rows_per_call)
        shape = n_outputs, n_draws, len(X)
        mean, latent, noise = (part.reshape(shape).transpose(1, 2, 0) for part in found)
        return mean, latent, noise

    def density(self, X: Inputs) -> Mixture:
        return total_density(*self.latent(X), self.df)

    def prediction_shape(self, X: Inputs) -> tuple[int, ...]:
        """Shape of the predictions, given that `check` has compared all arrays."""
        n_coordinates = np.shape(self.posterior.points)[-1]
        if self.coordinates(X).shape[1] != n_coordinates:
            raise ValueError(f"the process has {n_coordinates} coordinates, not those of the rows")
        return len(X), len(self.log_evidence)

    def check(self) -> None:
        posterior, hyper = self.posterior, self.posterior.hyper
        n_draws, m, c = np.shape(posterior.points)[-3:]
        d = max(hyper.groups) + 1 if hyper.groups else c
        shapes = {"log_length_scale": (d,), "log_variance": (), "log_noise": ()}
        shapes |= {"points": (m, c), "coefficients": (m,), "reduction": (m, m)}
        if posterior.noise_coefficients is not None:
            shapes["noise_coefficients"] = (m,)
        for name, shape in shapes.items():
            found = np.shape(getattr(hyper if name.startswith("log") else posterior, name))
            expected = len(self.log_evidence), n_draws, *shape
            if found != expected:
                raise ValueError(f"{name} has the shape {found}, not {expected}")
        if hyper.groups and len(hyper.groups) != c:
            raise ValueError(f"groups has {len(hyper.groups)} entries for {c} coordinates")
        if not self.df > 0:
            raise ValueError(f"df must be above 0, got {self.df}")


Advance = Callable[[str], None]
Inferred = tuple[Posterior, Found, LeftOut]
"""Processes of one output, leaves (draws, ...), the last search, leave-one-out densities."""


@dataclass(frozen=True, kw_only=True)
class AbstractGaussianProcess(AbstractExpert):
    """Settings and steps that exact and sparse processes share.

    Few rows hardly determine hyper-parameters, and those of largest evidence then give
    overconfident predictions: they are averaged over. For more rows a final class infers the
    posterior of one output.
    """

    n_restarts: int = setting(3, COUNT, "Starts of the optimiser, of which the best counts.")
    max_iter: int = setting(
        100, COUNT_OR_ZERO, "Largest number of L-BFGS iterations; 0 keeps the first start."
    )
    average: bool = setting(True, FLAG, "Average over the hyper-parameters of few rows.")
    noise: str = "constant"
    variance_prior: str = "wide"

    def check_size(self, n_rows: int) -> None:
        """Raise InvalidDataError if there are too many rows."""

    def averages(self, rows: GPRows) -> bool:
        is_few = len(rows.y) <= largest_averaged(rows.n_length_scales)
        return self.noise == "varying" or (self.average and is_few)

    def df(self, rows: GPRows) -> float:
        """Degrees of freedom: above 2, so that variances are finite, and infinite if Normal."""
        return 2 * rows.variance_prior[0] + len(rows.y) if self.averages(rows) else math.inf

    def from_starts(
        self, search: Callable[..., Found], rows: GPRows, rng: np.random.Generator, advance: Advance
    ) -> list[Found]:
        """Results of a search from every start: ``search(start, rows, max_iter)``."""
        found = []
        for number, start in enumerate(starts(self.n_restarts, rows, rng), 1):
            advance(f"start {number} of {self.n_restarts}")
            found.append(search(start, rows, self.max_iter))
        return found

    @abstractmethod
    def infer(
        self, rows: GPRows, groups: DuplicateGroups, rng: np.random.Generator, advance: Advance
    ) -> Inferred:
        """Infer the process of one output at the hyper-parameters of largest evidence."""

    def infer_average(
        self, rows: GPRows, groups: DuplicateGroups, rng: np.random.Generator, advance: Advance
    ) -> Inferred:
        """Infer the processes of one output, one for every draw of the hyper-parameters."""

        def search(start: Hyper, rows: GPRows, max_iter: int) -> Found:
            return mode_search(from_hyper(start, rows), rows, max_iter)

        modes = self.from_starts(search, rows, rng, advance)
        advance("averaging")
        models = [(rows, modes)]
        if self.noise == "varying":
            models.append(noise_modes(modes, rows, self.max_iter))
        if self.noise == "constant" or len(rows.y) <= largest_averaged(rows.n_length_scales):
            posterior, found, jitter = averaged_posterior(models, rng)
        else:
            posterior, found, jitter = likelier_noise(models)
        return posterior, found, exact_left_out(posterior, rows, jitter, groups, self.df(rows))

    def fit(self, rows: Rows, key: RandomKey, *, verbose: int = 0) -> GPFitted:
        """Fit one process per output. A ``verbose`` above 0 shows a progress bar."""
        from rich.progress import Progress
        from threadpoolctl import threadpool_limits

        self.check_size(len(rows))
        X, weight = np.asarray(rows.X.coordinates, np.float64), rows.weight / rows.weight.mean()
        is_plain, prior = rows.features.schema.is_plain, VARIANCE_PRIORS[self.variance_prior]
        scales = () if is_plain else rows.features.length_scale_groups()
        targets = [
            GPRows(X, y, weight, groups=scales, variance_prior=prior)
            for y in np.ascontiguousarray(rows.y.T)
        ]
        groups, inferred = DuplicateGroups.of(rows), []
        # On busy cores, threads that wait for each other slow a Cholesky factor down 70-fold.
        with (
            jax.enable_x64(True),
            threadpool_limits(1, user_api="blas"),
            Progress(disable=verbose == 0) as bar,
        ):
            task = bar.add_task("", total=len(targets) * (self.n_restarts + 1))
            for output, target in enumerate(targets):

                def advance(step: str, output: int = output) -> None:
                    name = step if len(targets) == 1 else f"output {output + 1}: {step}"
                    bar.update(task, description=name, advance=1)

                rng = named_generator(key, f"output {output}")
                infer = self.infer_average if self.averages(target) else self.infer
                inferred.append(infer(target, groups, rng, advance))
        posteriors, found, left_out = zip(*inferred, strict=True)
        parts = (np.stack(part, axis=-1) for part in zip(*left_out, strict=True))
        return GPFitted(
            posterior=jax.tree.map(lambda *leaves: np.stack(leaves), *posteriors),
            df=self.df(targets[0]),
            log_evidence=np.array([one.log_evidence for one in found]),
            n_iter=max(one.n_iter for one in found),
            held_out=HeldOut.of_rows(total_density(*parts), rows),
        )


def one_draw(posterior: Posterior) -> Posterior:
    return jax.tree.map(lambda leaf: leaf[None], posterior)


@final
@dataclass(frozen=True, kw_only=True)
class GaussianProcess(AbstractGaussianProcess):
    """Exact Gaussian process."""

    noise: str = setting(
        "constant",
        one_of(("constant", "varying")),
        """"varying" averages over constant noise and noise whose logarithm is a smooth function of
        x, weighted by evidence; with many rows it takes the likelier one. It implies `average`.""",
    )
    variance_prior: str = setting(
        "wide",
        one_of(VARIANCE_PRIORS),
        """Prior of the total variance in averaging: far larger than that of the sample, or near
        it.""",
    )

    def check_size(self, n_rows: int) -> None:
        name, most, other = "GPRegressor", LARGEST_EXACT, "SparseGPRegressor"
        if self.noise == "varying":
            name, most, other = "GPRegressor(noise='varying')", LARGEST_VARYING, "LocalRegressor"
        if n_rows > most:
            raise InvalidDataError(f"{name} takes at most {most} rows, got {n_rows}: use {other}.")

    def infer(self, rows, groups, rng, advance) -> Inferred:
        some = some_rows(rows, SEARCH_ROWS, rng)
        found = best(self.from_starts(exact_search, some, rng, advance))
        advance("all rows")
        if len(rows.y) > SEARCH_ROWS:
            found = exact_search(found.model, rows, self.max_iter)
        padded = pad(rows)
        posterior, jitter = with_jitter(lambda j: exact_posterior(found.model, padded, j))
        posterior = one_draw(posterior)
        return posterior, found, exact_left_out(posterior, rows, jitter, groups, math.inf)


@final
@dataclass(frozen=True, kw_only=True)
class SparseGaussianProcess(AbstractGaussianProcess):
    """Gaussian process with inducing points (Titsias, 2009).

    Its leave-one-out densities are approximate: inducing points stay where all rows placed them.
    """

    n_inducing: int = setting(500, COUNT, "Inducing points, at most one per distinct row.")

    def averages(self, rows: GPRows) -> bool:
        return super().averages(rows) and len(np.unique(rows.X, axis=0)) <= self.n_inducing

    def infer(self, rows, groups, rng, advance) -> Inferred:
        some = some_rows(rows, SEARCH_ROWS, rng)
        ends = self.from_starts(exact_search, some, rng, advance)
        advance("all rows")
        points = inducing_points(np.asarray(rows.X), self.n_inducing, rng)
        n_slots = slots(len(points))
        live, points = pad_rows(np.ones(len(points)), n_slots), pad_rows(points, n_slots)
        some = some_rows(rows, SPARSE_ROWS, rng)
        # Compared by the bound: an exact process may rely on details that inducing points miss.
        hypers = [*starts(1, rows, rng), *(end.model for end in ends)]
        ends = [sparse_search(Inducing(hyper, points, live), some, 0) for hyper in hypers]
        found = sparse_search(best(ends).model, some, self.max_iter)
        if len(rows.y) > SPARSE_ROWS:
            found = sparse_search(found.model, rows, min(self.max_iter, POLISH_ITER))
        padded = pad(rows, multiple=BLOCK)
        posterior, jitter = with_jitter(lambda j: sparse_posterior(found.model, padded, j))
        return one_draw(posterior), found, sparse_left_out(found.model, padded, jitter, groups)


EXACT_PRESETS = {"default": GaussianProcess()}
SPARSE_PRESETS = {"default": SparseGaussianProcess()}


def inducing_points(X: np.ndarray, n_points: int, rng: np.random.Generator) -> np.ndarray:
    """All distinct rows where there are few, otherwise centres of k-means on a sample."""
    distinct = np.unique(X, axis=0)
    if len(distinct) <= n_points:
        return distinct
    seed = int(rng.integers(2**31))
    sample = X[rng.choice(len(X), min(len(X), 100 * n_points), replace=False)]
    return k_means_centers(sample, n_points, seed)
