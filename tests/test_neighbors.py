"""Neighbour graphs against dense distances, for difficult rows, and the approximate search."""

from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_info

from sigmax import neighbors as module
from sigmax.errors import InvalidArgumentError, InvalidDataError, MissingExtraError
from sigmax.neighbors import exact_neighbors, neighbor_graph
from sigmax.sampling import neighbor_counts

needs_faiss = pytest.mark.skipif(find_spec("faiss") is None, reason="faiss is not installed")


def clusters(n: int, d: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20, d))[rng.integers(20, size=n)] + 0.5 * rng.normal(size=(n, d))
    return (X - X.mean(axis=0)) / X.std(axis=0)


def assert_nearest(indices, queries, X, k, rtol=1e-5):
    """Check that the distances are the k smallest, in order; ties may be in any order."""
    dense = cdist(queries, X)
    found = np.take_along_axis(dense, indices, axis=1)
    expected = np.sort(dense, axis=1)[:, :k]
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * dense.max() * 1e-2)


@pytest.mark.parametrize("d", [1, 3, 9, 40])  # a tree up to 8 features, brute force beyond
@pytest.mark.parametrize(("n", "k"), [(1, 5), (10, 50), (300, 1), (300, 20), (3000, 10)])
def test_the_exact_graph_is_that_of_a_dense_distance_matrix(n, d, k):
    X = clusters(n, d) if n > 1 else np.ones((1, d))
    graph = neighbor_graph(X, k, method="exact")
    assert graph.shape == (n, min(k, n))
    assert graph.dtype == np.int32
    assert_nearest(graph, X, X, min(k, n))


@pytest.mark.parametrize("d", [2, 30])
def test_queries_need_not_be_rows(d):
    X, queries = clusters(2500, d), clusters(77, d, seed=1)
    indices, distances = exact_neighbors(queries, X, 9)
    assert_nearest(indices, queries, X, 9)
    np.testing.assert_allclose(distances, np.sort(cdist(queries, X))[:, :9], rtol=1e-5)


@pytest.mark.parametrize("block_floats", [2**12, 2**28])
def test_the_search_on_a_device_agrees_with_that_on_the_host(monkeypatch, block_floats):
    monkeypatch.setattr(module, "DEVICE_FLOATS", block_floats)  # in one block, or row by row
    queries, X = (clusters(n, 12, seed=n).astype(np.float32) for n in (130, 2500))
    expected_indices, expected_distances = exact_neighbors(queries, X, 9)
    indices, distances = module._search_on_device(queries, X, 9)
    np.testing.assert_array_equal(indices, expected_indices)
    np.testing.assert_allclose(distances, expected_distances, rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-200, 1e-3, 1e12, 1e150])
@pytest.mark.parametrize("d", [3, 9])
def test_units_and_an_offset_do_not_matter(d, scale):
    X = clusters(500, d)
    expected = neighbor_graph(X, 8)
    np.testing.assert_array_equal(neighbor_graph(X * scale, 8), expected)
    agree = neighbor_graph((X + 1000) * scale, 8) == expected
    assert agree.mean() > 0.999


def test_distances_far_below_the_norms_are_still_ordered():
    rng = np.random.default_rng(0)
    centers = 100 * rng.normal(size=(20, 10))  # tight clusters: few digits left
    X = np.repeat(centers, 40, axis=0) + 0.3 * rng.normal(size=(800, 10))
    assert_nearest(neighbor_graph(X, 5), X, X, 5, rtol=1e-3)


@pytest.mark.parametrize("method", ["exact", pytest.param("approximate", marks=needs_faiss)])
@pytest.mark.parametrize("d", [2, 9])
def test_duplicates_each_come_first_in_their_own_list(method, d):
    X = np.vstack([np.zeros((300, d)), clusters(200, d)])
    graph = neighbor_graph(X, 10, method=method)
    np.testing.assert_array_equal(graph[:, 0], np.arange(500))
    assert (np.diff(np.sort(graph, axis=1), axis=1) > 0).all()
    assert (graph >= 0).all()
    assert (graph[:300] < 300).all()


@given(
    st.integers(1, 40),
    st.integers(1, 12),
    st.integers(1, 45),
    st.integers(0, 3),
    st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_lists_begin_with_their_row_and_never_repeat(n, d, k, n_values, seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(-n_values, n_values + 1, size=(n, d))  # few values: many ties and duplicates
    graph = neighbor_graph(X, k)
    np.testing.assert_array_equal(graph[:, 0], np.arange(n))
    assert all(len(set(row)) == min(k, n) for row in graph.tolist())
    assert neighbor_counts(graph).sum() == graph.size


@needs_faiss
def test_the_approximate_graph_has_a_recall_of_97_percent():
    X = clusters(20_000, 20)
    graph = neighbor_graph(X, 50, method="approximate")
    sample = np.arange(0, 20_000, 50)
    truth, _ = exact_neighbors(X[sample], X, 50)
    recall = np.mean([np.isin(graph[i], t).mean() for i, t in zip(sample, truth, strict=True)])
    assert recall >= 0.97


@needs_faiss
@pytest.mark.parametrize("method", ["exact", "approximate"])
def test_thread_settings_are_restored(method):
    import faiss

    def threads() -> list:
        pools = threadpool_info()
        return [faiss.omp_get_max_threads(), *((p["filepath"], p["num_threads"]) for p in pools)]

    neighbor_graph(clusters(300, 9), 5, method=method)  # whatever is loaded lazily is now there
    before = threads()
    neighbor_graph(clusters(300, 9), 5, method=method)
    assert threads() == before


def test_without_faiss_the_search_is_exact(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    monkeypatch.setattr(module, "EXACT_MAX_ROWS", 10)
    X = clusters(50, 9)
    for method in ("auto", "approximate"):
        assert_nearest(neighbor_graph(X, 3, method=method), X, X, 3)
    with pytest.raises(MissingExtraError, match=r'pip install "sigmax\[large\]"'):
        module.import_faiss()


@needs_faiss
def test_auto_is_approximate_for_many_rows_of_many_features(monkeypatch):
    called = []
    monkeypatch.setattr(module, "EXACT_MAX_ROWS", 100)
    monkeypatch.setattr(
        module,
        "_approximate_neighbors",
        lambda X, k, seed: called.append(1) or np.zeros((len(X), k), np.int32),
    )
    neighbor_graph(clusters(101, 9), 1)
    assert called
    neighbor_graph(clusters(100, 9), 1)
    neighbor_graph(clusters(101, 8), 1)
    assert len(called) == 1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (dict(k=0), InvalidArgumentError, "`k` must be a whole number of at least 1, got 0"),
        (dict(method="fast"), InvalidArgumentError, "`method` must be one of approximate, auto"),
        (dict(X=[[np.nan]]), InvalidDataError, "`X` cannot be used: Input X contains NaN"),
        (dict(X=[1.0, 2.0]), InvalidDataError, "`X` cannot be used: Expected 2D array"),
        (
            dict(X=np.ones((0, 2))),
            InvalidDataError,
            "`X` cannot be used: Found array with 0 sample",
        ),
    ],
)
def test_errors_name_the_argument(arguments, error, message):
    with pytest.raises(error, match=message):
        neighbor_graph(**{"X": np.ones((3, 2)), "k": 2, **arguments})


def test_queries_with_other_columns_raise_an_error():
    with pytest.raises(InvalidDataError, match="`queries` must have the 2 columns of `X`, got 3"):
        exact_neighbors(np.ones((1, 3)), np.ones((4, 2)), 1)
