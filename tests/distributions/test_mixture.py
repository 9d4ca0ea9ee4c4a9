"""Mixtures: very unequal members, members that are all the same, members of several components."""

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


N_MEMBERS, N_PARTS = 2, 3


def weighted(shape=(2,), seed=0, epistemic_share=None, of_first=0.5) -> Mixture:
    """Two members of three components each, whose weights differ from element to element."""
    rng = np.random.default_rng(seed)
    n = N_MEMBERS * N_PARTS
    share = rng.dirichlet(np.ones(N_PARTS), (N_MEMBERS, *shape))
    share *= np.array([of_first, 1 - of_first]).reshape(N_MEMBERS, *[1] * (share.ndim - 1))
    weight = np.moveaxis(share, -1, 1).reshape(n, *shape)
    parts = rng.normal(0, 2, (n, *shape)), rng.uniform(2.5, 9, (n, *shape))
    components = StudentT(*parts, rng.uniform(0.2, 1.5, (n, *shape)))
    return Mixture(components, epistemic_share, np.log(weight), N_PARTS)


def by_brute_force(dist: Mixture, j: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights of the components of one element, and a fine grid with the cdf on it."""
    weight = np.exp(np.asarray(dist.log_weight))[:, j]
    x = np.sinh(np.linspace(-14, 14, 400_001))
    cdf = sum(w * part.cdf(x) for w, part in zip(weight, scipy_parts(dist, j), strict=True))
    return weight, x, np.asarray(cdf)


def scipy_parts(dist: Mixture, j: int) -> list:
    parts = dist.components
    assert isinstance(parts, StudentT)
    mean, df, scale = (np.asarray(leaf)[:, j] for leaf in (parts.mean, parts.df, parts.scale))
    return [stats.t(*of_one) for of_one in zip(df, mean, scale, strict=True)]


def test_weighted_components_have_the_density_of_their_weighted_sum():
    dist, y = weighted(), np.array([0.3, -2.5])
    with jax.enable_x64(True):
        log_prob, cdf = dist.log_prob(y), dist.cdf(y)
        roots = [np.asarray(quantile(dist, np.full(2, q))) for q in (1e-4, 0.3, 0.97)]
    for j in range(2):
        weight, parts = np.exp(np.asarray(dist.log_weight))[:, j], scipy_parts(dist, j)
        assert weight.sum() == pytest.approx(1)
        density = sum(w * part.pdf(y[j]) for w, part in zip(weight, parts, strict=True))
        below = sum(w * part.cdf(y[j]) for w, part in zip(weight, parts, strict=True))
        assert log_prob[j] == pytest.approx(np.log(density), rel=1e-8)
        assert cdf[j] == pytest.approx(below, rel=1e-8)
        for q, root in zip((1e-4, 0.3, 0.97), roots, strict=True):
            reached = sum(w * part.cdf(root[j]) for w, part in zip(weight, parts, strict=True))
            assert reached == pytest.approx(q, rel=1e-6)


def test_weighted_scores_are_integrals_over_a_fine_grid():
    dist, y = weighted(), np.array([0.3, -2.5])
    with jax.enable_x64(True):
        crps, error, spread = dist.crps(y), dist.absolute_error(y), dist.mean_difference
    for j in range(2):
        _, x, cdf = by_brute_force(dist, j)
        wrong = np.where(x < y[j], cdf, 1 - cdf)
        assert crps[j] == pytest.approx(np.trapezoid(wrong**2, x), rel=1e-4)
        assert error[j] == pytest.approx(np.trapezoid(wrong, x), rel=1e-3)
        assert spread[j] == pytest.approx(2 * np.trapezoid(cdf * (1 - cdf), x), rel=1e-3)


@pytest.mark.parametrize("of_first", [0.5, 0.2])
def test_components_of_a_member_are_noise_and_members_disagree(of_first):
    """By total variance, first over the components of a member and then over members."""
    share = np.random.default_rng(1).uniform(0, 0.5, (N_MEMBERS * N_PARTS, 2))
    dist, plain = weighted(epistemic_share=share, of_first=of_first), weighted(of_first=of_first)
    with jax.enable_x64(True):
        found = dist.aleatoric_variance, dist.epistemic_variance, dist.variance, dist.mean
        of_members = dist.member_means, dist.member_variances
        np.testing.assert_allclose(plain.variance, dist.variance, rtol=1e-12)
    for j in range(2):
        weight = np.exp(np.asarray(dist.log_weight))[:, j].reshape(N_MEMBERS, N_PARTS)
        moments = [(part.mean(), part.var()) for part in scipy_parts(dist, j)]
        mean, variance = np.array(moments).T.reshape(2, N_MEMBERS, N_PARTS)
        own = weight / weight.sum(axis=1, keepdims=True)
        means = np.sum(own * mean, axis=1)
        variances = np.sum(own * (variance + (mean - means[:, None]) ** 2), axis=1)
        known = np.sum(weight * share[:, j].reshape(N_MEMBERS, N_PARTS) * variance)
        counts = np.array([of_first, 1 - of_first])
        center = counts @ means
        expected = counts @ variances - known, counts @ (means - center) ** 2 + known
        for part, value in zip(found, (*expected, sum(expected), center), strict=True):
            assert part[j] == pytest.approx(value, rel=1e-9)
        for part, value in zip(of_members, (means, variances), strict=True):
            np.testing.assert_allclose(part[:, j], value, rtol=1e-9)
        total = np.sum(weight * (variance + mean**2)) - np.sum(weight * mean) ** 2
        assert found[2][j] == pytest.approx(total, rel=1e-9)


def test_components_are_drawn_by_their_weights():
    """Binomial counts within 5 sigma, for 2 x 3 components: under 1 seed in 250 000 would fail."""
    weight = np.array([0.05, 0.6, 0.35, 0.5, 0.3, 0.2]).reshape(3, 2)
    center = jnp.array([[0.0, 20.0], [10.0, 0.0], [20.0, 10.0]])
    components = Normal(center, jnp.full((3, 2), 0.1))
    log_weight = jnp.asarray(np.log(weight / weight.sum(axis=0)), dtype=jnp.float32)
    draws = np.asarray(Mixture(components, None, log_weight, 3).sample(jax.random.key(0), 4000))
    for j in range(2):
        share = np.exp(np.asarray(log_weight))[:, j]
        counts = [np.sum(np.abs(draws[:, j] - float(at)) < 2) for at in center[:, j]]
        assert np.all(np.abs(counts - 4000 * share) < 5 * np.sqrt(4000 * share * (1 - share)))


def test_equal_weights_are_as_no_weights():
    rng = np.random.default_rng(2)
    components = Normal(rng.normal(size=(4, 3)), rng.uniform(0.5, 2, (4, 3)))
    plain = Mixture(components)
    same = Mixture(components, log_weight=np.full((4, 3), -np.log(4)))
    y = np.linspace(-1, 1, 3)
    with jax.enable_x64(True):
        for name in ("log_prob", "cdf", "crps"):
            got, expected = (getattr(dist, name)(y) for dist in (same, plain))
            np.testing.assert_allclose(got, expected, rtol=1e-12)
        for name in ("mean", "aleatoric_variance", "epistemic_variance", "mean_difference"):
            np.testing.assert_allclose(getattr(same, name), getattr(plain, name), rtol=1e-12)
        moved = same.affine(2.0, 3.0)
        np.testing.assert_allclose(moved.variance, 9 * plain.variance, rtol=1e-12)
        assert moved.log_weight is same.log_weight and moved.n_parts == same.n_parts
