"""Stacked distributions, by quadrature, simulation and distributions of SciPy."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats

from sigmax.distributions import (
    ExpertPart,
    Mixture,
    Normal,
    PowerTransform,
    Predictive,
    Stacked,
    StudentT,
    Units,
)

ROWS = 3


CALIBRATION = np.array([0.02, 0.2, 0.3, 0.3, 0.08, 0.1])


def make(transform: bool = False, calibration: bool = False) -> Stacked:
    rng = np.random.default_rng(0)
    shape = 2, ROWS, 1
    mean, scale = rng.normal(size=shape), rng.uniform(0.3, 1.0, size=shape)
    log_weight = np.log(np.array([0.3, 0.7]))[:, None, None] + np.zeros(shape)
    normals = Mixture(Normal(mean, scale), None, log_weight, 2)
    tails = Mixture(StudentT(mean[:1] + 1, np.full((1, ROWS, 1), 6.0), scale[:1]))
    y = np.exp(rng.normal(size=(200, 1)))
    fitted = PowerTransform.fit((y - y.mean()) / y.std()) if transform else None
    weight = np.broadcast_to(np.log([[[0.4]], [[0.6]]]), (2, ROWS, 1)).copy()
    parts = ExpertPart(normals), ExpertPart(tails, fitted)
    own = np.tile(CALIBRATION[:, None, None], (1, ROWS, 1)) if calibration else None
    return Stacked(parts, weight, Units.standard(1), own).affine(2.0, 3.0)


def density(dist: Stacked, row: int):
    def at(y: float) -> float:
        return float(np.exp(dist.log_prob(np.full((ROWS, 1), y)))[row, 0])

    return at


@pytest.mark.parametrize("calibration", [False, True])
@pytest.mark.parametrize("transform", [False, True])
def test_density_cdf_quantiles_and_moments_fit_each_other(transform, calibration):
    dist = make(transform, calibration)
    for row in range(ROWS):
        p = density(dist, row)
        median = dist.quantile(0.5)[row, 0]
        below = integrate.quad(p, -np.inf, median, limit=400)[0]
        above = integrate.quad(p, median, np.inf, limit=400)[0]
        assert below == pytest.approx(0.5, abs=1e-6) and above == pytest.approx(0.5, abs=1e-6)
        mean = integrate.quad(lambda y, p=p: y * p(y), -200, 200, limit=800, points=[median])[0]
        assert dist.mean[row, 0] == pytest.approx(mean, abs=0.02)
        squares = integrate.quad(
            lambda y, p=p, m=mean: (y - m) ** 2 * p(y), -200, 200, limit=800, points=[median]
        )[0]
        assert dist.variance[row, 0] == pytest.approx(squares, rel=0.05)
    np.testing.assert_allclose(dist.aleatoric_variance + dist.epistemic_variance, dist.variance)
    np.testing.assert_allclose(dist.cdf(dist.quantile(0.03)), 0.03, atol=1e-8)


def test_calibrated_probabilities_are_those_of_a_mixture_of_beta_distributions():
    plain, dist, n = make(), make(calibration=True), len(CALIBRATION)
    y = np.full((ROWS, 1), 3.0)
    betas = [stats.beta(k + 1, n - k).cdf(plain.cdf(y)) for k in range(n)]
    np.testing.assert_allclose(dist.cdf(y), np.tensordot(CALIBRATION, betas, axes=1))
    uniform = replace(plain, calibration=np.full((n, ROWS, 1), 1 / n))
    for name in ("mean", "variance", "epistemic_variance"):
        np.testing.assert_allclose(getattr(uniform, name), getattr(plain, name))
    np.testing.assert_allclose(uniform.quantile(0.2), plain.quantile(0.2), atol=1e-7)


def test_one_normal_has_the_scores_of_scipy():
    mean, std = np.array([[0.5], [-1.0]]), np.array([[2.0], [0.1]])
    part = ExpertPart(Mixture(Normal(mean[None], std[None])))
    dist = Predictive(Stacked((part,), np.zeros((1, 2, 1)), Units.standard(1)))
    y = np.array([[1.0], [-1.2]])
    z = (y - mean) / std
    crps = std * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - np.pi**-0.5)
    np.testing.assert_allclose(dist.log_prob(y), stats.norm.logpdf(y, mean, std))
    np.testing.assert_allclose(dist.crps(y), crps, rtol=1e-3)
    np.testing.assert_allclose(dist.quantile(0.9), stats.norm.ppf(0.9, mean, std), atol=1e-7)
    np.testing.assert_allclose(
        dist.absolute_error(y)[0], stats.norm(0.5, 2).expect(lambda v: abs(v - 1.0)), rtol=1e-3
    )


@pytest.mark.parametrize("calibration", [False, True])
def test_draws_have_the_distribution(calibration):
    dist = Predictive(make(transform=True, calibration=calibration))
    draws = dist.sample(400 if calibration else 4000, random_state=0)[:, :, 0]
    for row in range(ROWS):
        uniform = np.concatenate([dist.cdf(np.full((ROWS, 1), y))[row] for y in draws[:300, row]])
        assert stats.kstest(uniform, "uniform").pvalue > 1e-4


def test_bounds_take_the_probability_beyond_them():
    plain = make()
    dist = plain.bounded([0.0], [4.0])
    np.testing.assert_allclose(dist.cdf(np.full((ROWS, 1), 0.0)), plain.cdf(np.zeros((ROWS, 1))))
    assert np.all(dist.cdf(np.full((ROWS, 1), 4.0)) == 1)
    assert np.all(dist.quantile(1e-4) == 0) and np.all(dist.quantile(0.9999) == 4)
    draws = np.clip(plain.sample(np.random.default_rng(0), 20_000), 0, 4)
    np.testing.assert_allclose(dist.mean, draws.mean(axis=0), atol=0.05)
    np.testing.assert_allclose(dist.variance, draws.var(axis=0), rtol=0.1)
    y = np.full((ROWS, 1), 1.0)
    expected = np.abs(draws - y).mean(axis=0) - np.abs(draws[::2] - draws[1::2]).mean(axis=0) / 2
    np.testing.assert_allclose(dist.crps(y), expected, atol=0.05)


def test_moments_of_a_normal_within_bounds_are_those_of_quadrature():
    mean, std = np.array([[[0.3], [-2.0], [5.0]]]), np.array([[[1.0], [0.5], [2.0]]])
    part = ExpertPart(Mixture(Normal(mean, std)))
    dist = Stacked((part,), np.zeros((1, 3, 1)), Units.standard(1)).bounded([0.0], [np.inf])
    for row in range(3):
        normal = stats.norm(mean[0, row, 0], std[0, row, 0])
        first, second = (
            normal.expect(lambda y, k=power: max(y, 0.0) ** k, limit=400) for power in (1, 2)
        )
        assert dist.mean[row, 0] == pytest.approx(first, abs=1e-6)
        assert dist.variance[row, 0] == pytest.approx(second - first**2, abs=1e-6)


def test_cells_have_their_probability_at_their_value():
    plain = make()
    values, cells = np.array([1.0, 2.0]), np.array([[0.5, 1.5], [1.5, 2.5]])
    dist = plain.discrete(values, cells)
    full = np.full((ROWS, 1), 1.0)
    mass = dist.cdf(full) - dist.cdf(full - 1e-9)
    np.testing.assert_allclose(mass, plain.cdf(full + 0.5) - plain.cdf(full - 0.5))
    np.testing.assert_allclose(dist.log_prob(full), np.log(mass))
    assert set(dist.quantile(plain.cdf(full + 0.3)).ravel()) == {1.0}
    np.testing.assert_allclose(dist.cdf(full * 9), plain.cdf(full * 9))  # beyond all cells


def test_rows_of_a_mixture_over_choices():
    dist = make()
    choices = np.array([[0, 1], [2, 1]])
    either = dist.over_choices(choices, np.log(np.full((2, 2), 0.5)))
    y = np.full((2, 1), 2.5)
    levels = dist.cdf(np.full((ROWS, 1), 2.5))[:, 0]
    expected = [(levels[0] + levels[2]) / 2, levels[1]]
    np.testing.assert_allclose(either.cdf(y)[:, 0], expected)


def test_the_transform_is_monotone_and_goes_on_in_straight_lines():
    y = np.random.default_rng(0).lognormal(size=(300, 1))
    transform = PowerTransform.fit(y)
    assert transform is not None
    t = np.linspace(-5, 60, 500)[:, None]
    assert np.all(np.diff(transform(t)[:, 0]) > 0)
    np.testing.assert_allclose(transform.inverse(transform(t)), t, atol=1e-8)
    slope = (transform(t + 1e-6) - transform(t - 1e-6)) / 2e-6
    np.testing.assert_allclose(np.log(slope), transform.log_slope(t), atol=1e-4)
    moved = transform(y)
    assert abs(stats.skew(moved[:, 0])) < 0.5 * stats.skew(y[:, 0])
    np.testing.assert_allclose([moved.mean(), moved.std()], [0.0, 1.0], atol=1e-9)


def many_rows(narrow: float, n: int = 200) -> Stacked:
    """A part that rows do not share, one with a Student-t, and two that they share."""
    rng = np.random.default_rng(3)
    shared, means = np.linspace(-3, 3, 20)[:, None, None], rng.normal(size=(3, n, 1))
    marginal = Normal(*(np.broadcast_to(own, (20, n, 1)) for own in (shared, 0.4)))
    y = np.exp(rng.normal(size=(200, 1)))
    parts = (
        ExpertPart(Mixture(Normal(means[:1], np.full((1, n, 1), narrow)))),
        ExpertPart(Mixture(StudentT(means[1:2], np.full((1, n, 1), 5.0), np.ones((1, n, 1))))),
        ExpertPart(Mixture(marginal, n_parts=20)),
        ExpertPart(Mixture(marginal, n_parts=20), PowerTransform.fit((y - y.mean()) / y.std())),
    )
    weight = np.broadcast_to(np.array([0.6, 0.2, 0.1, 0.1])[:, None, None], (4, n, 1))
    own = np.tile(CALIBRATION[:, None, None], (1, n, 1))
    return Stacked(parts, np.log(weight), Units.standard(1), own)


@pytest.mark.parametrize("narrow", [0.5, 0.001])
def test_the_crps_of_many_cells_is_a_sum_over_them(narrow):
    dist = many_rows(narrow)
    values = np.arange(-60.0, 60.0, 0.1)
    dist = dist.discrete(values, np.stack([values - 0.05, values + 0.05], axis=-1))
    at = np.random.default_rng(0).integers(580, 620, size=dist.shape)
    level = np.stack([dist.cdf(np.full(dist.shape, value)) for value in values])
    is_above = np.arange(len(values)).reshape(-1, 1, 1) >= at
    expected = 0.1 * np.sum((level - is_above) ** 2, axis=0)
    np.testing.assert_allclose(dist.crps(values[at]), expected, rtol=1e-4)


def test_a_cdf_from_a_table_is_the_cdf():
    y = np.linspace(-9, 9, 200)[:, None]
    for part in many_rows(0.5).parts[1:]:
        assert np.ptp(part.cdf(y)) > 0.9
        np.testing.assert_allclose(part.rough_cdf(y), part.cdf(y), atol=2e-6)


@pytest.mark.parametrize("narrow", [0.5, 0.001])
def test_quantiles_at_many_levels_are_those_at_each(narrow):
    dist = many_rows(narrow, 100)
    level = np.concatenate(
        [np.random.default_rng(0).random((20, 100, 1)), np.full((1, 100, 1), 1e-9)]
    )
    found = dist.quantiles(level)
    np.testing.assert_allclose([dist.cdf(own) for own in found], level, atol=5e-6)
    np.testing.assert_allclose(
        found[:-1], [dist.quantile(own) for own in level[:-1]], rtol=1e-3, atol=1e-5
    )
