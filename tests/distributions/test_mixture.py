"""Mixtures: very unequal members, and members that are all the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sigmax.distributions import Mixture, Normal, StudentT

NASTY = {
    "far_apart": StudentT(*np.array([[0.0, 1e3], [5.0, 5.0], [1e-3, 10.0]])[..., None]),
    "cauchy": StudentT(*np.array([[0.0, 3.0], [1.0, 1.0], [1e-3, 1e3]])[..., None]),
    "heavy_and_light": StudentT(*np.array([[0.0, 0.1], [2.01, 1e6], [1.0, 1e-4]])[..., None]),
    "one_inside_the_other": Normal(*np.array([[5.0, 5.0], [1e-6, 1e3]])[..., None]),
    "three_islands": Normal(*np.array([[-1e4, 0.0, 1e4], [1e-2, 1.0, 1e-2]])[..., None]),
}
LEVELS = [1e-6, 1e-3, 0.1, 1 / 3, 0.4999999, 0.5, 0.7, 0.999, 1 - 1e-6]
quantile = jax.jit(lambda dist, q: dist.quantile(q))
difference = jax.jit(lambda dist, other: dist.absolute_difference(other))


def members_cdf(components, y) -> np.ndarray:
    """SciPy's cdf and survival of the mixture."""
    if isinstance(components, StudentT):
        members = stats.t(components.df, components.mean, components.scale)
    else:
        members = stats.norm(components.mean, components.std)
    return np.stack([members.cdf(y).mean(axis=0), members.sf(y).mean(axis=0)])


@pytest.mark.parametrize("name", NASTY)
def test_the_quantile_of_nasty_mixtures_is_right_in_probability(name):
    for q in LEVELS:
        with jax.enable_x64(True):
            root = np.asarray(quantile(Mixture(NASTY[name]), np.array([q])))
        expected = np.array([[q], [1 - q]])
        np.testing.assert_allclose(members_cdf(NASTY[name], root), expected, rtol=3e-7)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    q=st.floats(1e-6, 1 - 1e-6),
    means=st.tuples(*[st.floats(-1e4, 1e4)] * 3),
    log_dfs=st.tuples(*[st.floats(0, 8)] * 3),
    log_scales=st.tuples(*[st.floats(-6, 6)] * 3),
)
def test_the_quantile_inverts_the_cdf_of_any_three_student_ts(q, means, log_dfs, log_scales):
    parameters = np.array([means, np.exp(log_dfs), np.exp(log_scales)])[..., None]
    with jax.enable_x64(True):
        root = np.asarray(quantile(Mixture(StudentT(*parameters)), np.array([q])))
    reached = members_cdf(StudentT(*parameters), root)[:, 0]
    assert reached == pytest.approx([q, 1 - q], rel=1e-6)


def test_the_float32_quantile_of_ordinary_members_is_right_to_a_few_parts_in_a_million():
    rng = np.random.default_rng(0)
    parameters = rng.normal(size=(5, 50)), 2 + rng.gamma(2, 3, (5, 50)), rng.gamma(3, 0.3, (5, 50))
    components = StudentT(*(jnp.float32(x) for x in parameters))
    for q in (0.05, 0.5, 0.95):
        root = np.asarray(quantile(Mixture(components), q))
        assert root.dtype == np.float32
        np.testing.assert_allclose(members_cdf(components, root)[0], q, atol=5e-6)


@pytest.mark.parametrize("name", ["heavy_and_light", "one_inside_the_other"])
def test_a_mixture_of_one_and_of_copies_is_its_member(name):
    @jax.jit
    def scores(dist, y):
        return dist.log_prob(y), dist.cdf(y), dist.crps(y), dist.quantile(0.1), dist.variance

    alone = jax.tree.map(lambda leaf: leaf[0], NASTY[name])
    with jax.enable_x64(True):
        expected = scores(alone, np.array([5.2]))
        for n_copies in (1, 4):
            copies = jax.tree.map(lambda leaf, n=n_copies: np.repeat(leaf[None], n, 0), alone)
            got = scores(Mixture(copies), np.array([5.2]))
            np.testing.assert_allclose(got, expected, rtol=3e-6)


@pytest.mark.parametrize("n_members", [2, 3, 4, 5])
@pytest.mark.parametrize("kind", [Normal, StudentT])
def test_crps_counts_every_pair_of_members_once(n_members, kind):
    rng = np.random.default_rng(n_members)
    mean, df, scale = rng.uniform(2.5, 9, (3, n_members, 2))
    components = Normal(mean, scale) if kind is Normal else StudentT(mean, df, scale)
    with jax.enable_x64(True):
        members = [jax.tree.map(lambda leaf, i=i: leaf[i], components) for i in range(n_members)]
        pairs = [difference(one, other) for one in members for other in members]
        got = jax.jit(lambda dist: dist.mean_difference)(Mixture(components))
    np.testing.assert_allclose(got, np.mean(pairs, axis=0), rtol=1e-6)


def test_every_member_is_drawn_equally_often():
    """Binomial counts within 5 sigma, for 3 members: under 1 seed in 500 000 would fail."""
    components = Normal(jnp.array([[0.0], [10.0], [20.0]]), jnp.full((3, 1), 0.1))
    draws = Mixture(components).sample(jax.random.key(0), 3000)
    counts = np.bincount(np.round(np.asarray(draws[:, 0]) / 10).astype(int), minlength=3)
    assert np.all(np.abs(counts - 1000) < 5 * np.sqrt(3000 * 2 / 9))
