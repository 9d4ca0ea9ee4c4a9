"""Saved models: a folder with one JSON file and one safetensors file, never a pickle.

Reading a model runs no code of its own: the JSON names one of our estimators and its settings, the
arrays are numbers, and anything else is refused.
"""

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from sigmax.errors import ModelFileError

__all__ = ["FORMAT", "read_model", "write_model"]

FORMAT = 1
"""Version of the layout; a reader refuses what is newer than itself."""

HEADER, ARRAYS = "model.json", "arrays.safetensors"


def write_model(
    folder: str | Path, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write a model folder, whole or not at all; an older model of the same name is replaced.

    Raises
    ------
    ModelFileError
        If the folder cannot be written, or holds something that is no model.
    """
    folder = Path(folder)
    if folder.exists() and not (folder / HEADER).is_file() and not is_empty_folder(folder):
        raise ModelFileError(f"`path` {str(folder)!r} exists and is not a sigmax model folder.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise ModelFileError(f"Cannot write the model to {str(folder)!r}: {error}.") from error
    try:
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        save_file(contiguous, fresh / ARRAYS)
        text = json.dumps({"format": FORMAT, **header}, indent=2, allow_nan=False)
        (fresh / HEADER).write_text(text + "\n", encoding="utf-8")
        fresh.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        fresh.rename(folder)
    except OSError as error:
        raise ModelFileError(f"Cannot write the model to {str(folder)!r}: {error}.") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def is_empty_folder(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def read_model(folder: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a model folder.

    Raises
    ------
    ModelFileError
        If the folder is missing or damaged, or was written by a newer sigmax.
    """
    folder = Path(folder)
    if not (folder / HEADER).is_file():
        raise ModelFileError(f"{str(folder)!r} is not a sigmax model folder: no {HEADER} in it.")
    try:
        header = json.loads((folder / HEADER).read_text(encoding="utf-8"))
        version = header["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{str(folder / HEADER)!r} is damaged: {error!r}.") from error
    if not isinstance(version, int) or version > FORMAT:
        raise ModelFileError(
            f"{str(folder)!r} was written by a newer sigmax (format {version!r}, this one reads"
            f" up to {FORMAT}): upgrade with `pip install -U sigmax`."
        )
    try:
        arrays = load_file(folder / ARRAYS)
    except (OSError, SafetensorError, ValueError) as error:
        raise ModelFileError(f"{str(folder / ARRAYS)!r} is damaged: {error}.") from error
    return header, arrays
