"""`sigmax predict`: add predictions to the rows of one file, or of many files in parts.

The manifest identifies a run on many files: model, options and inputs. It is written before the
first part, and other runs may not write to the folder. Parts appear whole or not at all; the footer
of each names its run and the number of rows that were read. A killed run therefore continues with
the parts that are missing, and it succeeds only if every part has as many rows as its input.
"""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from filelock import FileLock, Timeout
from rich.markup import escape

from sigmax.cli.app import EngineOptions, IntervalMethod, ModelFolder, Reading, parse_numbers
from sigmax.cli.terminal import CONTINUES, report_errors, show_item, show_share, show_status
from sigmax.errors import (
    InvalidArgumentError,
    InvalidCellError,
    InvalidDataError,
    SigmaxError,
    TableFileError,
)
from sigmax.ray_session import (
    first_line,
    import_ray,
    ray_session,
    task_options,
    wait_for_tasks,
    worker_nodes,
)
from sigmax.report.tables import count_text
from sigmax.settings import check_count
from sigmax.table_model import (
    ROWS_PER_CHUNK,
    PredictOptions,
    SavedTableModel,
    UnusualRows,
    check_columns,
    error_values,
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
    is_many_files,
    join_path,
    list_folder,
    new_output,
    open_input,
)
from sigmax.tables.writing import ParquetRows, plain_frame, write_table

ROWS_PER_PART = 16 * ROWS_PER_CHUNK
"""Largest number of rows per part, if the row groups of a file allow it."""
CHUNKS_PER_GROUP = 4
MANIFEST = "_sigmax_predict.json"
"""Readers of whole folders skip names that begin with an underscore."""
LOCK = ".sigmax_predict.lock"
FOOTER = "sigmax_predict"
"""Key of the metadata in the footer of a part."""
FORMAT = 1
RESTART = "name another folder, or restart with --force"
PARTIAL = re.compile(r"\.part-\d{5,}\.parquet\..*\.partial")
KNOWN = re.compile(rf"part-\d{{5,}}\.parquet|{PARTIAL.pattern}|{re.escape(LOCK)}")


@report_errors()
def predict(
    model: ModelFolder,
    data: Annotated[
        list[str],
        typer.Argument(
            help="CSV, TSV, Parquet or Excel file, also gzipped; - for standard input. Many files,"
            " a folder or a quoted pattern are written as a folder of parts. Parquet may also be at"
            " an address such as s3://bucket/file."
        ),
    ],
    *,
    out: Annotated[
        str | None,
        typer.Option(
            help="Output file, CSV or Parquet by its ending; - for standard output. By default next"
            " to the data. For many files, a folder."
        ),
    ] = None,
    coverage: Annotated[float, typer.Option(help="Coverage of the interval.")] = 0.9,
    quantiles: Annotated[
        str, typer.Option(help="Levels of quantiles to add as columns, as in 0.05,0.5,0.95.")
    ] = "",
    threshold: Annotated[
        str,
        typer.Option(
            help="Add the probability of exceeding each value, as in 100,200: columns p>100, p>200."
        ),
    ] = "",
    method: IntervalMethod = None,
    error_column: Annotated[
        str | None,
        typer.Option(
            help="Predict measurements that have the error in this column, a standard deviation,"
            " instead of values without error."
        ),
    ] = None,
    engine: EngineOptions,
    rows_per_part: Annotated[
        int, typer.Option(min=1, help="Largest number of rows per part, if row groups allow it.")
    ] = ROWS_PER_PART,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            "--force",
            help="Replace an existing output file; restart a folder of parts.",
        ),
    ] = False,
    reading: Reading,
) -> None:
    """Add predictions with their uncertainty to the rows of one or many files.

    Run the same command again to continue a stopped prediction of many files.
    """
    options = PredictOptions(
        coverage=coverage,
        quantiles=parse_numbers("--quantiles", quantiles),
        thresholds=parse_numbers("--threshold", threshold),
        method=method,
        error_column=error_column,
    )
    options.check()
    if not (engine.uses_ray() or is_parts(data, out)):
        written, unusual = predict_file(
            load_folder(model), data[0], out, options, asdict(reading), overwrite=overwrite
        )
        for line in (*unusual.sentences(), f"Predictions saved to {written}"):
            show_status(escape(line))
        return
    with report_errors(CONTINUES), show_share("predict") as progress:
        result = predict_parts(
            model,
            data,
            out,
            options,
            asdict(reading),
            rows_per_part=rows_per_part,
            engine=engine if engine.uses_ray() else None,
            force=overwrite,
            progress=progress,
        )
    show_item(result)


def is_parts(sources: Sequence[str], out: str | None) -> bool:
    """True if predictions are written as a folder of parts, False for one file."""
    is_folder = out is not None and (out.endswith("/") or is_address(out) or Path(out).is_dir())
    return is_folder or len(sources) > 1 or any(map(is_many_files, sources))


