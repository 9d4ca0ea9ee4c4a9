"""Saved models: a folder with one JSON file and one safetensors file, never a pickle.

Reading a model runs no code: the JSON names one of our estimators and its settings, the arrays are
numbers, and anything else raises an error. The JSON holds a checksum of itself, one of the
file of arrays, and the type and shape of every array, so that damage is found before it is used.
"""

import hashlib
import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from sigmax.atomic import new_folder
from sigmax.errors import ModelFileError

FORMAT = 4
"""Version of the layout; every other version raises an error."""

HEADER, ARRAYS = "model.json", "arrays.safetensors"

LARGEST_TEXT = 1 << 28
"""Maximum number of bytes of a header, and of any other text in a model folder."""


def write_model(
    folder: str | Path, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write a model folder atomically; an older model of the same name is replaced.

    A folder with any other file raises ModelFileError, so that no file is lost.
    """
    folder = Path(folder)
    is_model = all((folder / name).is_file() for name in (HEADER, ARRAYS))
    if folder.exists() and not is_model and not (folder.is_dir() and not any(folder.iterdir())):
        raise ModelFileError(f"`path` {str(folder)!r} exists and is not a sigmax model folder.")
    content = safetensors.numpy.save({k: np.ascontiguousarray(v) for k, v in arrays.items()})
    metadata = {
        "format": FORMAT,
        **header,
        "arrays": {name: describe(array) for name, array in arrays.items()},
        "arrays_sha256": hashlib.sha256(content).hexdigest(),
    }
    try:
        text = render({**metadata, "sha256": header_checksum(metadata)})
    except (TypeError, ValueError) as error:  # a setting that JSON cannot hold
        raise ModelFileError(f"Cannot write the model to {str(folder)!r}: {error}.") from error
    names = (HEADER, ARRAYS)
    with new_folder(folder, force=True, names=names, failure=ModelFileError) as fresh:
        (fresh / ARRAYS).write_bytes(content)
        (fresh / HEADER).write_bytes(text)


def read_model(folder: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a model folder.

    A missing, changed or additional file, or one of another format, raises ModelFileError.
    """
    folder = Path(folder)
    if not (folder / HEADER).is_file():
        raise ModelFileError(f"{str(folder)!r} is not a sigmax model folder: no {HEADER} in it.")
    header = read_header(folder / HEADER, read_bytes(folder / HEADER))
    if unknown := sorted(set(os.listdir(folder)) - {HEADER, ARRAYS}):
        raise ModelFileError(
            f"{str(folder)!r} contains files that do not belong to the model: {', '.join(unknown)}."
        )
    return header, read_arrays(folder / ARRAYS, header)


def read_bytes(path: Path, largest: int = LARGEST_TEXT) -> bytes:
    """Content of a regular file of at most ``largest`` bytes; never reads a pipe or a device."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ModelFileError(f"{str(path)!r} is not a regular file.")
            if status.st_size > largest:
                raise ModelFileError(
                    f"{str(path)!r} has {status.st_size:,} bytes, more than the {largest:,} that"
                    " belong to the model."
                )
            return file.read(largest + 1)
    except ModelFileError:
        raise
    except OSError as error:
        raise ModelFileError(f"Cannot read {str(path)!r}: {error}.") from error


def read_header(path: Path, content: bytes, newest: int = FORMAT) -> dict[str, Any]:
    """JSON of a model of the format ``newest``; an error if a byte of it has changed."""
    try:
        header = json.loads(content)
        version = header["format"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelFileError(f"{str(path)!r} is damaged: {error!r}.") from error
    if version != newest:
        writer, advice = "another sigmax", "fit and save it again"
        if isinstance(version, int) and version > newest:
            writer, advice = "a newer sigmax", "upgrade with `pip install -U sigmax`"
        raise ModelFileError(
            f"{str(path)!r} was written by {writer} (format {version!r}, this one reads {newest}):"
            f" {advice}."
        )
    metadata = {name: value for name, value in header.items() if name != "sha256"}
    try:
        checksum = header_checksum(metadata)
        is_whole = header.get("sha256") == checksum and content == render(header)
    except ValueError as error:  # numbers that JSON does not have
        raise ModelFileError(f"{str(path)!r} is damaged: {error!r}.") from error
    if not is_whole:
        raise ModelFileError(f"{str(path)!r} is damaged: its content does not fit its checksum.")
    return header


def read_arrays(path: Path, header: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Arrays of a file; an error if they are not those that the header lists."""
    try:
        listed = header["arrays"]
        n_bytes = sum(
            np.dtype(a["dtype"]).itemsize * math.prod(a["shape"]) for a in listed.values()
        )
        content = read_bytes(path, n_bytes + 2 * len(render(header)) + 4096)
        if hashlib.sha256(content).hexdigest() != header["arrays_sha256"]:
            raise ValueError(f"its content does not match the checksum in {HEADER}")
        arrays = safetensors.numpy.load(content)
        for name in sorted(set(arrays) | set(listed)):
            if name not in arrays:
                raise ValueError(f"the array {name!r} is missing")
            if name not in listed:
                raise ValueError(f"the array {name!r} does not belong to the model")
            if (found := describe(arrays[name])) != listed[name]:
                raise ValueError(f"the array {name!r} is {found}, not {listed[name]}")
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelFileError(f"{str(path)!r} is damaged: {error}.") from error
    return arrays


def describe(array: np.ndarray) -> dict[str, Any]:
    """Type and shape of an array in a file, where every array has an axis."""
    return {"dtype": str(array.dtype), "shape": list(array.shape or (1,))}


def header_checksum(metadata: Mapping[str, Any]) -> str:
    """SHA-256 of a header without its checksum, as JSON with sorted keys."""
    text = json.dumps(metadata, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def render(header: Mapping[str, Any]) -> bytes:
    return (json.dumps(header, indent=2, allow_nan=False) + "\n").encode()
