"""Random numbers: every ``random_state`` of the public API becomes one key or generator.

A ``random_state`` is an int, a RandomState, a Generator or None. An int gives the same draws in
every call. A RandomState or Generator advances, so that the next call with it gives other draws.
None gives new draws in every call. Inside the package, keys are split by name.
"""

import zlib
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

LARGEST_SEED = 2**31 - 1


def draw_seed(random_state: Any) -> int:
    """Draw a seed from an int, RandomState, Generator or None.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> draw_seed(0) == draw_seed(0), draw_seed(rng) == draw_seed(rng)
    (True, False)
    """
    from sklearn.utils import check_random_state  # imported here because it is slow

    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(LARGEST_SEED))
    try:
        return int(check_random_state(random_state).randint(LARGEST_SEED))
    except (TypeError, ValueError):
        raise invalid_state(random_state) from None


def make_generator(random_state: Any) -> np.random.Generator:
    """NumPy generator of an int, RandomState or None; a Generator is returned unchanged.

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
        raise invalid_state(random_state) from None


def invalid_state(random_state: Any) -> ValueError:
    rule = "an int of at least 0, a RandomState, a Generator or None"
    return ValueError(f"`random_state` must be {rule}, got {random_state!r}.")


def make_key(random_state: Any) -> PRNGKeyArray:
    """JAX key of an int, RandomState, Generator or None."""
    return jax.random.key(draw_seed(random_state))


def named_key(key: PRNGKeyArray, name: str) -> PRNGKeyArray:
    """Key of the consumer ``name``; new consumers do not change the draws of others."""
    return jax.random.fold_in(key, name_number(name))


def name_number(name: str) -> int:
    """Number of a consumer, folded into its key."""
    return zlib.crc32(name.encode())


def named_generator(key: PRNGKeyArray, name: str) -> np.random.Generator:
    """NumPy generator of the consumer ``name``, for draws without compilation."""
    words = np.asarray(jax.random.key_data(key)).tolist()
    return np.random.default_rng([*words, name_number(name)])