def predict_file(
    saved: SavedTableModel,
    source: str,
    out: str | None,
    options: PredictOptions,
    reading: Mapping[str, Any],
    *,
    overwrite: bool = False,
) -> tuple[str, UnusualRows]:
    """Predict the rows of a file in chunks; return the output and the counts of unusual rows."""
    if out is None:
        out = "-" if source == "-" else str(default_output(Path(source)))
    if os.path.exists(out) and os.path.exists(source) and os.path.samefile(out, source):
        raise InvalidArgumentError(f"`--out` {out} is the table itself: name another file.")
    if out != "-" and Path(out).is_file() and not overwrite:
        raise TableFileError(f"{out} exists: name another file with --out, or add --overwrite.")
    chunks = read_chunks(source, rows_per_chunk=ROWS_PER_CHUNK, **reading)
    unusual = UnusualRows()
    write_table(predict_chunks(saved, chunks, options, unusual), out)
    return "standard output" if out == "-" else out, unusual


def default_output(source: Path) -> Path:
    """File next to the source: Parquet if the source is Parquet, else CSV."""
    stem = source.name.split(".")[0] or source.name
    is_parquet = source.suffix.lower() in (".parquet", ".pq")
    return source.with_name(f"{stem}_predicted{'.parquet' if is_parquet else '.csv'}")


def predict_parts(
    folder: Path,
    sources: Sequence[str],
    out: str | None,
    options: PredictOptions,
    reading: Mapping[str, Any],
    *,
    rows_per_part: int = ROWS_PER_PART,
    engine: EngineOptions | None = None,
    force: bool = False,
    progress: Callable[[str, float], None] = lambda what, share: None,
) -> str:
    """Predict all rows of many files, or continue a run; return the result as a sentence.

    Without an ``engine``, this process predicts one part after the other. ``force`` restarts, even
    if the folder ``out`` is from another run.
    """
    saved = load_folder(folder)
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    check_count("--rows-per-part", rows_per_part)
    if out is None:
        raise InvalidArgumentError("`--out` must name a folder for the parts of many files.")
    if out == "-" or "-" in sources:
        raise InvalidArgumentError("Parts need files and a folder, not standard input or output.")
    inputs = read_inputs(sources, out, reading)
    columns = common_columns(inputs)
    check_columns(saved, pd.DataFrame(columns=columns.names), options)
    new_names(columns.names, options, saved.atoms)
    cut = inputs, columns, cut_units(inputs, rows_per_part)
    run = Run(out, checksum(sums), options, rows_per_part, reading, *cut)
    with run.opened(force=force):
        units = [unit for unit, (problem, _) in run.check_parts() if problem]
        n_units, n_before = len(run.units), len(run.units) - len(units)
        done = (predict_unit(saved, run, unit) for unit in units)
        if engine is not None and units:
            done = predict_on_ray(engine, files, run, units)
        for i, _ in enumerate(done, start=n_before + 1):
            progress(f"{i:,} of {n_units:,} parts", i / n_units)
        n_rows = run.finish()
    before = f" ({n_before:,} already finished)" if n_before else ""
    return f"Predicted {n_rows:,} rows in {count_text(n_units, 'part')}{before}: {run.out}"


