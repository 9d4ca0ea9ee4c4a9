"""The four image sets of the paper, by name: pixels in [0, 1], one image per row.

A set is read from ``<name>.npz`` (uint8 arrays ``X_train``, ``y_train``, ``X_test`` and
``y_test``) in the data folder or the cache, or from the file of a known subset, which
`ImageData.note` describes. Otherwise the original files are downloaded, checked against their
checksums, and saved as npz in the cache. No format can hold code: CIFAR-10 is read in its binary
version, not from pickles.
"""

import gzip
import math
import tarfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sigmax.data.store import content_hash, load_set, look_up, original_file, read_toml
from sigmax.errors import DataFileError
from sigmax.settings import check_choice

NAMES = ("X_train", "y_train", "X_test", "y_test")

Arrays = Sequence[NDArray[np.uint8]]
"""Arrays in the order of `NAMES`; channels are the last axis of images."""


@final
@dataclass(frozen=True, kw_only=True)
class ImageSubset:
    """File with a subset of an image set."""

    file: str
    n_train: int
    n_test: int
    note: str
    """Description of the subset for the notes of tables."""
    content_hash: str


@final
@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """Description and source of an image set."""

    name: str
    title: str
    n_train: int
    n_test: int
    shape: tuple[int, ...]
    """Height, width and, for colour images, channels."""
    format: str
    """Format of the original files: a key of `FORMATS`."""
    url: str
    """Address of the folder of the original files."""
    md5: dict[str, str]
    """File name -> checksum, as published by the authors or torchvision."""
    content_hash: str | None = None
    """Hash of the whole set, if known."""
    subset: ImageSubset | None = None

    def fetch(self) -> "Arrays":
        """Read the original files, in a folder of the cache; remove downloads after use."""
        with ExitStack() as stack:
            files = (
                original_file(f"{self.name}/{file}", f"{self.url}/{file}", known_hash=f"md5:{md5}")
                for file, md5 in self.md5.items()
            )
            return FORMATS[self.format]([stack.enter_context(file) for file in files])


@final
@dataclass(frozen=True, eq=False)
class ImageData:
    """Image set: one flat row per image, float32 in [0, 1], in the order of its source."""

    name: str
    X_train: NDArray[np.float32]
    y_train: NDArray[np.integer]
    X_test: NDArray[np.float32]
    y_test: NDArray[np.integer]
    description: ImageSet
    note: str = ""
    """Difference from the original set; empty for the whole set."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Height, width and, for colour images, channels."""
        return self.description.shape

    @cached_property
    def content_hash(self) -> str:
        """Sixteen hex digits that depend on every pixel and label."""
        train, test = (np.rint(X * 255) for X in (self.X_train, self.X_test))
        return content_hash((train, self.y_train, test, self.y_test), "u1")


def load_images(name: str) -> ImageData:
    """Load one of `IMAGE_SETS`, from a file or else from its source.

    Raises
    ------
    DataFileError
        If there is no file and the download fails, or if the data are not the set.
    """
    described = IMAGE_SETS[check_choice("name", name, IMAGE_SETS)]
    subset, stem, note = described.subset, name, ""
    if subset is not None and look_up(f"{name}.npz") is None and look_up(subset.file) is not None:
        stem, note = subset.file.removesuffix(".npz"), subset.note
    X_train, y_train, X_test, y_test = load_set(
        stem,
        NAMES,
        described.fetch,
        partial(check_images, described, subset if note else None),
        f"uint8 arrays {', '.join(NAMES)}",
    )
    X_train, X_test = (
        X.reshape(len(X), -1).astype(np.float32) / np.float32(255) for X in (X_train, X_test)
    )
    return ImageData(name, X_train, y_train, X_test, y_test, described, note)


def check_images(
    described: ImageSet, subset: ImageSubset | None, arrays: Sequence[NDArray], where: str
) -> None:
    """Raise an error if arrays are not the described set, or its subset."""
    part = subset or described
    for name, array in zip(NAMES, arrays, strict=True):
        n_images = part.n_train if name.endswith("train") else part.n_test
        shape = (n_images, *described.shape) if name.startswith("X") else (n_images,)
        if array.shape != shape:
            problem = f"{name} has the shape {array.shape}, not {shape}"
            break
        if array.dtype != np.uint8:
            problem = f"{name} has the type {array.dtype}, not uint8"
            break
    else:
        found = content_hash(arrays, "u1")
        if part.content_hash in (None, found):
            return
        problem = f"its content hash is {found}, not {part.content_hash}"
    what = f"the known subset of {described.title}" if subset else described.title
    raise DataFileError(f"{where} is not {what}: {problem}.")


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an array of bytes from a gzipped idx file.

    Two zero bytes, the type (8: unsigned byte), the number of axes, their lengths as big-endian
    32-bit numbers, and the values, last axis fastest.
    """
    try:
        with gzip.open(path) as file:
            content = file.read()
        if len(content) < 4 or content[:3] != b"\x00\x00\x08":
            raise ValueError("not an idx file of bytes")
        start = 4 + 4 * content[3]
        shape = [int(n) for n in np.frombuffer(content[4:start], ">u4")]
        if len(content) != start + math.prod(shape):
            raise ValueError(f"{len(content) - start} bytes for the shape {tuple(shape)}")
        return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataFileError(f"{path} cannot be read: {error}.") from error


def read_cifar_archive(paths: Sequence[Path]) -> Arrays:
    """Read a tar file of five training batches and one test batch, without unpacking it."""
    (path,) = paths
    wanted = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = member.name.rsplit("/", 1)[-1]
                file = archive.extractfile(member) if name in wanted else None
                if file is not None:
                    found[name] = file.read()
        *train, test = (read_cifar(found[name]) for name in wanted)
    except (OSError, EOFError, KeyError, ValueError, tarfile.TarError, zlib.error) as error:
        raise DataFileError(f"{path} cannot be read: {error!r}.") from error
    X, y = (np.concatenate(parts) for parts in zip(*train, strict=True))
    return [X, y, *test]


def read_cifar(content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (n, 32, 32, 3) and labels (n,) of a batch of CIFAR-10's binary version.

    An image is its label, then all its red, green and blue values, row by row.
    """
    rows = np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), rows[:, 0].copy()


def read_svhn_files(paths: Sequence[Path]) -> Arrays:
    """Read two Matlab files, for training and test; their label 10 is the digit 0."""
    from scipy.io import loadmat

    arrays: list[NDArray[np.uint8]] = []
    for path in paths:
        try:
            content = loadmat(path, variable_names=["X", "y"])
            images = np.asarray(content["X"], np.uint8).transpose(3, 0, 1, 2)
            labels = np.asarray(content["y"]).ravel() % 10
        except Exception as error:  # scipy raises its own errors for a broken file
            raise DataFileError(f"{path} cannot be read: {error!r}.") from error
        arrays += [np.ascontiguousarray(images), labels.astype(np.uint8)]
    return arrays


FORMATS: dict[str, Callable[[Sequence[Path]], Arrays]] = {
    "idx": lambda paths: [read_idx(path) for path in paths],
    "cifar": read_cifar_archive,
    "svhn": read_svhn_files,
}


def describe_set(name: str, values: dict[str, Any]) -> ImageSet:
    subset, shape = values.pop("subset", None), tuple(values.pop("shape"))
    part = ImageSubset(**subset) if subset else None
    return ImageSet(name=name, shape=shape, subset=part, **values.pop("source"), **values)


IMAGE_SETS: dict[str, ImageSet] = {
    name: describe_set(name, values) for name, values in read_toml("images.toml").items()
}
"""Descriptions of all sets, by name."""
