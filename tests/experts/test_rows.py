"""Held-out rows: duplicates of a row go with it, and few rows are held out in larger shares."""

import jax
import numpy as np
import pytest
from estimator_list import NETWORKS, fresh, name_of
from hypothesis import example, given
from hypothesis import strategies as st

from sigmax.experts.ensemble import prepare
from sigmax.experts.rows import Rows, duplicate_groups, hold_out
from sigmax.random import named_generator

KEY = jax.random.key(0)


def random_rows(n=200, d=3, seed=0):
    return np.random.default_rng(seed).uniform(0, 10, size=(n, d))


def test_duplicates_are_the_rows_of_equal_X():
    X = np.round(random_rows(500, 2), 0)
    _, expected = np.unique(X, axis=0, return_inverse=True)
    labels = duplicate_groups(X)
    assert labels.max() == expected.max()
    pairs = set(zip(labels.tolist(), expected.reshape(-1).tolist(), strict=True))
    assert len(pairs) == labels.max() + 1  # one label for one distinct row


@pytest.mark.parametrize("shift", [0.0, 1e3, -47.5])
def test_duplicates_are_equal_up_to_single_precision(shift):
    X = random_rows() + shift
    rounded = X.astype(np.float32).astype(np.float64)
    labels = duplicate_groups(np.r_[X, rounded])
    np.testing.assert_array_equal(labels[:200], labels[200:])
    assert duplicate_groups(np.r_[X, X + 1e-3]).max() == 399  # and no farther


def test_a_dense_column_is_not_one_long_chain_of_duplicates():
    labels = duplicate_groups(np.linspace(0, 1e-3, 5000)[:, None] + 1.0)
    assert np.bincount(labels).max() < 50


@example(sizes=[17, 18], share=0.5, n_members=1)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=2, max_size=60),
    share=st.floats(0.02, 0.5),
    n_members=st.integers(1, 12),
)
def test_no_duplicate_of_a_held_out_row_is_learned_from(sizes, share, n_members):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    folds = hold_out(labels, share, n_members, KEY, largest=4096)
    fewest = min(20, 0.4 * len(labels))
    n_held_out = max(1, round(max(share * len(labels), fewest)))
    for rows in folds:
        assert 0 < len(rows) < 2 * max(n_held_out, 2) and len(rows) < len(labels)
        assert len(set(rows)) == len(rows)
        learned = np.setdiff1d(np.arange(len(labels)), rows)
        both = np.intersect1d(labels[rows], labels[learned])
        assert all(sizes[label] > n_held_out for label in both)  # which no fold could hold


def test_without_duplicates_folds_are_those_of_a_plain_shuffle():
    folds = hold_out(np.arange(300), 0.1, 12, KEY, largest=4096)
    for member, rows in enumerate(folds):
        shuffled = named_generator(KEY, f"folds {member // 10}").permutation(300)
        start = member % 10 * 30
        np.testing.assert_array_equal(rows, shuffled[start : start + 30])


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_of_the_fewest_rows_some_are_held_out_and_some_learned(n):
    for rows in hold_out(np.arange(n), 0.1, 10, KEY, largest=4096):
        assert 1 <= len(rows) < n


@pytest.mark.parametrize("network", NETWORKS, ids=name_of)
def test_every_network_holds_out_duplicates_together_and_counts_them_once(network):
    X, y = random_rows(150), np.random.default_rng(1).normal(size=300)
    given = fresh(network).read_training(np.r_[X, X.astype(np.float32)], y)
    expert = network.expert()
    start = prepare(expert, Rows.encode(given, expert.target(given)), KEY)
    for rows in start.held_out:
        assert len(rows) and set(rows % 150) == set(rows[rows < 150])
    assert given.n_distinct == 300  # equal X with other y are measurements of their own
