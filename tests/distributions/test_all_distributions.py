"""What holds for every density, against SciPy and quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from sigmax.distributions import Mixture, Normal, StudentT

LOCATIONS = np.array([[-1.5, 0.0, 3.0], [0.5, 0.2, -40.0]])
SCALES = np.array([[0.3, 1.0, 20.0], [2.0, 1.1, 0.5]])
DFS = np.array([[2.3, 7.0, 1e4], [30.0, 4.0, 2.5]])
OFFSETS = np.array([-30.0, -8.0, -2.0, -0.3, 0.0, 1e-7, 0.9, 5.0, 30.0])
Y = np.array([-0.7, 1.3, -38.0])

KINDS = {
    "normal": (Normal(LOCATIONS[0], SCALES[0]), stats.norm(LOCATIONS[:1], SCALES[:1])),
    "student_t": (
        StudentT(LOCATIONS[0], DFS[0], SCALES[0]),
        stats.t(DFS[:1], LOCATIONS[:1], SCALES[:1]),
    ),
    "mixture_of_normals": (Mixture(Normal(LOCATIONS, SCALES)), stats.norm(LOCATIONS, SCALES)),
    "mixture_of_student_ts": (
        Mixture(StudentT(LOCATIONS, DFS, SCALES)),
        stats.t(DFS, LOCATIONS, SCALES),
    ),
}


call = jax.jit(
    lambda name, dist, *arguments: getattr(dist, name)(*arguments), static_argnames=("name",)
)


@pytest.fixture(params=KINDS)
def kind(request):
    """A density of batch shape (3,), and SciPy's of its members, (members, 3); in float64."""
    with jax.enable_x64(True):
        yield KINDS[request.param]


