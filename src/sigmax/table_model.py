"""A model fitted to a table: its folder, and its predictions for the rows of other tables.

``schema.json`` holds checksums of itself, the scores and the report; the folders of the estimators
hold their own. Loading executes no code and raises an error at any unknown or changed file.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.errors import InvalidArgumentError, InvalidCellError, InvalidDataError, ModelFileError
from sigmax.estimators import AbstractRegressor, LinearRegressor, SigmaxRegressor, find_class
from sigmax.files import header_checksum, read_bytes, read_header, render
from sigmax.settings import check_choice, check_number
from sigmax.tables import MISSING, Column, Kind, Schema
from sigmax.tables.table import check_names

SCHEMA, SCORES, REPORT, MODEL = "schema.json", "scores.json", "report.html", "model"
LINEAR = "linear"
"""Linear model of the same rows, the baseline of evaluations; missing if the model is linear."""
FOLDER_NAMES = (SCHEMA, SCORES, REPORT, MODEL, LINEAR)
FORMAT = 1

INTERVAL_METHODS = ("distribution", "conformal")

ROWS_PER_CHUNK = 16_384
"""A power of two, so that one compiled function serves all chunks but the last."""
MOST_LEVELS = 99
PREFIX = "predicted_"
OFF_DATA = 0.5
"""Rows with a larger `predict_gate` are out of distribution."""
MOST_NAMED = 5


@final
@dataclass(frozen=True)
class SavedTableModel:
    """A fitted model, the metadata of its table, and the linear baseline of the same rows."""

    model: AbstractRegressor
    metadata: Mapping[str, Any]
    linear: LinearRegressor | None = None

    @property
    def target(self) -> str:
        return self.metadata["target"]

    @property
    def features(self) -> list[str]:
        return [column["name"] for column in self.metadata["features"]]

    @property
    def important(self) -> list[str]:
        """Features, the most important ones first."""
        rank = {name: i for i, name in enumerate(self.metadata.get("important", ()))}
        return sorted(self.features, key=lambda name: rank.get(name, len(rank)))

    @property
    def intervals(self) -> str:
        """Interval method that was chosen at the fit."""
        return self.metadata["intervals"]

    @property
    def group_column(self) -> str | None:
        return self.metadata["options"]["group_column"]

    @property
    def error_column(self) -> str | None:
        """Column of the known errors of targets."""
        return self.metadata["options"].get("error_column")

    @property
    def atoms(self) -> list[float]:
        """Values of the target whose probabilities are predicted, such as many zeros."""
        return self.model.model_.atoms.tolist()

    @property
    def schema(self) -> Schema:
        """Kinds and ranges of the columns in the rows that the model was fitted to."""
        return self.model.model_.features.schema


def write_folder(folder: Path, saved: SavedTableModel, texts: Mapping[str, str]) -> None:
    """Write the model, its metadata and the texts by their names into an empty folder."""
    saved.model.save(folder / MODEL)
    if saved.linear is not None:
        saved.linear.save(folder / LINEAR)
    checksums = {}
    for name, text in texts.items():
        (folder / name).write_bytes(text.encode())
        checksums[name] = hashlib.sha256(text.encode()).hexdigest()
    estimator = type(saved.model).__name__
    content = {"format": FORMAT, **saved.metadata, "estimator": estimator, "files": checksums}
    (folder / SCHEMA).write_bytes(render({**content, "sha256": header_checksum(content)}))


def load_folder(folder: Path) -> SavedTableModel:
    """Load the model of a folder; raise an error if a file is missing, unknown or changed."""
    if not (folder / SCHEMA).is_file():
        raise ModelFileError(f"{str(folder)!r} was not written by `sigmax fit`: no {SCHEMA}.")
    metadata = read_header(folder / SCHEMA, read_bytes(folder / SCHEMA), FORMAT)
    check_files(folder, metadata["files"])
    linear = LinearRegressor.load(folder / LINEAR) if (folder / LINEAR).exists() else None
    model = find_class(metadata["estimator"]).load(folder / MODEL)
    return SavedTableModel(model, metadata, linear)


def check_files(folder: Path, checksums: Mapping[str, str]) -> None:
    """Raise an error at links, unknown files, and files that are missing or changed."""
    unknown = sorted(path.name for path in folder.iterdir() if path.name not in FOLDER_NAMES)
    if unknown:
        raise ModelFileError(f"{str(folder)!r} contains unknown files: {', '.join(unknown)}.")
    inner = [path for name in (MODEL, LINEAR) for path in (folder / name).glob("*")]
    for path in [folder / name for name in FOLDER_NAMES] + inner:
        if path.is_symlink():
            raise ModelFileError(f"{str(path)!r} is a link; a model folder must hold the file.")
    for name in (SCORES, REPORT):
        path = folder / name
        if hashlib.sha256(read_bytes(path)).hexdigest() != checksums.get(name):
            raise ModelFileError(f"{str(path)!r} is damaged: {SCHEMA} has another checksum.")


@final
@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """Coverage of the interval, quantiles, probabilities, interval method, and errors."""

    coverage: float = 0.9
    quantiles: tuple[float, ...] = ()
    thresholds: tuple[float, ...] = ()
    """Values of which the probability of more is predicted."""
    method: str | None = None
    """``distribution``, ``conformal``, or None for the method chosen at the fit."""
    error_column: str | None = None
    """Column with the measurement error of each row; None predicts values without an error."""

    def check(self) -> None:
        check_number("--coverage", self.coverage, above=0.0, below=1.0)
        for level in self.quantiles:
            check_number("--quantiles", level, above=0.0, below=1.0)
        for value in self.thresholds:
            check_number("--threshold", value)
        for name, given in (("--quantiles", self.quantiles), ("--threshold", self.thresholds)):
            if len({f"{number:g}" for number in given}) < len(given):
                raise InvalidArgumentError(f"`{name}` must differ in their first six digits.")
            if len(given) > MOST_LEVELS:
                raise InvalidArgumentError(
                    f"`{name}` must be at most {MOST_LEVELS} numbers, got {len(given):,}."
                )
        if self.method is not None:
            check_choice("--method", self.method, INTERVAL_METHODS)


@final
class RowPredictions:
    """Predictive distributions of rows; quantiles and conformal intervals are computed once."""

    def __init__(
        self, saved: SavedTableModel, X: pd.DataFrame, error: NDArray[np.float64] | None = None
    ):
        self.model: Any = saved.model
        self.usual_method, self.X, self.atoms = saved.intervals, X, saved.atoms
        if error is None:
            self.dist, self.gate = self.model.predict_dist_and_gate(X)
        else:
            self.dist, self.gate = self.model.predict_dist(X, error), self.model.predict_gate(X)
        self.quantile = cache(self.dist.quantile)
        self.conformal = cache(partial(self.model.predict_interval, X, method="conformal"))

    @cached_property
    def moments(self) -> dict[str, NDArray[np.float64]]:
        """Mean, standard deviations, and the gate (NaN if the model has none)."""
        unknown = np.full(len(self.X), np.nan)
        return {
            "mean": self.dist.mean,
            "std": self.dist.std,
            "aleatoric": np.sqrt(self.dist.aleatoric_variance),
            "epistemic": np.sqrt(self.dist.epistemic_variance),
            "off_data": unknown if self.gate is None else self.gate,
        }

    def interval(
        self, coverage: float, method: str | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper bounds, by default with the method chosen at the fit."""
        if (method or self.usual_method) == "conformal":
            lower, upper = self.conformal(coverage).T
            return lower, upper
        ends = (self.quantile(round((1 + sign * coverage) / 2, 12)) for sign in (-1, 1))
        lower, upper = self.dist.to_values(np.stack([*ends], axis=-1)).T
        return lower, upper

    def columns(self, options: PredictOptions) -> dict[str, NDArray[np.float64]]:
        lower, upper = self.interval(options.coverage, options.method)
        mean, std, *others = self.moments.items()
        return {
            **dict([mean, std, ("lower", lower), ("upper", upper), *others]),
            **{f"q{level:g}": self.quantile(level) for level in options.quantiles},
            **{f"p>{value:g}": self.dist.sf(value) for value in options.thresholds},
            **{f"p={value:g}": self.dist.probability_of(value) for value in self.atoms},
        }


