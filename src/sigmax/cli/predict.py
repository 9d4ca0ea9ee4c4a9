"""`sigmax predict`: add predictions to the rows of one file, or of many files in parts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from sigmax.cli.app import EngineOptions, IntervalMethod, ModelFolder, Reading, parse_quantiles
from sigmax.cli.predict_parts import ROWS_PER_PART, RayPool, predict_parts
from sigmax.cli.terminal import CONTINUES, report_errors, show_item, show_share, show_status
from sigmax.errors import InvalidArgumentError, TableFileError
from sigmax.table_model import (
    ROWS_PER_CHUNK,
    PredictOptions,
    SavedTableModel,
    UnusualRows,
    load_folder,
    predict_chunks,
)
from sigmax.tables.reading import read_chunks
from sigmax.tables.sources import is_address, is_many_files
from sigmax.tables.writing import write_table


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
    method: IntervalMethod = None,
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
    options = PredictOptions(coverage=coverage, quantiles=parse_quantiles(quantiles), method=method)
    options.check()
    pool = None
    if engine.uses_ray():
        pool = RayPool(address=engine.address, n_workers=engine.workers, device=engine.device)
    if pool is None and not is_parts(data, out):
        written, unusual = predict_file(
            load_folder(model), data[0], out, options, reading.options, overwrite=overwrite
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
            reading.options,
            rows_per_part=rows_per_part,
            pool=pool,
            force=overwrite,
            progress=progress,
        )
    show_item(str(result))


def is_parts(sources: Sequence[str], out: str | None) -> bool:
    """True if predictions are written as a folder of parts, False for one file.

    Examples
    --------
    >>> is_parts(["new.csv"], "out.csv"), is_parts(["new/*.csv"], None), is_parts(["a.csv"], "out/")
    (False, True, True)
    """
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
    options.check()
    if out is None:
        out = "-" if source == "-" else str(default_output(Path(source)))
    if out != "-" and source != "-" and is_same_file(out, source):
        raise InvalidArgumentError(f"`--out` {out} is the table itself: name another file.")
    if out != "-" and Path(out).is_file() and not overwrite:
        raise TableFileError(f"{out} exists: name another file with --out, or add --overwrite.")
    chunks = read_chunks(source, rows_per_chunk=ROWS_PER_CHUNK, **reading)
    unusual = UnusualRows()
    write_table(predict_chunks(saved, chunks, options, unusual), out)
    return "standard output" if out == "-" else out, unusual


def is_same_file(one: str, other: str) -> bool:
    try:
        return Path(one).samefile(other)
    except OSError:
        return False


def default_output(source: Path) -> Path:
    """A file next to the source: Parquet if the source is Parquet, else CSV.

    Examples
    --------
    >>> default_output(Path("a/new.csv.gz")).name, default_output(Path("new.parquet")).name
    ('new_predicted.csv', 'new_predicted.parquet')
    """
    stem = source.name.split(".")[0] or source.name
    is_parquet = source.suffix.lower() in (".parquet", ".pq")
    return source.with_name(f"{stem}_predicted{'.parquet' if is_parquet else '.csv'}")
