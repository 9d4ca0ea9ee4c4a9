"""Unbiasedness of both designs by enumeration and Monte Carlo, in NumPy and compiled."""

from itertools import combinations, islice, product
from math import comb

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sigmax.errors import InvalidArgumentError, InvalidDataError
from sigmax.neighbors import neighbor_graph
from sigmax.sampling import (
    LocalitySampler,
    draw_batches,
    expected_counts,
    horvitz_thompson,
    inclusion_probabilities,
    neighbor_counts,
    random_order,
    random_subsets,
)

N_BATCHES = 20_000


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    """150 rows: a tight and a wide cluster, 40 copies of one row and some stragglers."""
    rng = np.random.default_rng(0)
    tight, wide = 0.1 * rng.normal(size=(50, 2)), 3 + rng.normal(size=(45, 2))
    return np.vstack([tight, wide, np.ones((40, 2)), 20 * rng.uniform(size=(15, 2))])


def assert_weights_average_to_one(count: np.ndarray, squares: np.ndarray, weights: np.ndarray):
    """Every row's weighted count per batch is 1 within 4 standard errors.

    150 rows at 4 sigma: by Bonferroni at most 1 seed in 100 fails by chance, and these are fixed.
    """
    mean = count / N_BATCHES
    error = np.sqrt((squares / N_BATCHES - mean**2) / N_BATCHES)
    assert len(weights) == 150
    assert np.all(np.abs(weights * mean - 1) <= 4 * weights * error)


@pytest.mark.parametrize("design", ["counts", "set"])
@pytest.mark.parametrize("sizes", [(3, 8, 12), (5, 3, 12), (2, 10, 10)])
def test_weights_average_to_one_over_the_batches_of_a_sampler(rows, design, sizes):
    sampler = LocalitySampler(*sizes, design=design, random_state=1).fit(rows)
    count, squares = np.zeros(150), np.zeros(150)
    for indices, weights in islice(sampler, N_BATCHES):
        drawn = np.bincount(indices, minlength=150)
        count += drawn
        squares += drawn**2
        np.testing.assert_array_equal(weights, sampler.weights_[indices])
    assert_weights_average_to_one(count, squares, sampler.weights_)


@pytest.mark.parametrize("design", ["counts", "set"])
@pytest.mark.parametrize("sizes", [(3, 8, 12), (5, 3, 12), (2, 10, 10), (32, 1, 1), (1, 40, 80)])
def test_weights_average_to_one_over_compiled_batches(rows, design, sizes):
    m, n, k = sizes
    sampler = LocalitySampler(m, n, k, design=design).fit(rows)
    neighbors = jnp.asarray(np.pad(sampler.neighbors_, ((0, 50), (0, 0))))  # 200 rows, 150 true
    n_rows = jnp.array(150)

    def batch(key):
        return draw_batches(key, 4, neighbors, n_rows, m, n)[3]

    keys = jax.random.split(jax.random.key(0), N_BATCHES)
    batches = np.asarray(jax.jit(jax.vmap(batch))(keys))
    drawn = np.zeros((N_BATCHES, 150))
    np.add.at(drawn, (np.arange(N_BATCHES)[:, None], batches), 1)
    drawn = drawn if design == "counts" else np.minimum(drawn, 1)
    assert_weights_average_to_one(drawn.sum(axis=0), (drawn**2).sum(axis=0), sampler.weights_)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (1, 2, 3), (2, 1, 3), (3, 2, 3), (4, 3, 3)])
def test_both_designs_agree_with_the_list_of_all_batches(m, n, k):
    X = np.array([[0.0], [0.0], [1.0], [1.5], [5.0], [9.0]])
    neighbors = neighbor_graph(X, k)
    count, included, n_batches = np.zeros(6), np.zeros(6), 0
    for primary in combinations(range(6), m):
        for parts in product(*(combinations(neighbors[i], n) for i in primary)):
            drawn = np.bincount(np.ravel(parts), minlength=6)
            count, included, n_batches = count + drawn, included + (drawn > 0), n_batches + 1
    counts = neighbor_counts(neighbors)
    np.testing.assert_allclose(expected_counts(counts, m, n), count / n_batches)
    np.testing.assert_allclose(expected_counts(neighbors, m, n), count / n_batches)
    probabilities = inclusion_probabilities(counts, 6, k, m, n)
    np.testing.assert_allclose(probabilities, included / n_batches)


