"""The original files of the image sets: where they are, their checksums, and how they are read.

None of these formats can hold code: CIFAR-10 is taken in its binary version, not as pickles.
"""

import gzip
import math
import tarfile
import zlib
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

from sigmax.data.store import original_file
from sigmax.errors import DataFileError

__all__ = [
    "NAMES",
    "AbstractImageFiles",
    "CIFARFile",
    "IDXFiles",
    "SVHNFiles",
    "read_cifar",
    "read_idx",
]

NAMES = ("X_train", "y_train", "X_test", "y_test")

Arrays = dict[str, NDArray[np.uint8]]
"""By `NAMES`; colours are the last axis of images."""


@dataclass(frozen=True, kw_only=True)
class AbstractImageFiles:
    """The files of one set, by their names, and the address of their folder."""

    url: str
    folder: str
    """Where the files lie in the cache, for some sets have files of the same names."""
    md5: dict[str, str]
    """File name -> checksum, as the authors or torchvision publish them."""

    def fetch(self) -> Arrays:
        """The set from its files; those that had to be downloaded are not kept."""
        with ExitStack() as stack:
            files = (
                original_file(
                    f"{self.folder}/{name}", f"{self.url}/{name}", known_hash=f"md5:{md5}"
                )
                for name, md5 in self.md5.items()
            )
            return self.read([stack.enter_context(file) for file in files])

    @abstractmethod
    def read(self, paths: Sequence[Path]) -> Arrays:
        """The arrays, from files in the order of ``md5``."""


@final
@dataclass(frozen=True, kw_only=True)
class IDXFiles(AbstractImageFiles):
    """Four gzipped idx files: training images and labels, then those of the test."""

    def read(self, paths: Sequence[Path]) -> Arrays:
        return dict(zip(NAMES, map(read_idx, paths), strict=True))


@final
@dataclass(frozen=True, kw_only=True)
class CIFARFile(AbstractImageFiles):
    """A tar file of five batches to train on and one to test on."""

    def read(self, paths: Sequence[Path]) -> Arrays:
        (path,) = paths
        wanted = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
        found: dict[str, bytes] = {}
        try:
            with tarfile.open(path) as archive:
                for member in archive:  # read in place: nothing is unpacked
                    name = member.name.rsplit("/", 1)[-1]
                    file = archive.extractfile(member) if name in wanted else None
                    if file is not None:
                        found[name] = file.read()
            *train, test = (read_cifar(found[name]) for name in wanted)
        except (OSError, EOFError, KeyError, ValueError, tarfile.TarError, zlib.error) as error:
            raise DataFileError(f"{path} cannot be read: {error!r}.") from error
        X, y = (np.concatenate(parts) for parts in zip(*train, strict=True))
        return {"X_train": X, "y_train": y, "X_test": test[0], "y_test": test[1]}


@final
@dataclass(frozen=True, kw_only=True)
class SVHNFiles(AbstractImageFiles):
    """Two files of Matlab, to train and to test on; their label 10 is the digit 0."""

    def read(self, paths: Sequence[Path]) -> Arrays:
        from scipy.io import loadmat

        arrays: Arrays = {}
        for part, path in zip(("train", "test"), paths, strict=True):
            try:
                content = loadmat(path, variable_names=["X", "y"])
                images = np.asarray(content["X"], np.uint8).transpose(3, 0, 1, 2)
                labels = np.asarray(content["y"]).ravel() % 10
            except Exception as error:  # the reader has errors of its own for a broken file
                raise DataFileError(f"{path} cannot be read: {error!r}.") from error
            arrays[f"X_{part}"] = np.ascontiguousarray(images)
            arrays[f"y_{part}"] = labels.astype(np.uint8)
        return arrays


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An array of bytes from a gzipped idx file.

    Two zero bytes, the type (8: unsigned byte), the number of axes, their lengths as big-endian
    32-bit numbers, and the values, the last axis fastest.
    """
    try:
        with gzip.open(path) as file:
            content = file.read()
        if len(content) < 4 or content[:3] != b"\x00\x00\x08":
            raise ValueError("no idx file of bytes")
        start = 4 + 4 * content[3]
        shape = [int(n) for n in np.frombuffer(content[4:start], ">u4")]
        if len(content) != start + math.prod(shape):
            raise ValueError(f"{len(content) - start} bytes for the shape {tuple(shape)}")
        return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataFileError(f"{path} cannot be read: {error}.") from error


def read_cifar(content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (n, 32, 32, 3) and labels (n,) from a batch of CIFAR-10's binary version.

    An image is its label, then all its red, all its green and all its blue values, row by row.
    """
    rows = np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), rows[:, 0].copy()
