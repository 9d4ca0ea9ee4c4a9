"""Random numbers: every ``random_state`` of the public API becomes one key or generator.

A ``random_state`` is an int, a RandomState, a Generator or None. An int gives the same draws in
every call. A RandomState or Generator advances, so that the next call with it gives other draws.
None gives new draws in every call. Inside the package, keys are split by name.

A key is the data of one of `jax.random`, as an array of NumPy, with the same draws: `jax_key` turns
it into one of JAX.
"""

import zlib
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import UInt32

from sigmax.errors import InvalidArgumentError
from sigmax.values import is_jax, jax

RandomKey: TypeAlias = Any
"""Key: an array of NumPy, two words of 32 bits, or one of JAX."""

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


def invalid_state(random_state: Any) -> InvalidArgumentError:
    rule = "an int of at least 0, a RandomState, a Generator or None"
    return InvalidArgumentError(f"`random_state` must be {rule}, got {random_state!r}.")


def make_key(random_state: Any) -> UInt32[np.ndarray, "2"]:
    """Key of an int, RandomState, Generator or None: the data of JAX's key of the same seed."""
    return np.array([0, draw_seed(random_state)], np.uint32)


def jax_key(key: RandomKey) -> Any:
    """Key for the functions of `jax.random`."""
    return jax.random.wrap_key_data(jax.numpy.asarray(key)) if isinstance(key, np.ndarray) else key


def named_key(key: RandomKey, name: str) -> Any:
    """Key of the consumer ``name``; new consumers do not change the draws of others.

    Examples
    --------
    >>> named_key(make_key(0), "forest")
    array([ 121165781, 1810518355], dtype=uint32)
    """
    if is_jax(key):
        return jax.random.fold_in(key, name_number(name))
    return threefry(key, np.array([0, name_number(name)], np.uint32))  # as `jax.random.fold_in`


def threefry(
    key: UInt32[np.ndarray, "2"], counter: UInt32[np.ndarray, "2"]
) -> UInt32[np.ndarray, "2"]:
    """Block cipher Threefry-2x32 of 20 rounds (Salmon et al. 2011), on which JAX's keys rest."""
    words = [int(key[0]), int(key[1]), int(key[0]) ^ int(key[1]) ^ 0x1BD11BDA]
    a, b = (int(counter[n]) + words[n] & 0xFFFFFFFF for n in (0, 1))
    for n in range(5):
        for rotation in ((13, 15, 26, 6), (17, 29, 16, 24))[n % 2]:
            a = a + b & 0xFFFFFFFF
            b = (b << rotation | b >> 32 - rotation) & 0xFFFFFFFF ^ a
        a, b = a + words[(n + 1) % 3] & 0xFFFFFFFF, b + words[(n + 2) % 3] + n + 1 & 0xFFFFFFFF
    return np.array([a, b], np.uint32)


def name_number(name: str) -> int:
    """Number of a consumer, folded into its key."""
    return zlib.crc32(name.encode())


def named_generator(key: RandomKey, name: str) -> np.random.Generator:
    """NumPy generator of the consumer ``name``, for draws without compilation."""
    words = jax.random.key_data(key) if is_jax(key) else key
    return np.random.default_rng([*np.asarray(words).tolist(), name_number(name)])
