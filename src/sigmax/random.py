"""Keys: one ``random_state`` becomes one key at the edge, then keys are split by name."""

import zlib
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray
from sklearn.utils import check_random_state

__all__ = ["make_key", "named_generator", "named_key"]


def make_key(random_state: Any) -> PRNGKeyArray:
    """A JAX key from whatever scikit-learn takes as ``random_state``."""
    return jax.random.key(check_random_state(random_state).randint(2**31 - 1))


def named_key(key: PRNGKeyArray, name: str) -> PRNGKeyArray:
    """The key of the consumer ``name``: a new consumer leaves the others' draws alone."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def named_generator(key: PRNGKeyArray, name: str) -> np.random.Generator:
    """A NumPy generator for the consumer ``name``: for draws on the host, which compile nothing."""
    words = np.asarray(jax.random.key_data(key)).tolist()
    return np.random.default_rng([*words, zlib.crc32(name.encode())])