def checksum(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@final
@dataclass(frozen=True)
class Run:
    """A prediction of files into a folder."""

    out: str
    model: str
    options: PredictOptions
    rows_per_part: int
    reading: Mapping[str, Any]
    inputs: tuple[InputFile, ...]
    columns: pa.Schema
    units: tuple[Unit, ...]

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
        return checksum(self.manifest)

    def part(self, unit: Unit) -> str:
        return join_path(self.out, f"part-{unit.number:05d}.parquet")

    def check_part(self, unit: Unit) -> tuple[str | None, int]:
        """Problem with the part of a unit, None if it is finished, and its number of rows."""
        try:
            with open_input(self.part(unit)) as stream, pq.ParquetFile(stream) as file:
                n_rows = file.metadata.num_rows
                footer = json.loads((file.metadata.metadata or {})[FOOTER.encode()])
                is_ours = (footer["run"], footer["unit"]) == (self.name, unit.number)
                n_read = footer["n_read"]
        except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
            return "is missing or damaged", 0
        if not is_ours:
            return "is from another run", n_rows
        n_expected = n_read if unit.n_rows is None else unit.n_rows
        if n_rows == n_read == n_expected:
            return None, n_rows
        rows = f"has {n_rows:,} rows, but {n_read:,} were read"
        return f"{rows} and its input {unit.address} has {n_expected:,}", n_rows

    def check_parts(self) -> list[tuple[Unit, tuple[str | None, int]]]:
        with ThreadPoolExecutor(N_AT_ONCE) as threads:
            return list(zip(self.units, threads.map(self.check_part, self.units), strict=True))

    def finish(self) -> int:
        """Check that every part has as many rows as its input; return the total."""
        n_written = 0
        for unit, (problem, n_rows) in self.check_parts():
            if problem:
                raise TableFileError(f"{self.part(unit)} {problem}: the run is not complete.")
            n_written += n_rows
        known = [file.n_rows for file in self.inputs if file.n_rows is not None]
        if len(known) == len(self.inputs) and sum(known) != n_written:
            rows = f"{n_written:,} rows, but its inputs have {sum(known):,}"
            raise TableFileError(f"{self.out} has {rows}.")
        self.remove_partial()
        self.write_manifest({"rows": n_written, "parts": len(self.units)})
        return n_written

    @contextmanager
    def opened(self, *, force: bool) -> Iterator[None]:
        """Lock the folder for this run alone, and write the manifest."""
        system, path = file_system(self.out)
        others = [name for name in list_folder(self.out) if name != MANIFEST]
        if unknown := [name for name in others if not KNOWN.fullmatch(name)]:
            others = f"other files, such as {unknown[0]}"
            raise TableFileError(f"{self.out} has {others}: name another folder.")
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
                raise TableFileError(f"{self.out} has parts but no {MANIFEST}: {RESTART}.")
            if before is not None and before != self.manifest:
                was, now = (one | one["options"] for one in (before, self.manifest))
                changed = [
                    name if name in before else f"`{name}` ({was.get(name)}, now {value})"
                    for name, value in now.items()
                    if name != "options" and value != was.get(name)
                ]
                run = f"{self.out} was started with other {' and '.join(changed)}"
                raise InvalidArgumentError(f"{run}: {RESTART}.")
            self.remove_partial()
            if before is None:
                for name in parts:
                    system.delete_file(file_system(join_path(self.out, name))[1])
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
            path = join_path(self.out, MANIFEST)
            raise TableFileError(f"{path} is damaged: {RESTART}.") from error

    def write_manifest(self, finished: dict[str, int] | None = None) -> None:
        with new_output(join_path(self.out, MANIFEST)) as stream:
            content = self.manifest | {"finished": finished}
            stream.write(json.dumps(content, indent=2).encode() + b"\n")

    def remove_partial(self) -> None:
        """Remove the partial files of killed workers, on any machine."""
        system, _ = file_system(self.out)
        for name in list_folder(self.out):
            if PARTIAL.fullmatch(name):
                system.delete_dir(file_system(join_path(self.out, name))[1])


def predict_unit(saved: SavedTableModel, run: Run, unit: Unit) -> None:
    """Predict a unit and write its part, unless a worker finished it before it died."""
    if run.check_part(unit)[0] is None:
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
        footer = {"run": run.name, "unit": unit.number, "n_read": n_read}
        part.close({FOOTER: json.dumps(footer)})


def predict_table(
    saved: SavedTableModel, run: Run, unit: Unit, table: pa.Table, n_before: int = 0
) -> pa.Table:
    """A table with predictions as additional columns, after ``n_before`` rows of its file."""
    names = new_names(table.column_names, run.options, saved.atoms)
    found = dict.fromkeys(names, ())
    if len(table):
        features, error = as_features(table, saved.features, unit.address, n_before), None
        numbers = np.asarray(features.index) + 1
        if (name := run.options.error_column) is not None:
            error = error_values(table.column(name).to_pandas().rename(name), numbers)
        with InvalidCellError.numbered(numbers):
            found = predict_rows(saved, features, run.options, error=error)
    for name, values in found.items():
        kind = pa.string() if name == "notes" else pa.float64()
        table = table.append_column(names[name], pa.array(values, kind))
    return table


def predict_on_ray(
    engine: EngineOptions, files: Mapping[str, bytes], run: Run, units: Sequence[Unit]
) -> Iterator[None]:
    """Predict units with the workers of a Ray cluster, or of a temporary one on this machine.

    Each task has one core, or one GPU, and is repeated if its process or node dies. Inputs and
    output must have the same addresses on every machine of the cluster.
    """
    with ray_session(engine.address, engine.workers) as ray:
        n_workers = engine.workers or len(worker_nodes(ray, engine.device))
        remote = ray.remote(**task_options(engine.device))(predict_sent_unit)
        model = [ray.put(dict(files))]  # in a list, so that workers fetch it only if they need it
        waiting, pending = list(reversed(units)), []
        while waiting or pending:
            while waiting and len(pending) < n_workers:
                pending.append(remote.remote(model, run, waiting.pop()))
            (finished,), pending = wait_for_tasks(ray, pending, 1)
            try:
                problem = ray.get(finished)
            except ray.exceptions.RayError as error:
                text = f"The Ray cluster could not predict all parts: {first_line(error)}"
                raise SigmaxError(text) from error
            if problem:
                raise InvalidDataError(problem)
            yield


def predict_sent_unit(model: Sequence[Any], run: Run, unit: Unit) -> str:
    """Predict a unit in a Ray worker, which loads the model once; return the text of an error."""
    try:
        predict_unit(load_sent_model(model[0]), run, unit)
    except SigmaxError as error:
        return str(error)
    return ""


@lru_cache(maxsize=1)
def load_sent_model(reference: Any) -> SavedTableModel:
    with tempfile.TemporaryDirectory(prefix="sigmax-") as folder:
        for name, content in import_ray().get(reference).items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return load_folder(Path(folder))
