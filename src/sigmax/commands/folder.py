"""The folder of a model that was fitted to a table: the model, and what it was fitted to.

``schema.json`` holds checksums of itself and of the scores and the report beside it; the folder
``model/`` holds its own. A folder with anything else in it is refused, and nothing is executed.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from sigmax.errors import ModelFileError
from sigmax.estimators import AbstractRegressor, LinearRegressor, find_class
from sigmax.files import header_checksum, read_bytes, render

__all__ = [
    "LINEAR",
    "MODEL",
    "NAMES",
    "REPORT",
    "SCHEMA",
    "SCORES",
    "SavedTableModel",
    "load_folder",
    "write_folder",
]

SCHEMA, SCORES, REPORT, MODEL = "schema.json", "scores.json", "report.html", "model"
LINEAR = "linear"
"""A linear model of the same rows, which new rows are compared with; not in every folder."""
NAMES = (SCHEMA, SCORES, REPORT, MODEL, LINEAR)
"""All that a folder holds."""
FORMAT = 1


@final
@dataclass(frozen=True)
class SavedTableModel:
    """A fitted model and the facts about its table."""

    model: AbstractRegressor
    facts: Mapping[str, Any]
    linear: LinearRegressor | None = None

    @property
    def target(self) -> str:
        return self.facts["target"]

    @property
    def features(self) -> list[str]:
        return [column["name"] for column in self.facts["features"]]


def write_folder(
    folder: Path,
    model: AbstractRegressor,
    facts: Mapping[str, Any],
    texts: Mapping[str, str],
    linear: AbstractRegressor | None = None,
) -> None:
    """Write the model, its facts and the texts by their names into an empty folder."""
    model.save(folder / MODEL)
    if linear is not None:
        linear.save(folder / LINEAR)
    contents = {name: text.encode() for name, text in texts.items()}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    checksums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    whole = {"format": FORMAT, **facts, "estimator": type(model).__name__, "files": checksums}
    (folder / SCHEMA).write_bytes(render({**whole, "sha256": header_checksum(whole)}))


def load_folder(folder: Path) -> SavedTableModel:
    """The model of a folder, refused if a file is missing, too many or changed."""
    if not (folder / SCHEMA).is_file():
        raise ModelFileError(
            f"{str(folder)!r} is not a folder that `sigmax fit` wrote: no {SCHEMA} in it."
        )
    facts = read_facts(folder / SCHEMA)
    check_files(folder, facts["files"])
    linear = LinearRegressor.load(folder / LINEAR) if (folder / LINEAR).exists() else None
    return SavedTableModel(find_class(facts["estimator"]).load(folder / MODEL), facts, linear)


def read_facts(path: Path) -> dict[str, Any]:
    """The content of a schema, refused if a byte of it has changed."""
    try:
        content = read_bytes(path)
        facts = json.loads(content)
        checked = {name: value for name, value in facts.items() if name != "sha256"}
        is_whole = facts["sha256"] == header_checksum(checked) and content == render(facts)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelFileError(f"{str(path)!r} is damaged: {error!r}.") from error
    if not is_whole:
        raise ModelFileError(f"{str(path)!r} is damaged: its content does not fit its checksum.")
    if facts["format"] != FORMAT:
        raise ModelFileError(
            f"{str(path)!r} was written by another sigmax (format {facts['format']!r}, this one"
            f" reads {FORMAT}): fit the model again, or use that version."
        )
    return facts


def check_files(folder: Path, checksums: Mapping[str, str]) -> None:
    """Refuse links, strangers, and files that are missing or changed."""
    strangers = sorted(path.name for path in folder.iterdir() if path.name not in NAMES)
    if strangers:
        raise ModelFileError(
            f"{str(folder)!r} holds files that are not of its model: {', '.join(strangers)}."
        )
    inner = [path for name in (MODEL, LINEAR) for path in (folder / name).glob("*")]
    for path in [folder / name for name in NAMES] + inner:
        if path.is_symlink():
            raise ModelFileError(f"{str(path)!r} is a link; a model folder holds its own files.")
    for name in (SCORES, REPORT):
        path = folder / name
        if hashlib.sha256(read_bytes(path)).hexdigest() != checksums.get(name):
            raise ModelFileError(
                f"{str(path)!r} is damaged: its content does not fit the checksum in {SCHEMA}."
            )
