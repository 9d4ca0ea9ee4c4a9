"""Densities of a target of which a monotone function was modelled, against fine grids."""

from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

from sigmax.distributions import Mapped, Mixture, MonotoneSpline, Normal, Predictive, StudentT
from sigmax.features import TargetUnits

N_ROWS = 5
TOLERANCE = 1e-3
"""Of the standard deviation, as `Mapped` says of its integrals."""

call = jax.jit(
    lambda name, dist, *arguments: getattr(dist, name)(*arguments), static_argnames=("name",)
)


def target_spline(n_outputs=None) -> MonotoneSpline:
    """The normal scores of a skewed target."""
    y = np.exp(np.random.default_rng(0).normal(size=(2000, n_outputs or 1)))
    spline = TargetUnits.fit(y, np.ones(len(y)), "normal-scores").spline
    assert spline is not None
    return spline if n_outputs else jax.tree.map(lambda leaf: leaf[:, 0], spline)


def base(shape=(N_ROWS,), seed=0) -> Mixture:
    """Two members of two components each, narrow and wide."""
    rng = np.random.default_rng(seed)
    weight = rng.dirichlet(np.ones(2), (2, *shape)) / 2
    components = StudentT(
        rng.normal(0, 0.7, (4, *shape)),
        rng.uniform(5, 30, (4, *shape)),
        rng.uniform(0.05, 0.8, (4, *shape)),
    )
    weight = np.moveaxis(weight, -1, 1).reshape(4, *shape)
    return Mixture(components, np.full((4, *shape), 0.2), np.log(weight), 2)


@pytest.fixture(scope="module")
def cases():
    """The density, and for every row its components in SciPy, on a grid that is fine in t."""
    dist = Mapped(base(), target_spline())
    parts, weights = dist.base.components, np.exp(np.asarray(dist.base.log_weight))
    assert isinstance(parts, StudentT)
    t = np.sinh(np.linspace(-8, 8, 400_001))
    members: list[Any] = [
        stats.t(parts.df[:, j, None], parts.mean[:, j, None], parts.scale[:, j, None])
        for j in range(N_ROWS)
    ]
    with jax.enable_x64(True):
        y = np.asarray(call("inverse", dist.spline, t))
    pdf = [weights[:, j] @ each.pdf(t) for j, each in enumerate(members)]
    cdf = [weights[:, j] @ each.cdf(t) for j, each in enumerate(members)]
    return dist, t, y, pdf, cdf


def moments(t, y, pdf) -> tuple[float, float]:
    mean = np.trapezoid(y * pdf, t)
    return mean, np.trapezoid((y - mean) ** 2 * pdf, t)


def integral_of_errors(y, cdf, at: float, power: int) -> float:
    """∫ |F − step at y|^power on both sides of the step."""
    i, level = np.searchsorted(y, at), np.interp(at, y, cdf)
    below = np.trapezoid(np.append(cdf[:i], level) ** power, np.append(y[:i], at))
    above = np.append(1 - level, 1 - cdf[i:]) ** power
    return below + np.trapezoid(above, np.append(at, y[i:]))


def test_the_density_integrates_to_one_and_to_the_cdf(cases):
    dist, _, y, _, cdf = cases
    for j in range(N_ROWS):
        row = jax.tree.map(lambda leaf, j=j: leaf[:, j : j + 1], dist.base)
        copies = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (len(leaf), len(y))), row)
        with jax.enable_x64(True):
            density = np.exp(call("log_prob", Mapped(copies, dist.spline), y))
            below = np.asarray(call("cdf", Mapped(copies, dist.spline), y))
        np.testing.assert_allclose(below, cdf[j], atol=1e-8)
        assert np.trapezoid(density, y) == pytest.approx(1, abs=1e-5)
        half = len(y) // 2
        assert np.trapezoid(density[:half], y[:half]) == pytest.approx(cdf[j][half], abs=1e-4)


@pytest.mark.parametrize("q", [1e-4, 0.05, 0.5, 0.9, 0.9999])
def test_the_quantile_inverts_the_cdf(cases, q):
    dist, *_ = cases
    with jax.enable_x64(True):
        roots = call("quantile", dist, q)
        np.testing.assert_allclose(call("cdf", dist, roots), q, rtol=1e-6)