def find_neighbors(model: Any, X: pd.DataFrame, k: int) -> tuple[NDArray, NDArray] | None:
    """Training rows with the largest shares in each prediction; None if the model has no such."""
    try:
        return model.explain_neighbors(X, k)
    except InvalidArgumentError:
        return None


def predict_chunks(
    saved: SavedTableModel,
    chunks: Iterator[pd.DataFrame],
    options: PredictOptions,
    unusual: "UnusualRows | None" = None,
) -> Iterator[pd.DataFrame]:
    """Yield every chunk with its predictions; ``unusual`` counts rows out of distribution."""
    options.check()
    names: dict[str, str] | None = None
    n_rows = 0
    for chunk in chunks:
        if names is None:
            check_columns(saved, chunk, options)
            names = new_names(list(map(str, chunk.columns)), options, saved.atoms)
        found = dict.fromkeys(names, np.empty(0)) | {"notes": np.empty(0, dtype=object)}
        if len(chunk):
            X = chunk.filter(items=saved.features)
            numbers, error = np.arange(n_rows, n_rows + len(chunk)) + 1, None
            if options.error_column is not None:
                error = error_values(chunk[options.error_column], numbers)
            with InvalidCellError.numbered(numbers):
                found = predict_rows(saved, X, options, unusual, error)
        n_rows += len(chunk)
        columns = {names[name]: values for name, values in found.items()}
        yield pd.concat([chunk, pd.DataFrame(columns, index=chunk.index)], axis=1)