def test_inclusion_in_a_batch_of_one_neighbourhood_is_the_expected_count():
    counts = np.array([1, 50, 120, 400])
    probabilities = inclusion_probabilities(counts, 500_000, 50, 1, 40)
    np.testing.assert_allclose(
        probabilities, 40 * counts / (500_000 * 50), rtol=1e-9
    )  # scipy's digits


def test_the_ratio_of_the_two_designs_is_that_of_the_audit_of_the_paper():
    exact = inclusion_probabilities(np.array([50, 120]), 277, 50, 3, 40)
    np.testing.assert_allclose(
        exact / (3 * 40 * np.array([50, 120]) / (277 * 50)), [0.865, 0.695], atol=1e-3
    )


def test_padding_weighs_nothing():
    np.testing.assert_array_equal(horvitz_thompson(np.array([0.5, 0.0])), [2.0, 0.0])


def draw_subsets(seed, n_sets, k, size):
    bits = jax.random.bits(jax.random.key(seed), (n_sets, min(size, k - size)))
    return random_subsets(bits, k, size)


@pytest.mark.parametrize(("k", "size"), [(5, 1), (5, 2), (5, 3), (5, 4), (6, 3)])
def test_every_subset_is_equally_likely(k, size):
    """Each of at most 20 subsets within 5 sigma: 1 seed in 80 000 fails by chance."""
    n_draws = 40_000
    subsets = np.sort(draw_subsets(1, n_draws, k, size), axis=1)
    kinds, counts = np.unique(subsets, axis=0, return_counts=True)
    expected = n_draws / comb(k, size)
    assert len(kinds) == comb(k, size)
    assert np.all(np.abs(counts - expected) <= 5 * np.sqrt(expected))


@given(st.integers(2, 120), st.data())
@settings(max_examples=15, deadline=None)
def test_subsets_have_distinct_members_in_range(k, data):
    size = data.draw(st.integers(1, k - 1))
    subsets = np.sort(draw_subsets(k, 7, k, size), axis=1)
    assert subsets.shape == (7, size)
    assert (np.diff(subsets, axis=1) > 0).all()
    assert subsets.min() >= 0
    assert subsets.max() < k


def test_an_order_holds_every_row_once_and_then_the_padding():
    order = np.asarray(random_order(jax.random.bits(jax.random.key(0), (64,)), jnp.array(50)))
    np.testing.assert_array_equal(np.sort(order[:50]), np.arange(50))
    np.testing.assert_array_equal(order[50:], np.arange(50, 64))
    assert (order[:50] != np.arange(50)).any()


def test_primary_rows_are_distinct_and_each_is_visited_once_per_pass():
    n_rows, m = jnp.array(21), 4  # 21 batches of 4 are exactly 4 passes
    batches = draw_batches(jax.random.key(0), 21, jnp.arange(32)[:, None], n_rows, m, 1)
    assert all(len(set(batch.tolist())) == m for batch in np.asarray(batches))
    passes = np.asarray(batches).reshape(4, 21)
    np.testing.assert_array_equal(np.sort(passes, axis=1), np.tile(np.arange(21), (4, 1)))


def test_sparse_walks_have_the_same_expected_counts():
    """20,000 draws over 900 rows: 900 points within 5 sigma, 1 seed in 2,000 fails by chance."""
    neighbors = jnp.arange(1024)[:, None]

    @jax.jit
    @jax.vmap
    def draw(key):  # 100 of 1,024 slots: with replacement
        return draw_batches(key, 25, neighbors, jnp.array(900), 4, 1)

    drawn = np.bincount(np.ravel(draw(jax.random.split(jax.random.key(0), 200))), minlength=900)
    assert len(drawn) == 900
    expected = 200 * 100 / 900
    assert np.abs(drawn - expected).max() < 5 * np.sqrt(expected) + 1


def test_more_primary_rows_than_rows_repeat_evenly():
    batches = draw_batches(jax.random.key(0), 3, jnp.arange(8)[:, None], jnp.array(5), 20, 1)
    for batch in np.asarray(batches):
        np.testing.assert_array_equal(np.bincount(batch), np.full(5, 4))


def test_other_row_counts_in_one_padded_size_do_not_trace_again():
    @jax.jit
    @eqx.debug.assert_max_traces(max_traces=1)
    def batch(key, neighbors, n_rows):
        return draw_batches(key, 2, neighbors, n_rows, 3, 2)

    for n in (20, 33, 64):
        neighbors = neighbor_graph(np.random.default_rng(n).normal(size=(n, 2)), 5)
        padded = jnp.asarray(np.pad(neighbors, ((0, 64 - n), (0, 0))))
        assert batch(jax.random.key(n), padded, jnp.array(n)).max() < n