def test_moments_are_those_of_a_fine_grid(cases):
    dist, t, y, pdf, _ = cases
    with jax.enable_x64(True):
        mean, variance, std = dist.mean, dist.variance, dist.std
        parts = dist.aleatoric_variance + dist.epistemic_variance
    np.testing.assert_allclose(parts, variance, rtol=1e-9)
    for j in range(N_ROWS):
        expected, spread = moments(t, y, pdf[j])
        assert mean[j] == pytest.approx(expected, abs=TOLERANCE * np.sqrt(spread))
        assert std[j] == pytest.approx(np.sqrt(spread), rel=TOLERANCE)


def test_scores_are_those_of_a_fine_grid(cases):
    dist, t, y, pdf, cdf = cases
    at = np.array([0.05, 0.8, 1.5, 4.0, 30.0])
    with jax.enable_x64(True):
        scores = call("crps", dist, at), call("absolute_error", dist, at), dist.mean_difference
    crps, error, spread = (np.asarray(part) for part in scores)
    for j in range(N_ROWS):
        std = np.sqrt(moments(t, y, pdf[j])[1])
        expected = [integral_of_errors(y, cdf[j], at[j], power) for power in (2, 1)]
        assert crps[j] == pytest.approx(expected[0], abs=TOLERANCE * std)
        assert error[j] == pytest.approx(expected[1], abs=TOLERANCE * std)
        expected = 2 * np.trapezoid(cdf[j] * (1 - cdf[j]), y)
        assert spread[j] == pytest.approx(expected, abs=TOLERANCE * std)
        assert crps[j] == pytest.approx(error[j] - spread[j] / 2, abs=2 * TOLERANCE * std)


