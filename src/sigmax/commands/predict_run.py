"""The folder of a run of predictions: its manifest, and which of its parts are finished.

The manifest says what the run is of: model, options and inputs. It is written before the first
part, and a run of anything else does not go on in the folder. A part says in its footer to which
run it belongs and how many rows were read for it, so that one that is cut short, or of another run,
is told from a finished one.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from sigmax.commands.predict import PredictOptions
from sigmax.errors import InvalidArgumentError, TableFileError
from sigmax.tables.file_units import N_AT_ONCE, InputFile, Unit
from sigmax.tables.places import is_address, joined, names_in, open_place, system_of, whole_file

__all__ = ["MANIFEST", "PartFacts", "Run", "checksum", "model_files"]

MANIFEST = "_sigmax_predict.json"
"""Readers of whole folders pass over names that begin with an underscore."""
LOCK = ".sigmax_predict.lock"
FACTS = "sigmax_predict"
"""The name of what a part says about itself in its footer."""
FORMAT = 1
OURS = re.compile(r"part-\d{5,}\.parquet|\.part-\d{5,}\.parquet\..*\.partial|" + re.escape(LOCK))
PARTIAL = re.compile(r"\.part-\d{5,}\.parquet\..*\.partial")


@final
@dataclass(frozen=True)
class PartFacts:
    """What a part says about itself."""

    run: str
    unit: int
    n_read: int
    n_written: int


@final
@dataclass(frozen=True, kw_only=True)
class Run:
    """What is predicted, from which files, into which folder."""

    out: str
    model: str
    """The checksum of the files of the model."""
    options: PredictOptions
    rows_per_part: int
    reading: Mapping[str, Any]
    inputs: tuple[InputFile, ...]
    columns: pa.Schema
    units: tuple[Unit, ...]

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """What must be the same for a run to go on."""
        inputs = [asdict(file.found) | {"rows": file.n_rows} for file in self.inputs]
        options = asdict(self.options) | dict(self.reading) | {"rows_per_part": self.rows_per_part}
        whole = {"format": FORMAT, "model": self.model, "options": options, "inputs": inputs}
        return json.loads(json.dumps(whole))

    @cached_property
    def name(self) -> str:
        """The checksum of the manifest, which is written into every part."""
        return hashlib.sha256(json.dumps(self.manifest, sort_keys=True).encode()).hexdigest()

    def part(self, unit: Unit) -> str:
        """Where the part of a unit belongs."""
        return joined(self.out, f"part-{unit.number:05d}.parquet")

    def facts(self, unit: Unit, n_read: int) -> dict[str, str]:
        """What the part of a unit says about itself."""
        return {FACTS: json.dumps({"run": self.name, "unit": unit.number, "n_read": n_read})}

    def read_facts(self, unit: Unit) -> PartFacts | None:
        """What the part of a unit says about itself; None if it is not there, or damaged."""
        try:
            with open_place(self.part(unit)) as stream, pq.ParquetFile(stream) as file:
                told = json.loads((file.metadata.metadata or {})[FACTS.encode()])
                return PartFacts(**told, n_written=file.metadata.num_rows)
        except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
            return None

    def all_facts(self) -> list[PartFacts | None]:
        """What the part of every unit says about itself."""
        with ThreadPoolExecutor(N_AT_ONCE) as threads:
            return list(threads.map(self.read_facts, self.units))

    def trouble(self, unit: Unit, facts: PartFacts | None) -> str | None:
        """What is wrong with the part of a unit; None if it is finished."""
        if facts is None:
            return "is missing or damaged"
        if (facts.run, facts.unit) != (self.name, unit.number):
            return "is of another run"
        n_expected = facts.n_read if unit.n_rows is None else unit.n_rows
        if not facts.n_written == facts.n_read == n_expected:
            return (
                f"has {facts.n_written:,} rows, where {facts.n_read:,} were read and its input"
                f" {unit.address} has {n_expected:,}"
            )
        return None

    def unfinished(self) -> list[Unit]:
        """The units that are still to be predicted."""
        found = zip(self.units, self.all_facts(), strict=True)
        return [unit for unit, facts in found if self.trouble(unit, facts)]

    def finish(self) -> int:
        """The rows of all parts, after each was seen to have as many as its input.

        Raises
        ------
        TableFileError
            If one has not; the message names it.
        """
        n_written = 0
        for unit, facts in zip(self.units, self.all_facts(), strict=True):
            if trouble := self.trouble(unit, facts):
                raise TableFileError(f"{self.part(unit)} {trouble}: the run is not complete.")
            n_written += facts.n_written if facts else 0
        known = [file.n_rows for file in self.inputs if file.n_rows is not None]
        if len(known) == len(self.inputs) and sum(known) != n_written:
            raise TableFileError(
                f"{self.out} has {n_written:,} rows in all, and its inputs have {sum(known):,}."
            )
        self.remove_partial()
        self.write_manifest({"rows": n_written, "parts": len(self.units)})
        return n_written

    @contextmanager
    def opened(self, *, force: bool) -> Iterator[None]:
        """The folder, with the manifest in it, for this run alone.

        Raises
        ------
        InvalidArgumentError
            If the folder is of another run.
        TableFileError
            If it holds anything else, or another run writes to it at the same time.
        """
        system, path = system_of(self.out)
        others = [name for name in names_in(self.out) if name != MANIFEST]
        if strange := [name for name in others if not OURS.fullmatch(name)]:
            raise TableFileError(
                f"{self.out} holds files that are of no run of predictions, {strange[0]} for one:"
                " name another folder."
            )
        system.create_dir(path, recursive=True)
        try:
            lock = nullcontext()
            if not is_address(self.out):
                lock = FileLock(Path(path) / LOCK).acquire(blocking=False)
        except Timeout as error:
            raise TableFileError(f"Another run is writing to {self.out}.") from error
        with lock:
            before = None if force else self.read_manifest()
            if force or (before is None and not any(name.startswith("part-") for name in others)):
                for name in others:
                    if name.startswith("part-"):
                        system.delete_file(system_of(joined(self.out, name))[1])
                before = None
            elif before is None:
                raise TableFileError(
                    f"{self.out} has parts and no {MANIFEST}: name another folder, or replace them"
                    " by --force."
                )
            self.remove_partial()
            if before is None:
                self.write_manifest()
            else:
                self.check_same(before)
            yield

    def check_same(self, before: Mapping[str, Any]) -> None:
        """Refuse to go on with a run of another model, other options or other inputs."""
        if before == self.manifest:
            return
        what = differences(before, self.manifest)
        raise InvalidArgumentError(
            f"{self.out} was begun with {what}: name another folder, or begin anew by --force."
        )

    def read_manifest(self) -> dict[str, Any] | None:
        if MANIFEST not in names_in(self.out):
            return None
        try:
            with open_place(joined(self.out, MANIFEST)) as stream:
                found = json.loads(stream.read())
            return {name: found[name] for name in ("format", "model", "options", "inputs")}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TableFileError(
                f"{joined(self.out, MANIFEST)} is damaged: name another folder, or begin anew by"
                " --force."
            ) from error

    def write_manifest(self, finished: Mapping[str, int] | None = None) -> None:
        with whole_file(joined(self.out, MANIFEST)) as stream:
            content = self.manifest | {"finished": None if finished is None else dict(finished)}
            stream.write(json.dumps(content, indent=2).encode() + b"\n")

    def remove_partial(self) -> None:
        """Remove what workers that were killed have left, on whichever machine."""
        system, _ = system_of(self.out)
        for name in names_in(self.out):
            if PARTIAL.fullmatch(name):
                system.delete_dir(system_of(joined(self.out, name))[1])


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What differs between two manifests, for a sentence.

    Examples
    --------
    >>> differences(
    ...     {"model": 1, "options": {"coverage": 0.9}, "inputs": [], "format": 1},
    ...     {"model": 2, "options": {"coverage": 0.8}, "inputs": [], "format": 1},
    ... )
    'another model, and another `coverage` (0.9, now 0.8)'
    """
    found = ["another format of its manifest"] if before["format"] != now["format"] else []
    if before["model"] != now["model"]:
        found.append("another model")
    for name in sorted(before["options"].keys() | now["options"].keys()):
        old, new = (options.get(name) for options in (before["options"], now["options"]))
        if old != new:
            found.append(f"another `{name}` ({old}, now {new})")
    old, new = ({file["address"]: file for file in inputs["inputs"]} for inputs in (before, now))
    for address in sorted(old.keys() | new.keys()):
        if old.get(address) != new.get(address):
            what = "without" if address not in old else "with" if address not in new else "another"
            found.append(f"{what} {address}")
    more = f", and {len(found) - 3} more differences" if len(found) > 3 else ""
    return ", and ".join(found[:3]) + more if found else "the same inputs in another order"


def model_files(folder: Path) -> dict[str, bytes]:
    """The files of a model by their names in its folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def checksum(files: Mapping[str, bytes]) -> str:
    """One checksum of some files and their names."""
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest()