def real_line(centres, width) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights over the real line: Gauss-Legendre between points dense at the centres."""
    steps = width * np.sinh(np.linspace(0, 30, 121))
    edges = np.unique([c + sign * steps for c in centres for sign in (-1, 1)])
    nodes, weights = np.polynomial.legendre.leggauss(8)
    middle, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    return (middle[:, None] + half[:, None] * nodes).ravel(), (half[:, None] * weights).ravel()


def real_line_of(j: int) -> tuple[np.ndarray, np.ndarray]:
    return real_line([*LOCATIONS[:, j], Y[j]], SCALES[:, j].min())


def test_log_prob_and_cdf_are_scipys_also_in_the_tails(kind):
    dist, members = kind
    for offset in OFFSETS:
        y = LOCATIONS[0] + offset * SCALES[0]
        expected = np.logaddexp.reduce(members.logpdf(y), axis=0) - np.log(len(members.mean()))
        np.testing.assert_allclose(call("log_prob", dist, y), expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(call("cdf", dist, y), members.cdf(y).mean(axis=0), rtol=1e-8)


def test_the_density_integrates_to_one(kind):
    dist, _ = kind
    for j in range(3):
        x, weight = real_line_of(j)
        copies = np.full(len(x), j)
        repeat = jax.tree.map(lambda leaf, copies=copies: leaf[..., copies], dist)
        assert np.exp(call("log_prob", repeat, x)) @ weight == pytest.approx(1, abs=1e-9)


def test_moments_are_those_of_the_members_by_total_expectation_and_variance(kind):
    dist, members = kind
    mean, variance = members.mean(), members.var()
    np.testing.assert_allclose(dist.mean, mean.mean(axis=0))
    np.testing.assert_allclose(dist.aleatoric_variance, variance.mean(axis=0))
    np.testing.assert_allclose(dist.epistemic_variance, mean.var(axis=0), atol=1e-12)
    second = (variance + mean**2).mean(axis=0)
    np.testing.assert_allclose(dist.std**2, second - mean.mean(axis=0) ** 2, rtol=1e-10)


def test_crps_and_absolute_error_are_integrals_of_the_cdf(kind):
    dist, members = kind
    crps, error = call("crps", dist, Y), call("absolute_error", dist, Y)
    for j in range(3):
        x, weight = real_line_of(j)
        cdf = members.cdf(x[:, None, None])[..., j].mean(axis=1)
        survival = members.sf(x[:, None, None])[..., j].mean(axis=1)
        wrong = np.where(x < Y[j], cdf, survival)  # |F − 1{y ≤ x}|
        assert crps[j] == pytest.approx(wrong**2 @ weight, rel=1e-6)
        assert error[j] == pytest.approx(wrong @ weight, rel=1e-6)


@pytest.mark.parametrize("q", [1e-6, 0.01, 0.5, 0.7, 1 - 1e-6])
def test_quantile_inverts_the_cdf_for_one_level_and_for_one_per_element(kind, q):
    dist, members = kind
    roots = call("quantile", dist, q)
    np.testing.assert_allclose(members.cdf(roots).mean(axis=0), q, rtol=1e-7)
    np.testing.assert_allclose(members.sf(roots).mean(axis=0), 1 - q, rtol=1e-7)
    np.testing.assert_allclose(call("quantile", dist, np.full(3, q)), roots, rtol=1e-12)


def test_an_interval_leaves_the_same_share_on_both_sides(kind):
    dist, members = kind
    interval = call("interval", dist, 0.8)
    assert interval.shape == (3, 2)
    for bound, share in zip(interval.T, (0.1, 0.9), strict=True):
        np.testing.assert_allclose(members.cdf(bound).mean(axis=0), share, rtol=1e-7)


def test_affine_moves_quantiles_and_keeps_numpy_leaves_in_float64(kind):
    dist, _ = kind
    scale = np.array([3.0, 0.5, 1.0])
    moved = dist.affine(-2.0, scale)
    assert type(moved) is type(dist)
    assert all(type(leaf) is np.ndarray for leaf in jax.tree.leaves(moved))
    assert all(leaf.dtype == np.float64 for leaf in jax.tree.leaves(moved))
    expected = -2 + scale * call("quantile", dist, 0.2)
    np.testing.assert_allclose(call("quantile", moved, 0.2), expected, rtol=1e-6)
    got, expected = call("crps", moved, -2 + scale * Y), scale * call("crps", dist, Y)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_widen_multiplies_aleatoric_spread_and_leaves_the_means(kind):
    dist, _ = kind
    wide = dist.widen(3.0)
    np.testing.assert_array_equal(wide.mean, dist.mean)
    np.testing.assert_allclose(wide.aleatoric_variance, 9 * dist.aleatoric_variance)
    np.testing.assert_allclose(wide.epistemic_variance, dist.epistemic_variance)


def test_draws_follow_the_cdf(kind):
    """Kolmogorov-Smirnov at p > 1e-4 for 12 columns: about 1 seed in 800 would fail."""
    dist, members = kind
    draws = np.asarray(dist.sample(jax.random.key(3), 4000))
    assert draws.shape == (4000, 3) and len(np.unique(draws)) == draws.size
    for j in range(3):
        cdf = members.cdf(draws[:, j][:, None, None])[..., j].mean(axis=1)
        assert stats.kstest(cdf, "uniform").pvalue > 1e-4


def test_gradients_in_every_parameter_are_those_of_finite_differences(kind):
    dist, _ = kind
    leaves, tree = jax.tree.flatten(dist)
    slow = isinstance(dist, Mixture) and isinstance(dist.components, StudentT)  # to compile
    score = (lambda dist: dist.cdf(Y)) if slow else (lambda dist: dist.crps(Y))

    def scores(leaves):
        dist = jax.tree.unflatten(tree, leaves)
        parts = dist.log_prob(Y), dist.absolute_error(Y), score(dist), dist.quantile(0.3), dist.std
        return sum(weight * part.sum() for weight, part in enumerate(parts, start=1))

    evaluate = jax.jit(jax.value_and_grad(scores))
    _, gradient = evaluate(leaves)
    for i, leaf in enumerate(leaves):
        step = 1e-4 * np.abs(leaf) + 1e-6
        up, down = ([*leaves[:i], leaf + sign * step, *leaves[i + 1 :]] for sign in (1, -1))
        change, expected = evaluate(up)[0] - evaluate(down)[0], np.sum(2 * gradient[i] * step)
        assert float(change) == pytest.approx(float(expected), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("name", ["mixture_of_normals", "mixture_of_student_ts"])
def test_float32_agrees_with_float64(name):
    dist, _ = KINDS[name]
    single = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), dist)

    @jax.jit
    def scores(dist, y):
        return dist.log_prob(y), dist.cdf(y), dist.crps(y), dist.interval(0.98), dist.variance

    got = scores(single, jnp.asarray(Y, jnp.float32))
    assert all(score.dtype == jnp.float32 for score in got)
    with jax.enable_x64(True):
        for one, other in zip(got, scores(dist, Y), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_two_axes_and_a_vmap_give_the_same_as_one_axis(kind):
    dist, _ = kind
    table = jax.tree.map(lambda leaf: np.stack([leaf, leaf + 1], axis=-2), dist)
    got, moved = call("crps", table, np.stack([Y, Y])), jax.tree.map(lambda leaf: leaf + 1, dist)
    assert got.shape == (2, 3)
    np.testing.assert_allclose(got[1], call("crps", moved, Y), rtol=1e-10)
    axes = jax.tree.map(lambda leaf: leaf.ndim - 1, dist)
    alone = jax.jit(jax.vmap(lambda d, y: d.cdf(y), (axes, 0)))(dist, Y)
    np.testing.assert_allclose(alone, call("cdf", dist, Y), rtol=1e-10)


@pytest.mark.parametrize("df", [2.01, 4.0, 30.0, 1e6])
@pytest.mark.parametrize("other_df", [2.01, 3.0, 1e3])
def test_the_mean_difference_of_unequal_student_ts_is_its_integral(df, other_df):
    cases = [(scale, shift) for scale in (1e-3, 0.3, 1.0, 50.0) for shift in (0.0, 1.0, 40.0)]
    scale, shift = np.array(cases).T
    one = StudentT(0 * scale, df + 0 * scale, scale**0)
    other = StudentT(shift, other_df + 0 * scale, scale)
    with jax.enable_x64(True):
        got = call("absolute_difference", one, other)
    for i in range(len(cases)):
        x, weight = real_line([0.0, shift[i]], min(1.0, scale[i]))
        f, g = stats.t(df), stats.t(other_df, shift[i], scale[i])
        expected = (f.cdf(x) * g.sf(x) + g.cdf(x) * f.sf(x)) @ weight
        assert got[i] == pytest.approx(expected, rel=5e-6)


def test_parameters_of_unequal_shapes_are_refused_when_shapes_are_checked():
    with pytest.raises(TypeError):
        Normal(np.zeros(3), np.ones(2))
