"""What exact and sparse Gaussian processes share: fit, predictions and saved models."""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from sigmax.checks import check_count
from sigmax.distributions import Mixture, Normal, Predictive, StudentT
from sigmax.estimators.atomic_fit import atomic_fit
from sigmax.estimators.base import AbstractRegressor
from sigmax.estimators.gp_average import (
    OFFSET,
    VARIANCE_PRIORS,
    averaged_df,
    averaged_over_noise,
    averaged_posterior,
    likelier_noise,
    mode_search,
)
from sigmax.estimators.gp_inference import GPRows, Hyper, Posterior, predict_latent
from sigmax.estimators.gp_noise import predict_noise
from sigmax.estimators.gp_search import Found, starts
from sigmax.features import Features
from sigmax.files import take_array
from sigmax.random import make_key, named_generator
from sigmax.tables import Table
from sigmax.targets import TargetUnits
from sigmax.training import bucket_size, pad_rows

__all__ = ["AbstractGPRegressor"]

LARGEST_AVERAGED, LARGEST_WIDE, ROWS_PER_LENGTH_SCALE = 200, 500, 10
"""Up to so many rows hyper-parameters are averaged over; more rows determine them well enough, but
for tables of many columns."""

ROWS_PER_CALL, AVERAGED_ROWS_PER_CALL = 2048, 512


def largest_averaged(n_length_scales: int) -> int:
    """The most rows with which hyper-parameters are averaged over.

    Examples
    --------
    >>> largest_averaged(8), largest_averaged(30), largest_averaged(100)
    (200, 300, 500)
    """
    wide = min(LARGEST_WIDE, ROWS_PER_LENGTH_SCALE * n_length_scales)
    return max(LARGEST_AVERAGED, wide)


