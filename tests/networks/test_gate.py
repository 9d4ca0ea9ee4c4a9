"""The gate against its formula, written out in float64; centres of k-means."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.cluster import MiniBatchKMeans

from sigmax.distributions import StudentT, blend_factor
from sigmax.extrapolation import NO_CENTER, ON_DATA, ExtrapolationGate, create_gate, k_means_centers


@pytest.fixture
def centers():
    return np.random.default_rng(0).normal(size=(9, 4))


def no_center(n):
    return jnp.full(n, NO_CENTER)


def test_distance_is_euclidean_to_the_nearest_inducing_point(centers):
    gate = ExtrapolationGate.create(centers, 16, scale=0.3)
    x = np.random.default_rng(1).normal(size=(20, 4)) * 3
    expected = cdist(x, centers).min(axis=1)
    np.testing.assert_allclose(gate.distance(jnp.asarray(x), no_center(20)), expected, rtol=1e-5)


@pytest.mark.parametrize("n_features", [1, 2, 5])
def test_compiled_gates_find_the_nearest_inducing_point(n_features):
    """Fused copies of a distance may be rounded differently, above all with one feature."""
    X = np.random.default_rng(0).normal(size=(204, n_features)).astype(np.float32)
    gate = ExtrapolationGate.create(X, 256, scale=0.3)
    distance = jax.jit(lambda x: gate.distance(x, no_center(len(x))))(jnp.asarray(X))
    np.testing.assert_allclose(distance, 0.0, atol=1e-3)  # each row is an inducing point


def test_padding_slots_are_never_the_nearest(centers):
    gate = ExtrapolationGate.create(centers + 100, 64, scale=0.3)
    origin = jnp.zeros((1, 4))
    assert gate.distance(origin, no_center(1))[0] > 100


def test_a_row_does_not_see_its_own_inducing_point(centers):
    gate = ExtrapolationGate.create(centers, 16, scale=0.3)
    pairs = cdist(centers, centers)
    np.fill_diagonal(pairs, np.inf)
    distance = gate.distance(jnp.asarray(centers), jnp.arange(9))
    np.testing.assert_allclose(distance, pairs.min(axis=1), rtol=1e-5)


def test_a_duplicate_of_an_inducing_point_is_on_the_data():
    gate = ExtrapolationGate.create(np.array([[1.0, 2.0], [1.0, 2.0], [5.0, 5.0]]), 4, scale=0.3)
    distance = gate.distance(jnp.array([[1.0, 2.0]]), jnp.array([0]))
    assert distance[0] < 1e-5


def test_gate_is_the_shifted_sigmoid_of_the_paper():
    scale = 0.4
    gate = ExtrapolationGate.create(np.zeros((1, 1)), 1, scale=scale)
    distance = np.linspace(0, 8, 50)
    opening = 1 / (1 + np.exp(6.9077 - distance / scale))
    expected = (opening - opening[0]) / (1 - opening[0])
    found = gate(jnp.asarray(distance)[:, None], no_center(50))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert found[0] < 1e-6
    assert found[-1] > 0.999


def test_gradients_are_finite_on_an_inducing_point():
    gate = ExtrapolationGate.create(np.zeros((2, 3)), 4, scale=0.4)
    gradient = jax.grad(lambda x: gate(x, no_center(1)).sum())(jnp.zeros((1, 3)))
    assert jnp.isfinite(gradient).all()


def test_within_its_margin_the_gate_is_shut():
    gate = ExtrapolationGate.create(np.zeros((1, 1)), 1, scale=0.1, margin=0.5)
    x = jnp.array([[0.0], [0.49], [0.6], [5.0]])
    found = gate(x, no_center(4))
    assert (found[:2] == 0).all()
    assert 0 < found[2] < 0.01
    assert found[3] > 0.999


def test_a_gate_shut_on_data_is_open_soon_beyond():
    distances = np.random.default_rng(0).uniform(0, 1, 1000)
    gate = ExtrapolationGate.create(np.zeros((1, 1)), 1, scale=1.0).shut_on(jnp.asarray(distances))
    assert gate.margin == pytest.approx(np.quantile(distances, 0.99))
    opening = gate(jnp.asarray(distances)[:, None], no_center(1000))
    assert jnp.mean(opening == 0) > 0.98
    assert opening.max() < 1e-3
    np.testing.assert_allclose(
        gate(gate.margin * jnp.array([[2.0], [3.0]]), no_center(2)), [0.5, 1.0], atol=0.01
    )


def test_a_gate_shut_on_duplicated_rows_has_a_width():
    gate = ExtrapolationGate.create(np.zeros((1, 1)), 1, scale=1.0).shut_on(jnp.zeros(100))
    assert gate.scale > 0 and gate.margin > 0


def test_the_gate_opens_along_one_axis_of_many():
    rng = np.random.default_rng(0)
    offsets = rng.normal(size=(1000, 90))
    gate = ExtrapolationGate.create(np.zeros((1, 90)), 1, scale=1.0)
    gate = gate.shut_on_offsets(jnp.asarray(offsets))
    largest = np.abs(offsets).max(axis=1)
    margin = np.quantile(largest, ON_DATA + np.sqrt(ON_DATA * (1 - ON_DATA) / 1000))
    assert gate.axis_margin == pytest.approx(margin, rel=1e-5)
    assert jnp.mean(gate(jnp.asarray(offsets), no_center(1000)) < 0.01) > 0.98
    moved = offsets.copy()
    moved[:, 7] = 10.0
    assert gate(jnp.asarray(moved), no_center(1000)).min() > 0.99
    euclidean = eqx.tree_at(lambda g: g.axis_margin, gate, jnp.asarray(jnp.inf))
    assert euclidean(jnp.asarray(moved), no_center(1000)).max() < 0.1
    half_way = margin + np.quantile(largest, ON_DATA) - np.median(largest)
    at_half = jnp.zeros((1, 90)).at[0, 3].set(half_way)
    np.testing.assert_allclose(gate(at_half, no_center(1)), 0.5, atol=0.01)


@pytest.mark.parametrize("n_features", [1, 3, 50])
def test_padding_does_not_move_the_margins(n_features):
    """On a CPU the maximum of many nan was -inf, and the median of the padding with it."""
    offsets = np.random.default_rng(0).normal(size=(20, n_features)).astype(np.float32)
    padded = np.full((256, n_features), np.nan, np.float32)
    padded[:20] = offsets
    gate = ExtrapolationGate.create(np.zeros((1, n_features)), 1, scale=1.0)
    shut = eqx.filter_jit(lambda offsets: gate.shut_on_offsets(offsets))
    found, expected = shut(jnp.asarray(padded)), shut(jnp.asarray(offsets))
    for name in ("log_scale", "margin", "axis_scale", "axis_margin"):
        assert np.isfinite(getattr(found, name))
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-5)


def test_arrays_of_numpy_and_of_jax_give_the_same_gate(centers):
    x = (3 * np.random.default_rng(1).normal(size=(20, 4))).astype(np.float32)
    ours = ExtrapolationGate.create(centers, 16, scale=0.3)
    theirs = jax.tree.map(jnp.asarray, ours)
    for array in (x, np.concatenate([x, np.full((3, 4), np.nan, np.float32)])):
        one = ours.shut_on_offsets(array).widened(2.0)
        other = theirs.shut_on_offsets(jnp.asarray(array)).widened(2.0)
        for leaf, expected in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            assert type(leaf) is np.ndarray and leaf.dtype == expected.dtype
            np.testing.assert_allclose(leaf, expected, rtol=1e-6)
        far = np.linspace(0.1, 8, 20, dtype=np.float32)[:, None] * x
        opening, expected = one(far, np.full(20, NO_CENTER)), other(jnp.asarray(far), no_center(20))
        assert type(opening) is np.ndarray and opening.dtype == np.float32
        np.testing.assert_allclose(opening, expected, atol=1e-6)
        assert opening.min() < 0.01 and opening.max() > 0.99


def test_a_row_between_two_of_a_design_is_on_the_data():
    """A quantile of few rows fell on one step of a design, and two steps were off the data."""
    hulls = np.random.default_rng(0).normal(size=(22, 5))
    speeds = np.linspace(-1.6, 1.6, 14)
    design = np.array([[*hull, speed] for hull in hulls for speed in speeds])
    n_open = n_new = 0
    for seed in range(10):
        is_new = np.random.default_rng(seed).random(len(design)) < 0.1
        rows, new = design[~is_new].astype(np.float32), design[is_new].astype(np.float32)
        gate, _ = create_gate(rows, 512, jax.random.key(seed))
        n_open += np.sum(gate(jnp.asarray(new), no_center(len(new))) > 0.5)
        n_new += len(new)
    assert n_open <= 0.01 * n_new


def test_no_step_trains_what_opens_the_gate_along_an_axis(centers):
    gate = ExtrapolationGate.create(centers, 16, scale=0.3)
    gate = gate.shut_on_offsets(jnp.asarray(centers))
    far = jnp.full((1, 4), 3.0).at[0, 0].set(9.0)
    gradient = eqx.filter_grad(lambda g: g(far, no_center(1)).sum())(gate)
    assert gradient.axis_scale == gradient.axis_margin == gradient.margin == 0


def test_an_open_gate_is_one_and_never_more(centers):
    gate = eqx.filter_jit(ExtrapolationGate.create(centers, 16, scale=0.3, margin=0.7))
    x = jnp.asarray(np.geomspace(0.1, 1e4, 5000)[:, None] * np.ones(4), dtype=jnp.float32)
    opening = np.asarray(gate(x, no_center(5000)))
    assert opening.min() >= 0 and opening.max() == 1


def test_a_blended_density_has_the_variance_between_its_own_and_that_of_the_prior():
    rng = np.random.default_rng(0)
    gate, prior_variance = rng.uniform(size=(7, 1)), rng.uniform(0.5, 2, size=(1, 3))
    single = [jnp.asarray(part, jnp.float32) for part in rng.uniform(0.5, 3, size=(3, 7, 3))]
    dist = StudentT(single[0], 3 + single[1], single[2])
    expected = (1 - gate) * np.asarray(dist.variance) + gate * prior_variance
    factor = blend_factor(
        jnp.asarray(gate, jnp.float32), jnp.asarray(prior_variance, jnp.float32), dist.variance
    )
    np.testing.assert_allclose(dist.widen(factor).variance, expected, rtol=1e-5)


@pytest.mark.parametrize("n_features", [2, 30])
def test_centers_are_about_as_near_as_those_of_scikit_learn(n_features):
    rows = np.random.default_rng(0).normal(size=(2000, n_features))
    centers = k_means_centers(rows, 100, seed=0)
    assert centers.shape == (100, n_features)
    known = MiniBatchKMeans(100, n_init="auto", batch_size=2048, random_state=0)
    reference = known.fit(rows).inertia_
    assert np.sum(cdist(rows, centers).min(axis=1) ** 2) < 1.05 * reference


def test_a_few_rows_far_from_all_others_have_a_center():
    rows = np.random.default_rng(0).normal(size=(5000, 3))
    rows[:3] += 50
    centers = k_means_centers(rows, 100, seed=0)
    assert cdist(rows[:3], centers).min(axis=1).max() < 5


def test_duplicates_of_few_rows_are_their_own_centers():
    rows = np.repeat(np.arange(8.0).reshape(4, 2), 100, axis=0)
    centers = k_means_centers(rows, 10, seed=0)
    assert cdist(rows, centers).min(axis=1).max() < 1e-5
    one = k_means_centers(np.full((50, 2), 1e6), 10, seed=0)
    np.testing.assert_allclose(one, 1e6)


def test_centers_follow_the_seed_and_the_offset():
    rows = np.random.default_rng(0).normal(size=(500, 3))
    first, again = (k_means_centers(rows, 20, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(k_means_centers(rows + 1e4, 20, seed=3), first + 1e4, atol=0.02)


# Gates around data of few and of many features: new rows are on the data, moved rows are not.

N_INDUCING = 300


def gaussian(n_features):
    def draw(rng, n):
        return rng.normal(size=(n, n_features))

    return draw


def correlated(rng, n):
    """Eighty features made of five."""
    loadings = np.random.default_rng(1).normal(size=(5, 80))
    return rng.normal(size=(n, 5)) @ loadings + 0.1 * rng.normal(size=(n, 80))


def log_normal(rng, n):
    return np.exp(rng.normal(size=(n, 8)))


def one_hot(rng, n):
    return np.column_stack([np.eye(6)[rng.integers(0, 6, n)], rng.normal(size=(n, 4))])


DRAWS = {
    "1 feature": gaussian(1),
    "5 features": gaussian(5),
    "90 features": gaussian(90),
    "correlated": correlated,
    "log-normal": log_normal,
    "one-hot": one_hot,
}


def gate_and_new_rows(draw, n_rows):
    rng = np.random.default_rng(0)
    X, new = draw(rng, n_rows), draw(rng, 500)
    mean, std = X.mean(axis=0), X.std(axis=0)
    X, new = ((rows - mean) / std for rows in (X, new))
    gate, _ = create_gate(X.astype(np.float32), N_INDUCING, jax.random.key(0))

    def opening(rows):
        return np.asarray(gate(jnp.asarray(rows, jnp.float32), jnp.full(len(rows), NO_CENTER)))

    return opening, new


@pytest.mark.parametrize("n_rows", [250, 500])  # all are inducing points, or centres stand for them
@pytest.mark.parametrize("name", DRAWS)
def test_new_rows_are_on_the_data(name, n_rows):
    opening, new = gate_and_new_rows(DRAWS[name], n_rows)
    assert np.mean(opening(new) < 0.05) >= 0.97


@pytest.mark.parametrize("n_rows", [250, 500])
@pytest.mark.parametrize("name", [name for name in DRAWS if name != "log-normal"])
def test_ten_standard_deviations_along_one_feature_are_off_the_data(name, n_rows):
    opening, new = gate_and_new_rows(DRAWS[name], n_rows)
    for axis in {0, new.shape[1] // 2, new.shape[1] - 1}:
        for step in (-10, 10):
            moved = new.copy()
            moved[:, axis] += step
            assert np.mean(opening(moved) > 0.9) >= 0.98
