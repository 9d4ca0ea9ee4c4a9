"""Scale factors of recalibration against closed forms and a fine grid."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from sigmax.calibration import best_scale_factor, coverage_match, pit_histogram
from sigmax.distributions import Mixture, Normal, Predictive, StudentT
from sigmax.errors import InvalidArgumentError

factor = jax.jit(best_scale_factor)
matching = jax.jit(partial(best_scale_factor, criterion=coverage_match))
Y = np.random.default_rng(0).standard_t(4, size=200)


def normal(std: float, n: int = 200) -> Normal:
    return Normal(jnp.zeros(n), jnp.full(n, std))


@pytest.mark.parametrize("std", [0.5, 1.0, 2.5])
def test_the_factor_of_a_normal_is_the_root_mean_square_of_its_residuals(std):
    weight = np.random.default_rng(1).uniform(0, 1, 200)
    expected = np.sqrt(np.average((Y / std) ** 2, weights=weight))
    got = factor(normal(std), jnp.asarray(Y), jnp.asarray(weight))
    assert got == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("mixed", [False, True])
def test_the_factor_maximises_the_likelihood(mixed):
    with jax.enable_x64(True):
        dist = StudentT(np.zeros(200), np.full(200, 5.0), np.full(200, 0.4))
        if mixed:
            dist = Mixture(jax.tree.map(lambda leaf: np.stack([leaf, 1.7 * leaf]), dist))
        got = float(factor(dist, jnp.asarray(Y), jnp.ones(200)))
        grid = np.exp(np.linspace(-np.log(4), np.log(4), 2001))
        score = jax.jit(lambda s: dist.widen(s).log_prob(jnp.asarray(Y)).sum())
        assert got == pytest.approx(grid[np.argmax([score(s) for s in grid])], rel=2e-3)


@pytest.mark.parametrize("std", [0.5, 2.5])
def test_intervals_have_their_nominal_coverage_after_the_factor_that_matches_coverage(std):
    got = float(matching(normal(std), jnp.asarray(Y), jnp.ones(200)))
    levels = np.array([0.5, 0.8, 0.9])
    held = [np.mean(np.abs(Y) <= got * std * stats.norm.ppf(0.5 + level / 2)) for level in levels]
    # Tails of a t with four degrees of freedom: no factor on a Normal is right at all levels.
    assert np.abs(held - levels).max() < 0.05 and abs(np.mean(held - levels)) < 0.01


def test_an_atom_does_not_narrow_intervals():
    """Half of the rows are 0: the likelihood is highest for a density without anything else."""
    y = np.where(np.arange(400) % 2 == 0, 0.0, np.random.default_rng(2).normal(size=400))
    spike = Normal(jnp.zeros((2, 400)), jnp.stack([jnp.ones(400), jnp.full(400, 0.01)]))
    dist, y = Mixture(spike), jnp.asarray(y)
    covered = np.mean(np.abs(2 * dist.widen(matching(dist, y, jnp.ones(400))).cdf(y) - 1) < 0.9)
    assert 0.85 < covered < 0.95
    narrow = np.mean(np.abs(2 * dist.widen(factor(dist, y, jnp.ones(400))).cdf(y) - 1) < 0.9)
    assert narrow < covered  # by how much depends on the spike


def test_the_highest_of_several_peaks_is_found():
    components = Normal(jnp.array([[-10.0], [10.0]]), jnp.array([[0.3], [8.0]]))
    dist, y = Mixture(components), jnp.array([-10.5])
    grid = jnp.exp(jnp.linspace(-np.log(4), np.log(4), 2001))
    scores = jax.vmap(lambda s: dist.widen(s).log_prob(y)[0])(grid)
    got = factor(dist, y, jnp.ones(1))
    assert dist.widen(got).log_prob(y)[0] == pytest.approx(float(scores.max()), abs=1e-5)


@pytest.mark.parametrize(("std", "end"), [(100.0, 0.25), (0.001, 4.0)])
def test_the_factor_stays_between_a_quarter_and_four(std, end):
    assert factor(normal(std), jnp.asarray(Y), jnp.ones(200)) == pytest.approx(end, rel=1e-5)


def test_padding_is_ignored():
    pad = lambda x, value: jnp.pad(jnp.asarray(x), (0, 56), constant_values=value)  # noqa: E731
    padded = Normal(pad(jnp.zeros(200), jnp.nan), pad(jnp.ones(200), 0.0))
    got = factor(padded, pad(Y, jnp.inf), pad(jnp.ones(200), 0.0))
    expected = factor(normal(1.0), jnp.asarray(Y), jnp.ones(200))
    assert got == pytest.approx(float(expected), rel=1e-3)


def test_the_factor_is_one_without_any_weight():
    assert factor(normal(3.0), jnp.asarray(Y), jnp.zeros(200)) == 1


def test_rows_of_several_outputs_share_a_factor_and_members_can_be_vmapped():
    y = jnp.stack([jnp.asarray(Y[:100]), jnp.asarray(Y[100:])], axis=1)
    table = Normal(jnp.zeros((100, 2)), jnp.ones((100, 2)))
    expected = factor(normal(1.0), jnp.asarray(Y), jnp.ones(200))
    assert factor(table, y, jnp.ones(100)) == pytest.approx(float(expected), rel=1e-3)
    members = Normal(jnp.zeros((2, 200)), jnp.stack([jnp.ones(200), jnp.full(200, 2.0)]))
    both = jax.vmap(best_scale_factor, (0, None, None))(members, jnp.asarray(Y), jnp.ones(200))
    np.testing.assert_allclose(both, [expected, expected / 2], rtol=1e-3)


def test_the_pit_histogram_has_area_one_and_counts_the_transforms():
    dist = Predictive(Normal(np.zeros(200), np.ones(200)))
    heights = pit_histogram(Y, dist, bins=8)
    counts, _ = np.histogram(dist.cdf(Y), np.linspace(0, 1, 9))
    np.testing.assert_allclose(heights, counts / 200 * 8)
    assert heights[0] > 1 and heights[-1] > 1  # heavy tails stick out of a Normal
    with pytest.raises(InvalidArgumentError, match="`bins` must be a whole number"):
        pit_histogram(Y, dist, bins=0)