SHAPES = {
    "far apart": ([-1.0, 1.0], [8.0, 8.0], [1e-3, 1.0]),
    "very narrow": ([0.3, 0.31], [6.0, 20.0], [1e-4, 1e-4]),
    "wider than all targets": ([0.0, 0.5], [5.0, 9.0], [3.0, 4.0]),
    "alone": ([1.2, 1.2], [30.0, 30.0], [0.2, 0.2]),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_crps_of_nasty_components_is_that_of_a_fine_grid(name):
    """Also at values that are far from all components, in their own units."""
    mean, df, scale = (np.array(part)[:, None] for part in SHAPES[name])
    spline, at = target_spline(), np.array([0.02, 0.7, 1.4, 20.0])
    copies = (np.broadcast_to(part, (2, len(at))) for part in (mean, df, scale))
    dist = Mapped(Mixture(StudentT(*copies)), spline)
    steps = np.sinh(np.linspace(-14, 14, 100_001))
    t = np.concatenate([mean[i] + scale[i] * steps for i in range(2)] + [np.sinh(steps / 1e5)])
    t = np.unique(t[np.abs(t) < 3000])
    members: Any = stats.t(df, mean, scale)
    cdf, pdf = (np.mean(values, axis=0) for values in (members.cdf(t), members.pdf(t)))
    with jax.enable_x64(True):
        crps = call("crps", dist, at)
        y = np.asarray(call("inverse", spline, t))
    std = np.sqrt(moments(t, y, pdf)[1])
    expected = [integral_of_errors(y, cdf, value, 2) for value in at]
    np.testing.assert_allclose(crps, expected, atol=TOLERANCE * std)


def test_the_map_that_changes_nothing_leaves_the_mixture_itself():
    x = np.linspace(-3, 3, 7)
    mixture, y = base(), np.linspace(-2, 2, N_ROWS)
    dist = Mapped(mixture, MonotoneSpline.through(x, x))
    with jax.enable_x64(True):
        for name in ("log_prob", "cdf"):
            np.testing.assert_allclose(call(name, dist, y), call(name, mixture, y), rtol=1e-9)
        np.testing.assert_allclose(
            call("quantile", dist, 0.2), call("quantile", mixture, 0.2), rtol=1e-9
        )
        std = np.asarray(mixture.std)
        for name in ("crps", "absolute_error"):
            off = np.abs(call(name, dist, y) - call(name, mixture, y))
            assert np.all(off < TOLERANCE * std)
        assert np.all(np.abs(dist.mean - mixture.mean) < TOLERANCE * std)
        np.testing.assert_allclose(dist.std, std, rtol=TOLERANCE)
        for name in ("aleatoric_variance", "epistemic_variance"):
            np.testing.assert_allclose(getattr(dist, name), getattr(mixture, name), rtol=3e-3)
        key = jax.random.key(0)
        np.testing.assert_allclose(dist.sample(key, 9), mixture.sample(key, 9), rtol=1e-9)


def test_a_map_to_logarithms_is_the_log_normal():
    """Nearly: the spline is a logarithm between many knots."""
    x = np.geomspace(1e-4, 1e4, 4001)
    dist = Mapped(
        Mixture(Normal(np.full((1, 1), 0.3), np.full((1, 1), 0.5))),
        MonotoneSpline.through(x, np.log(x)),
    )
    truth: Any = stats.lognorm(0.5, scale=np.exp(0.3))
    with jax.enable_x64(True):
        assert float(dist.mean[0]) == pytest.approx(truth.mean(), rel=1e-4)
        assert float(dist.std[0]) == pytest.approx(truth.std(), rel=1e-3)
        for q in (0.01, 0.5, 0.99):
            assert float(dist.quantile(q)[0]) == pytest.approx(truth.ppf(q), rel=1e-4)
        got = float(call("log_prob", dist, np.array([2.0]))[0])
    assert got == pytest.approx(truth.logpdf(2.0), abs=1e-4)


def test_draws_follow_the_cdf(cases):
    """Kolmogorov-Smirnov at p > 1e-4 for 5 columns: about 1 seed in 2 000 would fail."""
    dist, *_ = cases
    draws = np.asarray(dist.sample(jax.random.key(1), 3000), dtype=np.float64)
    for j in range(N_ROWS):
        row = jax.tree.map(lambda leaf, j=j: np.repeat(leaf[:, j : j + 1], 3000, 1), dist.base)
        with jax.enable_x64(True):
            cdf = np.asarray(call("cdf", Mapped(row, dist.spline), draws[:, j]))
        assert stats.kstest(cdf, "uniform").pvalue > 1e-4


def test_affine_moves_quantiles_and_scores(cases):
    dist, y = cases[0], np.linspace(0.1, 3, N_ROWS)
    with jax.enable_x64(True):
        moved = dist.affine(-2.0, 3.0)
        expected = -2 + 3 * call("quantile", dist, 0.3)
        np.testing.assert_allclose(call("quantile", moved, 0.3), expected, rtol=1e-7)
        np.testing.assert_allclose(
            call("log_prob", moved, -2 + 3 * y), call("log_prob", dist, y) - np.log(3), rtol=1e-7
        )
        np.testing.assert_allclose(
            call("crps", moved, -2 + 3 * y), 3 * call("crps", dist, y), rtol=1e-6
        )


def test_of_several_outputs_each_has_its_own_map():
    spline, mixture = target_spline(2), base((N_ROWS, 2))
    both, y = Predictive(Mapped(mixture, spline)), np.full((N_ROWS, 2), 1.3)
    assert both.shape == (N_ROWS, 2)
    for j in range(2):
        own = jax.tree.map(lambda leaf, j=j: leaf[..., j], (mixture, spline))
        alone = Predictive(Mapped(*own))
        for name in ("log_prob", "cdf", "crps"):
            got, expected = getattr(both, name)(y), getattr(alone, name)(y[:, j])
            np.testing.assert_allclose(got[:, j], expected, rtol=1e-9)
        np.testing.assert_allclose(both.interval(0.8)[:, j], alone.interval(0.8), rtol=1e-9)
        np.testing.assert_allclose(both.mean[:, j], alone.mean, rtol=1e-9)


def test_a_prediction_of_rows_keeps_the_map_of_all():
    # As many rows as knots: the axis of one must not be taken for that of the other.
    spline = target_spline()
    dist = Predictive(Mapped(base((len(np.asarray(spline.x)),)), spline))
    for rows in (slice(2, 9), np.arange(len(dist)) % 3 == 0, [4, 1]):
        part = dist[rows]
        np.testing.assert_allclose(part.mean, dist.mean[rows], rtol=1e-12)
        np.testing.assert_allclose(part.crps(1.0), dist.crps(1.0)[rows], rtol=1e-9)
        np.testing.assert_allclose(part.quantile(0.9), dist.quantile(0.9)[rows], rtol=1e-9)
        np.testing.assert_array_equal(part.dist.spline.x, spline.x)
    assert dist.sample(3, random_state=0).shape == (3, len(dist))
    assert repr(dist) == f"Predictive(Mapped of 2 StudentT, shape=({len(dist)},))"
