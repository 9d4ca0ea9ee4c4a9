"""Values: pytrees of JAX as soon as JAX is there, and without it."""

import subprocess
import sys
from dataclasses import FrozenInstanceError, field
from typing import NamedTuple, final

import jax
import numpy as np
import pytest

from sigmax.values import STATIC, AbstractValue, namespace, tree_leaves, tree_map


@final
class Inner(AbstractValue):
    x: np.ndarray
    n_columns: int = field(default=1, metadata=STATIC)


class Ends(NamedTuple):
    low: np.ndarray
    high: np.ndarray


@final
class Outer(AbstractValue):
    inner: Inner
    parts: tuple[np.ndarray | None, ...]
    named: dict[str, np.ndarray]
    ends: Ends


def build(number: float = 1.0) -> Outer:
    a, b, c, d, e = (np.full(3, number + n) for n in range(5))
    return Outer(Inner(a, 7), (None, b), {"c": c}, Ends(d, e))


def test_a_map_over_leaves_is_that_of_jax():
    for trees in ([build()], [build(), build(5.0)]):
        ours = tree_map(lambda *leaves: sum(leaves), *trees)
        theirs = jax.tree.map(lambda *leaves: sum(leaves), *trees)
        assert (
            jax.tree.structure(ours) == jax.tree.structure(theirs) == jax.tree.structure(trees[0])
        )
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)
        for own, other in zip(tree_leaves(ours), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_array_equal(own, other)
        assert ours.inner.n_columns == theirs.inner.n_columns == 7


def test_a_value_never_changes():
    with pytest.raises(FrozenInstanceError):
        build().inner.x = np.zeros(3)  # pyright: ignore[reportAttributeAccessIssue]


def test_static_fields_are_static_and_leaves_are_traced():
    seen = []

    @jax.jit
    def double(value):
        seen.append(value.n_columns)
        return tree_map(lambda leaf: 2 * leaf, value)

    for n_columns in (1, 2, 1):
        found = double(Inner(np.ones(2), n_columns))
        assert found.n_columns == n_columns and found.x.tolist() == [2.0, 2.0]
    assert seen == [1, 2]


def test_leaves_have_the_names_of_fields():
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(build())]
    assert paths == [".inner.x", ".parts[1]", ".named['c']", ".ends.low", ".ends.high"]


def test_the_namespace_is_that_of_the_arrays():
    assert namespace(np.zeros(2), 1.0) is np
    assert namespace(np.zeros(2), jax.numpy.zeros(2)).zeros is jax.numpy.zeros


LATE = """
import sys
import numpy as np
from sigmax.values import AbstractValue, jnp

class Before(AbstractValue):
    x: np.ndarray

assert "jax" not in sys.modules
first = Before(np.zeros(2))
{use}
import jax

class After(AbstractValue):
    x: np.ndarray

for value in (Before(np.zeros(2)), After(np.zeros(2)), first):
    assert len(jax.tree.leaves(value)) == 1 and jax.tree.leaves(value)[0].shape == (2,)
"""


@pytest.mark.parametrize("use", ["", "jnp.zeros(2)"])
def test_classes_are_registered_once_jax_is_there(use):
    subprocess.run([sys.executable, "-c", LATE.format(use=use)], check=True, timeout=600)
