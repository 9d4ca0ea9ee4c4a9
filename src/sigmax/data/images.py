"""The four image sets of the paper, by name: pixels in [0, 1], one image per row.

A set is read from ``<name>.npz`` (uint8 arrays ``X_train``, ``y_train``, ``X_test`` and
``y_test``) in the data folder or the cache; then, where there is one, from a file that holds a part
of it, and says so in `ImageData.note`. Where there is neither, the original files are fetched, held
against their checksums, and an npz file is left in the cache.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

from sigmax.data.image_files import (
    NAMES,
    AbstractImageFiles,
    Arrays,
    CIFARFile,
    IDXFiles,
    SVHNFiles,
)
from sigmax.data.store import (
    cache_folder,
    content_hash,
    look_up,
    read_npz,
    where_to_put,
    write_npz,
)
from sigmax.errors import DataFileError, InvalidArgumentError

__all__ = ["IMAGE_SETS", "ImageData", "ImageSet", "load_images"]


@final
@dataclass(frozen=True, kw_only=True)
class ImageSubset:
    """A file with a part of a set."""

    file: str
    n_train: int
    n_test: int
    note: str
    """How the part was taken, for whoever reads a table."""
    content_hash: str


@final
@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """What an image set is, and where it comes from."""

    name: str
    title: str
    n_train: int
    n_test: int
    shape: tuple[int, ...]
    """Height, width and, for colours, channels."""
    source: AbstractImageFiles
    content_hash: str | None = None
    """What a whole set must have, where it is known."""
    subset: ImageSubset | None = None


@final
@dataclass(frozen=True, eq=False)
class ImageData:
    """An image set: one flat row per image, float32 in [0, 1], in the order of its source."""

    name: str
    X_train: NDArray[np.float32]
    y_train: NDArray[np.integer]
    X_test: NDArray[np.float32]
    y_test: NDArray[np.integer]
    description: ImageSet
    note: str = ""
    """How these images differ from the original set; empty for the whole set."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Height, width and, for colours, channels of an image."""
        return self.description.shape

    @property
    def is_subset(self) -> bool:
        """Whether this is a part of the set only."""
        return bool(self.note)

    @cached_property
    def content_hash(self) -> str:
        """Sixteen digits that change with any pixel or label."""
        train, test = (np.rint(X * 255) for X in (self.X_train, self.X_test))
        return content_hash((train, self.y_train, test, self.y_test), "u1")


def load_images(name: str) -> ImageData:
    """One of `IMAGE_SETS` by its name: from a file if there is one, or else from its source.

    Raises
    ------
    DataFileError
        If there is no file and none can be fetched, or if what came is not the set.
    """
    if name not in IMAGE_SETS:
        raise InvalidArgumentError(f"`name` must be one of {', '.join(IMAGE_SETS)}; got {name!r}.")
    described = IMAGE_SETS[name]
    subset, note = described.subset, ""
    path = look_up(f"{name}.npz")
    if path is not None:
        arrays = read_file(path)
        check_images(described, arrays, f"{path} (replace or remove it)")
    elif subset is not None and (path := look_up(subset.file)) is not None:
        arrays, note = read_file(path), subset.note
        check_images(described, arrays, f"{path} (replace or remove it)", subset=subset)
    else:
        arrays = fetch_images(described)
    X_train, X_test = (as_pixel_rows(arrays[part]) for part in ("X_train", "X_test"))
    return ImageData(name, X_train, arrays["y_train"], X_test, arrays["y_test"], described, note)


def read_file(path: Path) -> Arrays:
    return dict(zip(NAMES, read_npz(path, *NAMES), strict=True))


def as_pixel_rows(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Flat rows in [0, 1]."""
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(255)


def fetch_images(described: ImageSet) -> Arrays:
    """A set from its source, checked and left in the cache."""
    npz = f"{described.name}.npz"
    try:
        arrays = described.source.fetch()
    except DataFileError as error:
        ready = where_to_put(f"{npz}, with the uint8 arrays {', '.join(NAMES)},")
        raise DataFileError(f"{error} If you have the set already, {ready}.") from error
    check_images(described, arrays, "What was fetched")
    write_npz(cache_folder() / npz, **arrays)
    return arrays


def check_images(
    described: ImageSet, arrays: Arrays, where: str, *, subset: ImageSubset | None = None
) -> None:
    """Refuse arrays that cannot be the described set, or the subset of it."""
    part = subset or described
    expected = {
        "X_train": (part.n_train, *described.shape),
        "y_train": (part.n_train,),
        "X_test": (part.n_test, *described.shape),
        "y_test": (part.n_test,),
    }
    for name, shape in expected.items():
        if arrays[name].shape != shape:
            problem = f"{name} has the shape {arrays[name].shape}, not {shape}"
            break
        if arrays[name].dtype != np.uint8:
            problem = f"{name} is not of bytes but of {arrays[name].dtype}"
            break
    else:
        found = content_hash((arrays[name] for name in NAMES), "u1")
        if part.content_hash in (None, found):
            return
        problem = f"its content hash is {found}, not {part.content_hash}"
    what = f"the known part of {described.title}" if subset else described.title
    raise DataFileError(f"{where} is not {what}: {problem}.")


_SETS = [
    ImageSet(
        name="mnist",
        title="MNIST",
        n_train=60_000,
        n_test=10_000,
        shape=(28, 28),
        content_hash="06b0d1f124c4e5fa",
        source=IDXFiles(
            url="https://ossci-datasets.s3.amazonaws.com/mnist",
            folder="mnist",
            md5={
                "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
                "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
                "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
            },
        ),
    ),
    ImageSet(
        name="fashion_mnist",
        title="FashionMNIST",
        n_train=60_000,
        n_test=10_000,
        shape=(28, 28),
        content_hash="ca3ab2a37f845e1b",
        source=IDXFiles(
            url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
            folder="fashion_mnist",
            md5={
                "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
                "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
                "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
            },
        ),
    ),
    ImageSet(
        name="cifar10",
        title="CIFAR10",
        n_train=50_000,
        n_test=10_000,
        shape=(32, 32, 3),
        source=CIFARFile(
            url="https://www.cs.toronto.edu/~kriz",
            folder="cifar10",
            md5={"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
        ),
        subset=ImageSubset(
            file="cifar10_jpeg_subset.npz",
            n_train=10_000,
            n_test=2_000,
            note="a subset: 1,000 (test: 200) images of each class, decoded from JPEG copies, so"
            " not equal to the originals pixel for pixel",
            content_hash="a862ff2f6a774c63",
        ),
    ),
    ImageSet(
        name="svhn",
        title="SVHN",
        n_train=73_257,
        n_test=26_032,
        shape=(32, 32, 3),
        source=SVHNFiles(
            url="http://ufldl.stanford.edu/housenumbers",
            folder="svhn",
            md5={
                "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
                "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
            },
        ),
        subset=ImageSubset(
            file="svhn_test5000.npz",
            n_train=4_000,
            n_test=1_000,
            note="a subset: the first 5,000 digits of the official test part, 4,000 to train on and"
            " 1,000 to test on, recovered from enlarged copies",
            content_hash="0cb26ba452fbfe59",
        ),
    ),
]

IMAGE_SETS = {described.name: described for described in _SETS}
"""The sets by their names."""
