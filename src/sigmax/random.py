"""Random numbers: one ``random_state`` becomes one key or generator at the edge.

A ``random_state`` is an int, a RandomState, a Generator or None. An int gives the same draws in
every call. A RandomState or Generator is drawn from, so that the next call with it gives others.
None gives new draws in every call. Below the edge, keys are split by name.
"""

import zlib
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

LARGEST_SEED = 2**31 - 1


def draw_seed(random_state: Any) -> int:
    """A seed from an int, RandomState, Generator or None.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> draw_seed(0) == draw_seed(0), draw_seed(rng) == draw_seed(rng)
    (True, False)
    """
    from sklearn.utils import check_random_state  # here, for it takes longest to import

    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(LARGEST_SEED))
    try:
        return int(check_random_state(random_state).randint(LARGEST_SEED))
    except (TypeError, ValueError):
        raise refusal(random_state) from None


def make_generator(random_state: Any) -> np.random.Generator:
    """A NumPy generator from an int, RandomState, Generator or None; a Generator is itself.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> make_generator(rng) is rng, make_generator(0).random() == rng.random()
    (True, True)
    """
    if isinstance(random_state, np.random.RandomState):
        random_state = draw_seed(random_state)
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError):
        raise refusal(random_state) from None


def refusal(random_state: Any) -> ValueError:
    rule = "an int of at least 0, a RandomState, a Generator or None"
    return ValueError(f"`random_state` must be {rule}, got {random_state!r}.")


def make_key(random_state: Any) -> PRNGKeyArray:
    """A JAX key from an int, RandomState, Generator or None."""
    return jax.random.key(draw_seed(random_state))


def named_key(key: PRNGKeyArray, name: str) -> PRNGKeyArray:
    """The key of the consumer ``name``: a new consumer leaves the others' draws alone."""
    return jax.random.fold_in(key, name_number(name))


def name_number(name: str) -> int:
    """The number of a consumer, by which its key is split off."""
    return zlib.crc32(name.encode())


def named_generator(key: PRNGKeyArray, name: str) -> np.random.Generator:
    """A NumPy generator for the consumer ``name``: for draws on the host, which compile nothing."""
    words = np.asarray(jax.random.key_data(key)).tolist()
    return np.random.default_rng([*words, name_number(name)])