class AbstractGPRegressor(AbstractRegressor):
    """One Gaussian process per output, on standardised data, in float64.

    Few rows hardly determine hyper-parameters, and those that make the evidence largest are then
    too sure of themselves: they are averaged over. For more rows a final class says how to find
    the posterior of one output.
    """

    n_restarts: int
    max_iter: int
    average: bool
    support: Any
    categorical_features: Any
    numeric_features: Any
    random_state: Any
    verbose: int

    units_: TargetUnits
    posterior_: Posterior
    log_evidence_: NDArray[np.float64]
    df_: float

    @abstractmethod
    def _infer(
        self, rows: GPRows, rng: np.random.Generator, advance: Callable[[str], None]
    ) -> tuple[Posterior, Found]:
        """The posterior of one output, and how it was found; ``advance`` is told every step."""

    def _average(
        self, rows: GPRows, rng: np.random.Generator, advance: Callable[[str], None]
    ) -> tuple[Posterior, Found]:
        """As `_infer`, with one posterior for every draw of the hyper-parameters."""
        modes = []
        for number, start in enumerate(starts(self.n_restarts, rows, rng), 1):
            advance(f"start {number} of {self.n_restarts}")
            modes.append(mode_search(start, rows, self.max_iter))
        advance("averaging")
        if not self._noise_varies:
            return averaged_posterior(modes, rows, rng)
        is_few = len(rows.y) <= largest_averaged(rows.n_length_scales)
        infer = averaged_over_noise if is_few else likelier_noise
        return infer(modes, rows, self.max_iter, rng)

    _noise_varies = False
    """Whether the noise may depend on x."""

    @property
    def _variance_prior(self) -> tuple[float, float]:
        return VARIANCE_PRIORS["wide"]

    def _averages(self, X: NDArray[np.float64]) -> bool:
        """Whether hyper-parameters are averaged over, given these rows."""
        n_length_scales = max(self._groups, default=X.shape[1] - 1) + 1
        return bool(self.average) and len(X) <= largest_averaged(n_length_scales)

    def recipe(self) -> dict[str, Any]:
        """All settings in force, by name."""
        self._check_settings()
        return super().recipe()

    def _check_settings(self) -> None:
        self.default_recipe.override(self.get_params(deep=False), keep_none=False)
        check_count("verbose", self.verbose, minimum=0)

    def fit(self, X, y, sample_weight=None) -> "AbstractGPRegressor":
        """Learn from rows ``X`` (n, d) and targets ``y`` (n,) or (n, p).

        Parameters
        ----------
        X : array-like or frame of shape (n, d)
        y : array-like of shape (n,) or (n, p)
            One target, or p targets, each with a process of its own.
        sample_weight : array-like of shape (n,), optional
            Precision of each row relative to the others: twice the weight, half the noise
            variance. A row of weight 0 is as good as absent.
        """
        with atomic_fit([self]) as (fresh,):
            fresh._fit(X, y, sample_weight)
        return self

    def _fit(self, X, y, sample_weight) -> None:
        self._check_settings()
        rows = self._read_training(X, y, sample_weight)
        y, weight = rows.y, rows.weight
        self._check_size(len(rows.table))
        key = make_key(self.random_state)
        self.units_ = TargetUnits.fit(y, weight, support=self.support)
        y = self.units_(y, np.float64)
        self.features_, inputs = Features.fit(rows.table, y, weight, rows.indices, np.float64)
        X, groups = np.asarray(inputs.coordinates), self._groups
        weight = weight / weight.mean()

        from rich.progress import Progress
        from threadpoolctl import threadpool_limits

        averages = self._averages(X)
        infer = self._average if averages else self._infer
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
                data = GPRows(
                    X, y[:, output], weight, groups=groups, variance_prior=self._variance_prior
                )
                inferred.append(infer(data, rng, advance))
        posteriors, found = zip(*inferred, strict=True)
        if not averages:
            posteriors = [jax.tree.map(lambda leaf: leaf[None], one) for one in posteriors]
        self.posterior_ = jax.tree.map(lambda *leaves: np.stack(leaves), *posteriors)
        self.df_ = averaged_df(len(X), self._variance_prior) if averages else math.inf
        self.log_evidence_ = np.array([one.log_evidence for one in found])
        self.n_iter_ = max(one.n_iter for one in found)

    def coordinates(self, X) -> NDArray[np.float64]:
        """Where rows lie, before length-scales: (n, c) in double precision."""
        rows = self._completed(X)
        return self._coordinates(rows.table[: rows.n_rows])

    def _coordinates(self, table: Table) -> NDArray[np.float64]:
        return np.asarray(self.features_(table, np.float64).coordinates, np.float64)

    @property
    def _groups(self) -> tuple[int, ...]:
        """Coordinates that share a length-scale; () if each has its own."""
        return () if self.features_.schema.is_plain else self.features_.length_scale_groups()

    def _check_size(self, n_rows: int) -> None:
        """Refuse more rows than can be dealt with."""

    def predict_dist(self, X) -> Predictive:
        """Densities of new measurements, noise included, in the units of ``y``.

        Normal, or the mixture of the Student-t densities of the hyper-parameters' draws. What is
        unknown of the function, and of the hyper-parameters, is epistemic.
        """
        rows = self._completed(X)
        mean, latent, noise = self._predict(rows.table)
        total = latent + noise
        if math.isinf(self.df_):
            dist = Normal(mean, np.sqrt(total))
        else:
            dist = StudentT(mean, np.full_like(mean, self.df_), np.sqrt(total))
        mixture = self.units_.bounded(rows.mixture(Mixture(dist, latent / total)))
        return Predictive(mixture, self.units_.interval_ends if self.units_.has_repeated else None)

    @property
    def length_scale_(self) -> NDArray[np.float64]:
        """How far each column must move to matter, in its units: (d,), or (p, d) for p outputs.

        The geometric mean of the draws where hyper-parameters are averaged over. Numbers and times
        come first, then flags of gaps and cycles of times, then categories, any two levels of
        which are 1 apart.
        """
        log_length_scale = np.mean(self.posterior_.hyper.log_length_scale, axis=1)
        length_scale = np.exp(log_length_scale)
        length_scale[:, : len(self.features_.scaling.scale)] *= self.features_.scaling.scale
        return length_scale[0] if self.is_single_output_ else length_scale

    def _predict(
        self, table: Table
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Mean, variance of the function and variance of the noise, in the units of ``y``.

        Of shape (draws, n) or (draws, n, p); the variances are squared scales of Student-t's where
        hyper-parameters are averaged over.
        """
        X = self._coordinates(table)
        n_outputs, n_draws = self.posterior_.hyper.log_noise.shape
        processes = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), self.posterior_)
        n_rows, blocks = ROWS_PER_CALL if n_draws == 1 else AVERAGED_ROWS_PER_CALL, []
        with jax.enable_x64(True):
            for start in range(0, len(X), n_rows):
                rows = X[start : start + n_rows]
                padded = pad_rows(rows, bucket_size(len(rows), smallest=64))
                parts = (*predict_latent(processes, padded), predict_noise(processes, padded))
                blocks.append([np.asarray(part)[:, : len(rows)] for part in parts])
        mean, latent, noise = (
            np.concatenate(part, axis=1).reshape(n_outputs, n_draws, len(X)).transpose(1, 2, 0)
            for part in zip(*blocks, strict=True)
        )
        scale = self.units_.scaling.scale
        mean, latent, noise = (
            self.units_.restore(mean),
            scale**2 * latent,
            scale**2 * noise,
        )
        if self.is_single_output_:
            return mean[..., 0], latent[..., 0], noise[..., 0]
        return mean, latent, noise

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        arrays = {"log_evidence": self.log_evidence_, "df": np.array([self.df_])}
        arrays |= self.features_.state() | self.units_.state()
        for part in (self.posterior_, self.posterior_.hyper):
            leaves = vars(part).items()
            arrays |= {name: leaf for name, leaf in leaves if isinstance(leaf, np.ndarray)}
        facts = {"is_single_output": bool(self.is_single_output_), "n_iter": self.n_iter_}
        return facts | self.features_.facts(), arrays

    def _set_state(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.is_single_output_ = bool(facts["is_single_output"])
        p = 1 if self.is_single_output_ else len(arrays["y.mean"])
        self.n_iter_ = int(facts["n_iter"])
        self.log_evidence_ = take_array(arrays, "log_evidence", (p,))
        self.features_ = Features.from_state(facts, arrays, p)
        self.units_ = TargetUnits.from_state(arrays, p)
        self.df_ = float(take_array(arrays, "df", ()))
        n_draws, m = arrays["points"].shape[1:3]
        groups = self._groups
        d = max(groups, default=self.n_features_in_ - 1) + 1
        n_coordinates = len(groups)
        n_coordinates = n_coordinates or d
        varies = "noise_coefficients" in arrays
        shapes = {"log_length_scale": (d,), "log_variance": (), "log_noise": ()}
        shapes |= {"points": (m, n_coordinates), "coefficients": (m,), "reduction": (m, m)}
        shapes |= {"noise_coefficients": (m,)} if varies else {}
        leaves = [take_array(arrays, name, (p, n_draws, *shape)) for name, shape in shapes.items()]
        offset = 0.0 if math.isinf(self.df_) else OFFSET
        self.posterior_ = Posterior(Hyper(*leaves[:3], offset=offset, groups=groups), *leaves[3:])