def test_an_integer_seed_repeats_the_batches_and_none_does_not(rows):
    def first(sampler):
        return np.concatenate([indices for indices, _ in islice(sampler, 5)])

    sampler = LocalitySampler(random_state=3).fit(rows)
    np.testing.assert_array_equal(first(sampler), first(sampler))
    unseeded = LocalitySampler().fit(rows)
    assert (first(unseeded) != first(unseeded)).any()


@pytest.mark.parametrize("design", ["counts", "set"])
def test_batches_are_numpy_and_sets_have_no_repeats(rows, design):
    indices, weights = next(iter(LocalitySampler(design=design, random_state=0).fit(rows)))
    assert indices.dtype == np.int64
    assert weights.dtype == np.float64
    assert indices.shape == weights.shape
    assert (len(np.unique(indices)) == len(indices)) is (design == "set")


@pytest.mark.parametrize("design", ["counts", "set"])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_settings_larger_than_the_data_are_reduced_to_all_rows(design, n):
    sampler = LocalitySampler(9, 40, 50, design=design, random_state=0).fit(np.arange(n)[:, None])
    indices, weights = next(iter(sampler))
    assert sampler.neighbors_.shape == (n, n)
    np.testing.assert_allclose(np.bincount(indices, weights), np.ones(n))


def test_columns_are_divided_by_their_std_unless_told_otherwise():
    X = np.array([[0.0, 0, 5], [1, 1000, 5], [9, 100, 5], [2, 3000, 5]])
    standardised = X[:, :2] / X[:, :2].std(axis=0)
    sampler = LocalitySampler(n_neighbors=2)
    np.testing.assert_array_equal(sampler.fit(X).neighbors_, neighbor_graph(standardised, 2))
    np.testing.assert_array_equal(
        sampler.fit(1e300 * X / 5e3).neighbors_, sampler.fit(X).neighbors_
    )
    raw = LocalitySampler(n_neighbors=2, standardize=False).fit(X)
    np.testing.assert_array_equal(raw.neighbors_, neighbor_graph(X, 2))
    assert (raw.neighbors_ != sampler.neighbors_).any()


def test_the_repr_says_what_was_set_and_fitted(rows):
    sampler = LocalitySampler(1, 10, 10, design="set", random_state=0)
    assert repr(sampler) == (
        "LocalitySampler(n_primary=1, n_secondary=10, n_neighbors=10, design='set', "
        "standardize=True, method='auto', random_state=0)"
    )
    assert repr(sampler.fit(rows)).endswith(" on 150 rows")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(n_primary=0), "`n_primary` must be a whole number of at least 1, got 0"),
        (dict(n_secondary=1.5), "`n_secondary` must be a whole number of at least 1, got 1.5"),
        (dict(n_neighbors=True), "`n_neighbors` must be a whole number of at least 1, got True"),
        (dict(design="bag"), "`design` must be one of counts, set, got 'bag'"),
        (dict(standardize="yes"), "`standardize` must be True or False, got 'yes'"),
        (dict(method="fast"), "`method` must be one of approximate, auto, exact, got 'fast'"),
        (dict(random_state="a"), "`random_state` must be an int of at least 0, a RandomState, a"),
        (dict(random_state=-1), "`random_state` must be an int of at least 0, a RandomState, a"),
    ],
)
def test_a_refusal_names_the_argument(arguments, message):
    with pytest.raises(InvalidArgumentError, match=message):
        LocalitySampler(**arguments)


def test_data_and_order_of_calls_are_checked():
    with pytest.raises(InvalidDataError, match="`X` cannot be used: Input X contains infinity"):
        LocalitySampler().fit([[np.inf]])
    with pytest.raises(InvalidArgumentError, match="call `fit"):
        next(iter(LocalitySampler()))


def test_lists_that_are_drawn_whole_keep_their_order():
    """The leave-one-out objective counts on it: its queries are the first rows of each list."""
    neighbors = jnp.asarray(
        np.random.default_rng(0).permuted(np.tile(np.arange(9), (9, 1)), axis=1)
    )
    batches = draw_batches(jax.random.key(0), 5, neighbors, jnp.array(9), 3, 9)
    lists = {tuple(row) for row in np.asarray(neighbors).tolist()}
    assert {tuple(row) for row in np.asarray(batches).reshape(-1, 9).tolist()} <= lists
