"""Sheets of small images, packed into text that a record can hold."""

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["pack", "tiled", "unpack"]

N_GREYS = 16
"""Levels of a packed pixel, two of which make a byte."""


def tiled(images: NDArray) -> NDArray:
    """A square number of images (n, height, width[, channels]) as one picture, row by row.

    Examples
    --------
    >>> tiled(np.arange(4).reshape(4, 1, 1))
    array([[0, 1],
           [2, 3]])
    """
    side = round(len(images) ** 0.5)
    height, width, *channels = images.shape[1:]
    square = images.reshape(side, side, height, width, *channels)
    return square.swapaxes(1, 2).reshape(side * height, side * width, *channels)


def pack(picture: NDArray) -> dict[str, Any]:
    """A picture with values in [0, 1], rounded to sixteen levels, as JSON takes it."""
    levels = np.rint(picture * (N_GREYS - 1)).astype(np.uint8).ravel()
    pairs = np.append(levels, np.zeros(len(levels) % 2, np.uint8)).reshape(-1, 2)
    content = (pairs[:, 0] * N_GREYS + pairs[:, 1]).tobytes()
    return {"shape": list(picture.shape), "levels": base64.b64encode(content).decode()}


def unpack(packed: dict[str, Any]) -> NDArray[np.float64]:
    """The picture that `pack` was given, to a thirtieth of its range.

    Examples
    --------
    >>> unpack(pack(np.array([[0.0, 0.2, 1.0]])))
    array([[0. , 0.2, 1. ]])
    """
    try:
        content = np.frombuffer(base64.b64decode(packed["levels"], validate=True), np.uint8)
    except ValueError as error:
        raise ValueError(f"a sheet of images is damaged: {error}") from error
    levels = np.column_stack([content // N_GREYS, content % N_GREYS]).ravel()
    shape = [int(n) for n in packed["shape"]]
    return levels[: np.prod(shape)].reshape(shape) / (N_GREYS - 1)
