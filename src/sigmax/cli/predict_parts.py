"""Predictions for many files as a folder of parts, in this process or on Ray.

The manifest identifies a run: model, options and inputs. It is written before the first part, and
other runs may not write to the folder. Parts appear whole or not at all; the footer of each names
its run and the number of rows that were read. A killed run therefore continues with the parts that
are missing, and it succeeds only if every part has as many rows as its input.
"""

import hashlib
import json
import logging
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from sigmax.checks import check_count
from sigmax.errors import (
    InvalidArgumentError,
    InvalidCellError,
    InvalidDataError,
    SigmaxError,
    TableFileError,
)
from sigmax.ray_session import DEVICES, import_ray, ray_session
from sigmax.table_model import (
    ROWS_PER_CHUNK,
    PredictOptions,
    SavedTableModel,
    check_columns,
    load_folder,
    new_names,
    predict_chunks,
    predict_rows,
)
from sigmax.tables.reading import (
    N_AT_ONCE,
    InputFile,
    Unit,
    as_features,
    common_columns,
    cut_units,
    read_chunks,
    read_inputs,
    read_unit,
)
from sigmax.tables.sources import (
    file_system,
    is_address,
    join_path,
    list_folder,
    new_output,
    open_input,
)
from sigmax.tables.writing import ParquetRows, plain_frame

ROWS_PER_PART = 16 * ROWS_PER_CHUNK
"""Largest number of rows per part, if the row groups of a file allow it."""
CHUNKS_PER_GROUP = 4
"""Number of chunks per row group of a part."""
MANIFEST = "_sigmax_predict.json"
"""Readers of whole folders skip names that begin with an underscore."""
LOCK = ".sigmax_predict.lock"
FOOTER = "sigmax_predict"
"""Key of the metadata in the footer of a part."""
FORMAT = 1
PARTIAL = re.compile(r"\.part-\d{5,}\.parquet\..*\.partial")
KNOWN = re.compile(rf"part-\d{{5,}}\.parquet|{PARTIAL.pattern}|{re.escape(LOCK)}")

Progress = Callable[[str, float], None]
"""Shows the finished work, as text and as a share."""


@final
@dataclass(frozen=True)
class PartsResult:
    """Rows and parts of a finished run."""

    out: str
    n_rows: int
    n_parts: int
    n_before: int
    """Number of parts that an earlier run had finished."""

    def __str__(self) -> str:
        before = f" ({self.n_before:,} already finished)" if self.n_before else ""
        parts = "part" if self.n_parts == 1 else "parts"
        return f"Predicted {self.n_rows:,} rows in {self.n_parts:,} {parts}{before}: {self.out}"


def predict_parts(
    folder: Path,
    sources: Sequence[str],
    out: str | None,
    options: PredictOptions,
    reading: Mapping[str, Any],
    *,
    rows_per_part: int = ROWS_PER_PART,
    pool: "RayPool | None" = None,
    force: bool = False,
    progress: Progress | None = None,
) -> PartsResult:
    """Predict all rows of many files, or continue a run.

    Parameters
    ----------
    folder
        Folder of the model.
    sources
        Files, folders and patterns on this machine, or addresses of stores.
    out
        Folder of the parts.
    pool
        Workers of a Ray cluster; without it this process predicts one part after the other.
    force
        Restart, even if the folder is from another run.
    """
    saved, files = load_folder(folder), model_files(folder)
    run = Run.plan(saved, checksum(files), sources, out, options, reading, rows_per_part)
    with run.opened(force=force):
        units = run.unfinished()
        n_units, n_before = len(run.units), len(run.units) - len(units)
        done = one_by_one(saved, run, units) if pool is None else pool.predict(files, run, units)
        for i, _ in enumerate(done, start=n_before + 1):
            if progress is not None:
                progress(f"{i:,} of {n_units:,} parts", i / n_units)
        return PartsResult(run.out, run.finish(), n_units, n_before)