def predict_rows(
    saved: SavedTableModel,
    X: pd.DataFrame,
    options: PredictOptions,
    unusual: "UnusualRows | None" = None,
    error: NDArray[np.float64] | None = None,
) -> dict[str, NDArray[Any]]:
    """Output columns by name, with ``notes`` as text; ``error`` are measurement errors of rows."""
    columns: dict[str, NDArray[Any]] = dict(RowPredictions(saved, X, error).columns(options))
    notes = row_notes(saved.model, X)
    if unusual is not None:
        unusual.add(notes, columns["off_data"])
    texts = ["; ".join(note.text for note in found) for found in notes]
    return columns | {"notes": np.array(texts, dtype=object)}


def new_names(
    columns: Sequence[str], options: PredictOptions, atoms: Sequence[float] = ()
) -> dict[str, str]:
    """Names of the output columns, all with a prefix if the table already has one of them."""
    added = ["mean", "std", "lower", "upper", "aleatoric", "epistemic", "off_data"]
    added += [f"q{level:g}" for level in options.quantiles]
    added += [f"p>{value:g}" for value in options.thresholds]
    added += [*(f"p={value:g}" for value in atoms), "notes"]
    if not set(added) & set(columns):
        return {name: name for name in added}
    names = {name: PREFIX + name for name in added}
    if taken := sorted(set(names.values()) & set(columns)):
        raise InvalidDataError(
            f"The file already has columns named {', '.join(taken)}: rename them, or predict the"
            " original file."
        )
    return names


