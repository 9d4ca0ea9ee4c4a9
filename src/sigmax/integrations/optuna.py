"""Optuna: a sampler that chooses parameters by the expected improvement of predictions.

It needs Optuna, ``pip install "sigmax[optuna]"``.
"""

from typing import Any, final

import numpy as np
from scipy.stats import norm

from sigmax.errors import InvalidArgumentError, MissingExtraError
from sigmax.integrations.surrogates import fit_surrogate
from sigmax.settings import check_count

with MissingExtraError.unless_imported("sigmax.integrations.optuna needs Optuna", "optuna"):
    from optuna.distributions import (
        BaseDistribution,
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )
    from optuna.samplers import BaseSampler, RandomSampler
    from optuna.search_space import IntersectionSearchSpace
    from optuna.study import Study, StudyDirection
    from optuna.trial import FrozenTrial, TrialState

__all__ = ["SigmaxSampler"]

SHARE_NEAR = 0.5
"""Share of the candidates that are the best trial with some of its parameters changed."""

FARTHEST = 3.0  # largest distance below the median, in units of the best value's distance above it

STEPS = (0.003, 0.3)
"""Shortest and longest changes of parameters, as shares of their ranges."""


@final
class SigmaxSampler(BaseSampler):
    """Sampler that maximises the expected improvement of predictions.

    The first trials are random. Then a model of the finished trials predicts random candidates,
    half of them near the best trial, and the one with the largest expected improvement over the
    best predicted mean of the trials, without noise, is tried. Parameters that not all trials have
    are sampled at random; trials that were pruned or have failed are left out. The model is a
    Gaussian process averaged over its hyper-parameters, whose noise may depend on the parameters;
    with more than 1,000 trials, a sparse process. It is refitted after every trial.

    Parameters
    ----------
    n_startup_trials : int, default 10
        Random trials at the beginning.
    n_candidates : int, default 1024
        Number of candidates; the best one is tried.
    seed : int, optional
        The same seed gives the same trials, where these are run one after the other.
    noise_free : bool, default False
        True if the same parameters always give the same value.
    settings
        Further settings of the model, a `GPRegressor` or a `SparseGPRegressor`.

    Examples
    --------
    >>> import optuna
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> study = optuna.create_study(sampler=SigmaxSampler(seed=0))
    >>> study.optimize(lambda trial: trial.suggest_float("x", -1, 1) ** 2, n_trials=12)
    >>> len(study.trials)
    12
    """

    def __init__(
        self,
        *,
        n_startup_trials: int = 10,
        n_candidates: int = 1024,
        seed: int | None = None,
        noise_free: bool = False,
        **settings: Any,
    ):
        self.n_startup_trials = check_count("n_startup_trials", n_startup_trials)
        self.n_candidates = check_count("n_candidates", n_candidates)
        self.settings = {"noise_free": noise_free} | settings
        self._rng, self._random = np.random.default_rng(seed), RandomSampler(seed)
        self._search_space = IntersectionSearchSpace()

    def reseed_rng(self) -> None:
        self._rng = np.random.default_rng()
        self._random.reseed_rng()

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        space = self._search_space.calculate(study)
        return {name: each for name, each in space.items() if not each.single()}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if len(study.directions) > 1:
            raise InvalidArgumentError("SigmaxSampler optimises one value, and the study has more.")
        trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        trials = [each for each in trials if each.value is not None and np.isfinite(each.value)]
        if not search_space or len(trials) < max(self.n_startup_trials, 2):
            return {}
        sign = 1.0 if study.direction == StudyDirection.MAXIMIZE else -1.0
        X = np.array([encoded(each.params, search_space) for each in trials])
        y = clip_low_values(sign * np.array([each.value for each in trials]))
        kinds = [isinstance(each, CategoricalDistribution) for each in search_space.values()]
        chosen: dict[str, Any] = {"random_state": int(self._rng.integers(2**31))}
        chosen["categorical_features"] = np.flatnonzero(kinds).tolist() or None
        model = fit_surrogate(X, y, **chosen | self.settings)
        expected = model.predict(X)
        candidates = self._candidates(X[np.argmax(expected)], search_space)
        dist = model.predict_dist(candidates)
        mean, std = dist.mean, np.sqrt(dist.epistemic_variance)
        z = (mean - expected.max()) / np.maximum(std, 1e-300)
        improvement = std * (z * norm.cdf(z) + norm.pdf(z))
        return decoded(candidates[np.argmax(improvement)], search_space)

    def _candidates(self, best: np.ndarray, space: dict[str, BaseDistribution]) -> np.ndarray:
        """Random parameters, and changes of the best ones."""
        n, n_near, rng = self.n_candidates, round(SHARE_NEAR * self.n_candidates), self._rng
        drawn = np.stack([rng.uniform(*bounds(each), size=n) for each in space.values()], axis=1)
        step = np.exp(rng.uniform(*np.log(STEPS), size=(n_near, 1)))
        is_changed = rng.random((n_near, len(space))) < max(0.5, 1 / len(space))
        near = np.tile(best, (n_near, 1))
        for j, each in enumerate(space.values()):
            low, high = bounds(each)
            moved = near[:, j] + step[:, 0] * (high - low) * rng.normal(size=n_near)
            if isinstance(each, CategoricalDistribution):
                moved = drawn[:n_near, j]
            near[:, j] = np.where(is_changed[:, j], np.clip(moved, low, high), near[:, j])
        drawn[:n_near] = near
        return np.array([encoded(decoded(row, space), space) for row in drawn])  # on their grids


def clip_low_values(y: np.ndarray) -> np.ndarray:
    """Clip values to maximise at `FARTHEST` times the best one's distance below the median.

    A very bad trial would otherwise dominate the variance of all values.

    Examples
    --------
    >>> clip_low_values(np.array([1.0, 2.0, 3.0, -1e9])).tolist()
    [1.0, 2.0, 3.0, -3.0]
    """
    middle = np.median(y)
    above = y.max() - middle
    return np.maximum(y, middle - FARTHEST * above) if above > 0 else y


def bounds(distribution: BaseDistribution) -> tuple[float, float]:
    """Range of a parameter for the model; steps of a grid have the same share each."""
    if isinstance(distribution, CategoricalDistribution):
        return 0.0, len(distribution.choices) - 1e-9
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    half = (distribution.step or 0.0) / 2
    low, high = distribution.low - half, distribution.high + half
    return (float(np.log(low)), float(np.log(high))) if distribution.log else (low, high)


def encoded(parameters: dict[str, Any], space: dict[str, BaseDistribution]) -> list[float]:
    """Parameters as a row: categories by their number, the logarithm where the scale is one."""
    row = []
    for name, each in space.items():
        value = parameters[name]
        if isinstance(each, CategoricalDistribution):
            value = np.floor(each.to_internal_repr(value))
        elif isinstance(each, FloatDistribution | IntDistribution) and each.log:
            value = np.log(value)
        row.append(float(value))
    return row


def decoded(row: np.ndarray, space: dict[str, BaseDistribution]) -> dict[str, Any]:
    """Parameters of a row, on their grids and within their bounds."""
    found: dict[str, Any] = {}
    for (name, each), value in zip(space.items(), row, strict=True):
        if isinstance(each, CategoricalDistribution):
            found[name] = each.choices[int(value)]
            continue
        assert isinstance(each, FloatDistribution | IntDistribution)
        value = float(np.exp(value)) if each.log else float(value)
        if each.step:
            value = each.low + each.step * round((value - each.low) / each.step)
        value = min(max(value, each.low), each.high)
        found[name] = int(value) if isinstance(each, IntDistribution) else value
    return found