def model_files(folder: Path) -> dict[str, bytes]:
    """The files of a model by their names in its folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def checksum(files: Mapping[str, bytes]) -> str:
    """One checksum of files and their names."""
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest()


@final
@dataclass(frozen=True)
class PartFooter:
    """Metadata of a part, from its footer."""

    run: str
    unit: int
    n_read: int
    n_written: int


@final
@dataclass(frozen=True)
class Run:
    """A prediction of files into a folder."""

    out: str
    model: str
    """Checksum of the model files."""
    options: PredictOptions
    rows_per_part: int
    reading: Mapping[str, Any]
    inputs: tuple[InputFile, ...]
    columns: pa.Schema
    units: tuple[Unit, ...]

    @classmethod
    def plan(
        cls,
        saved: SavedTableModel,
        model: str,
        sources: Sequence[str],
        out: str | None,
        options: PredictOptions,
        reading: Mapping[str, Any],
        rows_per_part: int,
    ) -> "Run":
        """Check the inputs and divide them into units, one per part."""
        options.check()
        check_count("--rows-per-part", rows_per_part)
        if out is None:
            raise InvalidArgumentError(
                "Predictions for many files are written as a folder of parts: name it with `--out`."
            )
        if out == "-" or "-" in sources:
            raise InvalidArgumentError(
                "A folder of parts can be made neither from standard input nor on standard output."
            )
        inputs = read_inputs(sources, out, reading)
        columns = common_columns(inputs)
        check_columns(saved, pd.DataFrame(columns=columns.names))
        new_names(columns.names, options)
        units = cut_units(inputs, rows_per_part)
        return cls(out, model, options, rows_per_part, reading, inputs, columns, units)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Values that must be equal for a run to continue."""
        inputs = [asdict(file.found) | {"rows": file.n_rows} for file in self.inputs]
        options = asdict(self.options) | dict(self.reading) | {"rows_per_part": self.rows_per_part}
        whole = {"format": FORMAT, "model": self.model, "options": options, "inputs": inputs}
        return json.loads(json.dumps(whole))

    @cached_property
    def name(self) -> str:
        """Checksum of the manifest, which is written into every part."""
        return hashlib.sha256(json.dumps(self.manifest, sort_keys=True).encode()).hexdigest()

    def part(self, unit: Unit) -> str:
        """Address of the part of a unit."""
        return join_path(self.out, f"part-{unit.number:05d}.parquet")

    def footer(self, unit: Unit, n_read: int) -> dict[str, str]:
        """Metadata to write into the footer of a part."""
        return {FOOTER: json.dumps({"run": self.name, "unit": unit.number, "n_read": n_read})}

    def read_footer(self, unit: Unit) -> PartFooter | None:
        """Metadata of a part; None if it is missing or damaged."""
        try:
            with open_input(self.part(unit)) as stream, pq.ParquetFile(stream) as file:
                values = json.loads((file.metadata.metadata or {})[FOOTER.encode()])
                return PartFooter(**values, n_written=file.metadata.num_rows)
        except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
            return None

    def problem(self, unit: Unit, footer: PartFooter | None) -> str | None:
        """The problem with a part; None if it is finished."""
        if footer is None:
            return "is missing or damaged"
        if (footer.run, footer.unit) != (self.name, unit.number):
            return "is from another run"
        n_expected = footer.n_read if unit.n_rows is None else unit.n_rows
        if not footer.n_written == footer.n_read == n_expected:
            return (
                f"has {footer.n_written:,} rows, but {footer.n_read:,} were read and its input"
                f" {unit.address} has {n_expected:,}"
            )
        return None

    def footers(self) -> list[tuple[Unit, PartFooter | None]]:
        """All units with the metadata of their parts."""
        with ThreadPoolExecutor(N_AT_ONCE) as threads:
            return list(zip(self.units, threads.map(self.read_footer, self.units), strict=True))

    def unfinished(self) -> list[Unit]:
        """Units without a finished part."""
        return [unit for unit, footer in self.footers() if self.problem(unit, footer)]

    def finish(self) -> int:
        """Check that every part has as many rows as its input; return the total."""
        n_written = 0
        for unit, footer in self.footers():
            if problem := self.problem(unit, footer):
                raise TableFileError(f"{self.part(unit)} {problem}: the run is not complete.")
            n_written += footer.n_written if footer else 0
        known = [file.n_rows for file in self.inputs if file.n_rows is not None]
        if len(known) == len(self.inputs) and sum(known) != n_written:
            raise TableFileError(
                f"{self.out} has {n_written:,} rows in total, but its inputs have {sum(known):,}."
            )
        self.remove_partial()
        self.write_manifest({"rows": n_written, "parts": len(self.units)})
        return n_written

    @contextmanager
    def opened(self, *, force: bool) -> Iterator[None]:
        """Lock the folder for this run alone, and write the manifest."""
        system, path = file_system(self.out)
        others = [name for name in list_folder(self.out) if name != MANIFEST]
        if unknown := [name for name in others if not KNOWN.fullmatch(name)]:
            raise TableFileError(
                f"{self.out} contains files that are not predictions, such as {unknown[0]}: name"
                " another folder."
            )
        system.create_dir(path, recursive=True)
        try:
            lock = nullcontext()
            if not is_address(self.out):
                lock = FileLock(Path(path) / LOCK).acquire(blocking=False)
        except Timeout as error:
            raise TableFileError(f"Another run is writing to {self.out}.") from error
        with lock:
            parts = [name for name in others if name.startswith("part-")]
            before = None if force else self.read_manifest()
            if before is None and parts and not force:
                raise TableFileError(
                    f"{self.out} has parts but no {MANIFEST}: name another folder, or replace them"
                    " with --force."
                )
            if before is not None and before != self.manifest:
                raise InvalidArgumentError(
                    f"{self.out} was started with {differences(before, self.manifest)}: name"
                    " another folder, or restart with --force."
                )
            if before is None:
                for name in parts:
                    system.delete_file(file_system(join_path(self.out, name))[1])
            self.remove_partial()
            if before is None:
                self.write_manifest()
            yield

    def read_manifest(self) -> dict[str, Any] | None:
        if MANIFEST not in list_folder(self.out):
            return None
        try:
            with open_input(join_path(self.out, MANIFEST)) as stream:
                found = json.loads(stream.read())
            return {name: found[name] for name in ("format", "model", "options", "inputs")}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TableFileError(
                f"{join_path(self.out, MANIFEST)} is damaged: name another folder, or restart with"
                " --force."
            ) from error

    def write_manifest(self, finished: Mapping[str, int] | None = None) -> None:
        with new_output(join_path(self.out, MANIFEST)) as stream:
            content = self.manifest | {"finished": None if finished is None else dict(finished)}
            stream.write(json.dumps(content, indent=2).encode() + b"\n")

    def remove_partial(self) -> None:
        """Remove the partial files of killed workers, on any machine."""
        system, _ = file_system(self.out)
        for name in list_folder(self.out):
            if PARTIAL.fullmatch(name):
                system.delete_dir(file_system(join_path(self.out, name))[1])


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The differences between two manifests, for a sentence.

    Examples
    --------
    >>> differences(
    ...     {"model": 1, "options": {"coverage": 0.9}, "inputs": [], "format": 1},
    ...     {"model": 2, "options": {"coverage": 0.8}, "inputs": [], "format": 1},
    ... )
    'another model, and another `coverage` (0.9, now 0.8)'
    """
    found = ["another format of the manifest"] if before["format"] != now["format"] else []
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


def one_by_one(saved: SavedTableModel, run: Run, units: Iterable[Unit]) -> Iterator[Unit]:
    for unit in units:
        predict_unit(saved, run, unit)
        yield unit


def predict_unit(saved: SavedTableModel, run: Run, unit: Unit) -> None:
    """Predict the rows of a unit and write its part, unless it is finished.

    A worker may have died between the end of its part and its answer.
    """
    if run.problem(unit, run.read_footer(unit)) is None:
        return
    n_read = 0

    def counted(chunks: Iterator[Any]) -> Iterator[Any]:
        nonlocal n_read
        for chunk in chunks:
            n_read += len(chunk)
            yield chunk

    with new_output(run.part(unit)) as stream:
        part = ParquetRows(stream)
        if unit.n_rows is None:
            chunks = read_chunks(unit.address, rows_per_chunk=ROWS_PER_CHUNK, **run.reading)
            for frame in predict_chunks(saved, counted(chunks), run.options):
                part.write(pa.Table.from_pandas(plain_frame(frame), preserve_index=False))
        else:
            waiting = [predict_table(saved, run, unit, run.columns.empty_table())]
            groups = next(file.groups for file in run.inputs if file.found.address == unit.address)
            n_before = sum((groups or ())[: unit.first_group]) + unit.n_skipped
            for chunk in counted(read_unit(unit, run.columns, ROWS_PER_CHUNK)):
                first = n_before + n_read - len(chunk)
                waiting.append(predict_table(saved, run, unit, chunk, first))
                if len(waiting) > CHUNKS_PER_GROUP:
                    part.write(pa.concat_tables(waiting))
                    waiting = waiting[:0]
            if waiting:
                part.write(pa.concat_tables(waiting))
        part.close(run.footer(unit, n_read))


def predict_table(
    saved: SavedTableModel, run: Run, unit: Unit, table: pa.Table, n_before: int = 0
) -> pa.Table:
    """A table with its predictions as additional columns; other columns stay as they were read.

    ``n_before`` is the number of rows of the file before the table.
    """
    names = new_names(table.column_names, run.options)
    found = dict.fromkeys(names, ())
    if len(table):
        features = as_features(table, saved.features, unit.address, n_before)
        with InvalidCellError.numbered(features.index + 1):
            found = predict_rows(saved, features, run.options)
    for name, values in found.items():
        kind = pa.string() if name == "notes" else pa.float64()
        table = table.append_column(names[name], pa.array(values, kind))
    return table


@final
@dataclass(frozen=True, kw_only=True)
class RayPool:
    """Workers of the cluster at ``address``, or of a temporary one on this machine.

    Each worker loads the model once, from files that are sent to it, and has one core, or one GPU
    if that is the ``device``. If a worker dies, another one repeats its part. Inputs and output
    must have the same addresses on every machine of the cluster.
    """

    address: str | None = None
    n_workers: int | None = None
    """By default one per core, or per GPU, of the cluster."""
    device: str = "auto"

    def predict(
        self, files: Mapping[str, bytes], run: Run, units: Sequence[Unit]
    ) -> Iterator[Unit]:
        """Yield every unit when its part is written."""
        if not units:
            return
        by_number = {unit.number: unit for unit in units}
        with ray_session(self.address, self.n_workers) as ray, without_warnings():
            try:
                for row in self.dataset(ray, files, run, units).iter_rows():
                    if row["problem"]:
                        raise InvalidDataError(row["problem"])
                    yield by_number[row["number"]]
            except ray.exceptions.RayError as error:
                text = str(error).strip().splitlines()[-1]
                raise SigmaxError(f"The Ray cluster could not predict all parts: {text}") from error

    def dataset(self, ray: Any, files: Mapping[str, bytes], run: Run, units: Sequence[Unit]) -> Any:
        """A lazy data set with one block per unit; the rows do not pass through Ray's store."""
        from ray.data import ActorPoolStrategy, DataContext, from_items

        DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        needs_gpu = self.device == "gpu"
        n_available = int(ray.cluster_resources().get("GPU" if needs_gpu else "CPU", 1))
        n_workers = min(self.n_workers or n_available, len(units))
        items = [{"unit": json.dumps(unit)} for unit in units]
        return from_items(items, override_num_blocks=len(items)).map_batches(
            PartWorker,
            fn_constructor_args=(ray.put(dict(files)), run, DEVICES[self.device]),
            batch_size=1,
            compute=ActorPoolStrategy(size=n_workers),
            num_cpus=0 if needs_gpu else 1,
            num_gpus=int(needs_gpu),
        )


@final
class PartWorker:
    """A Ray worker: loads the model once and predicts one unit after the other."""

    def __init__(self, files: Any, run: Run, platform: str | None):
        ray = import_ray()
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        if platform is not None:
            import jax

            jax.config.update("jax_platforms", platform)
        with tempfile.TemporaryDirectory(prefix="sigmax-") as folder:
            for name, content in ray.get(files).items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            self.saved = load_folder(Path(folder))
        self.run = run

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        unit = Unit(*json.loads(str(batch["unit"][0])))
        problem = ""
        try:
            predict_unit(self.saved, self.run, unit)
        except SigmaxError as error:
            problem = str(error)
        return {"number": np.array([unit.number]), "problem": np.array([problem])}


@contextmanager
def without_warnings() -> Iterator[None]:
    """Ignore warnings of Ray Data that only its authors can act on."""
    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning, UserWarning, ResourceWarning):
            warnings.simplefilter("ignore", category)
        yield