def error_values(column: Any, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Known errors of rows: numbers of at least 0."""
    values: Any = pd.to_numeric(column, errors="coerce")
    found = values.to_numpy(np.float64, na_value=np.nan)
    is_bad = ~(np.isfinite(found) & (found >= 0))
    if is_bad.any():
        first = int(np.flatnonzero(is_bad)[0])
        raise InvalidDataError(
            f"`--error-column`: {column.name!r} must have numbers of at least 0, got"
            f" {str(column.iloc[first])[:60]!r} in row {numbers[first]}."
        )
    return found


def check_columns(
    saved: SavedTableModel, frame: pd.DataFrame, options: PredictOptions | None = None
) -> None:
    """Raise an error if a column is missing that the model or the options need."""
    present = set(map(str, frame.columns))
    if options is not None and options.error_column is not None:
        if (options.method or saved.intervals) == "conformal":
            raise InvalidArgumentError("`--error-column` excludes conformal intervals.")
        if not isinstance(saved.model, SigmaxRegressor):
            raise InvalidArgumentError("`--error-column` needs a model of `--method sigmax`.")
        check_names([options.error_column], list(frame.columns), option="--error-column")
    if missing := [name for name in saved.features if name not in present]:
        listed = ", ".join(map(repr, missing[:5])) + (" and more" if len(missing) > 5 else "")
        raise InvalidDataError(f"The file has no column {listed}, which the model needs.")


@final
class Note(NamedTuple):
    """A deviation of one cell from the training data."""

    kind: str
    """``missing``, ``unseen`` (a category) or ``range``."""
    column: str
    detail: str = ""
    """The category, or the exceeded bound."""

    @property
    def subject(self) -> str:
        return f"{self.column} {self.detail}".rstrip()

    @property
    def text(self) -> str:
        return self.subject if self.kind == "range" else f"{self.subject} {self.kind}"


def row_notes(model: Any, X: pd.DataFrame) -> list[list[Note]]:
    """Notes on each row; most rows have none.

    Missing values in columns without any in training, unseen categories, and numbers and times
    beyond the range of the training data.
    """
    table = model.read(X)
    notes: list[list[Note]] = [[] for _ in range(len(table))]

    def add(rows: NDArray[np.bool_], *note: str) -> None:
        for row in np.flatnonzero(rows):
            notes[row].append(Note(*note))

    schema = table.schema
    for kind, cells in ((Kind.NUMBER, table.numbers), (Kind.TIME, table.times)):
        for column, values in zip(schema.of_kind(kind), cells.T, strict=True):
            name = column.name
            add(np.isnan(values) & (not column.has_missing), "missing", name)
            if column.low is not None and column.high is not None:
                low, high = (bound_text(column, end) for end in (column.low, column.high))
                add(values < column.low, "range", name, f"below {low}")
                add(values > column.high, "range", name, f"above {high}")
    columns = zip(schema.of_kind(Kind.CATEGORY), model.model_.features.categories, strict=True)
    for (column, learned), levels in zip(columns, table.categories, strict=True):
        is_unknown = learned.is_unknown(levels)
        add(is_unknown & (levels.codes == MISSING), "missing", column.name)
        for code in np.unique(levels.codes[is_unknown & (levels.codes != MISSING)]):
            is_unseen = is_unknown & (levels.codes == code)
            add(is_unseen, "unseen", column.name, repr(levels.names[code]))
    return notes


def bound_text(column: Column, bound: float) -> str:
    if column.kind is not Kind.TIME:
        return f"{bound:g}"
    time = datetime.fromtimestamp(bound, UTC)
    return f"{time:%Y-%m-%d}" if not bound % 86400 else f"{time:%Y-%m-%d %H:%M}"


@final
class UnusualRows:
    """Counts of notes over all rows of a prediction, and the sentences that report them."""

    def __init__(self) -> None:
        self.n_rows = self.n_off_data = 0
        self.notes: Counter[Note] = Counter()
        self.off_data_notes: Counter[Note] = Counter()

    def add(self, notes: Sequence[Sequence[Note]], gate: NDArray[np.float64]) -> None:
        """Count more rows, with their notes and gates (NaN: not known)."""
        self.n_rows += len(notes)
        is_off = gate > OFF_DATA
        self.n_off_data += int(is_off.sum())
        for found, off in zip(notes, is_off, strict=True):
            self.notes.update(found)
            if off:
                self.off_data_notes.update(found)

    def sentences(self) -> list[str]:
        """Sentences on rows far away, missing values, unseen categories and values out of range."""
        sentences = []
        if self.n_off_data:
            verb = "is" if self.n_off_data == 1 else "are"
            texts = Counter({note.text: n for note, n in self.off_data_notes.items()})
            reasons = f"; in these rows: {listed(texts)}" if texts else ""
            sentences.append(
                f"{self.n_off_data:,} of {self.n_rows:,} rows {verb} out of distribution"
                f" (off_data above {OFF_DATA:g}){reasons}."
            )
        for kind, noun, rest in (
            ("missing", "missing value", " in columns that had none in training"),
            ("unseen", "cell", " with an unseen category"),
            ("range", "value", " beyond the range of the training data"),
        ):
            counts = {note.subject: n for note, n in self.notes.items() if note.kind == kind}
            if found := Counter(counts):
                n = found.total()
                effect = " Predictions average over the possible values." * (kind != "range")
                plural = "" if n == 1 else "s"
                sentences.append(f"{n:,} {noun}{plural}{rest}: {listed(found)}.{effect}")
        return sentences


def listed(counts: Counter[str]) -> str:
    """The most frequent, with how often each occurs."""
    named = ", ".join(f"{text} ({n:,})" for text, n in counts.most_common(MOST_NAMED))
    n_more = len(counts) - MOST_NAMED
    return f"{named} and {n_more:,} more" if n_more > 0 else named
