"""The whole way from a file to intervals on a made-up table: `sigmax demo`."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import Any

from sigmax.commands.fit import fit_table, write_result
from sigmax.commands.fit_options import FitOptions
from sigmax.commands.folder import load_folder
from sigmax.commands.model_report import Bar, no_bar
from sigmax.commands.predict import PredictOptions, predict_file
from sigmax.data.deliveries import make_deliveries
from sigmax.errors import TableFileError
from sigmax.runs.engines import LocalEngine
from sigmax.runs.registry import Choice
from sigmax.runs.runner import ExperimentResult, run_experiment
from sigmax.runs.tables import ReportTable
from sigmax.tables.reading import read_table
from sigmax.tables.writing import write_table

__all__ = ["TOY_MODELS", "TOY_SETTINGS", "make_folder", "run_table_demo", "start_toy"]

TOY_MODELS = ("nn", "combined", "local")
"""Of the toy problem; `sigmax reproduce toy` has all seven."""
TOY_SETTINGS = {"preset": "fast"}

TARGET = "minutes"
N_NEW = 100
"""The last rows, which are predicted as if their targets were not known yet."""
N_SHOWN = 8


def make_folder(folder: Path) -> None:
    """Make a folder unless it is there, or say why not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TableFileError(f"`--out` {folder} cannot be made: {error.strerror}.") from error


def start_toy(folder: Path, seed: int) -> Callable[[], ExperimentResult]:
    """Begin the toy problem in a process of its own; what is returned waits for its result."""
    found: Future[ExperimentResult] = Future()

    def work() -> None:
        try:
            choice = Choice(methods=TOY_MODELS, seed=seed, settings=TOY_SETTINGS)
            found.set_result(run_experiment("toy", choice, folder, LocalEngine()))
        except BaseException as error:
            found.set_exception(error)

    Thread(target=work, daemon=True).start()
    return found.result


def run_table_demo(folder: Path, seed: int, show: Callable[[Any], None], bar: Bar = no_bar) -> None:
    """Write two files, fit a model to one, and predict the other, as the commands would."""
    deliveries, new = folder / "deliveries.csv", folder / "new.csv"
    frame = make_deliveries(seed=seed)
    write_table([frame.iloc[:-N_NEW]], deliveries)
    write_table([frame.iloc[-N_NEW:].drop(columns=TARGET)], new)
    show(f"$ sigmax fit {deliveries} --target {TARGET} --preset fast --out {folder / 'model'}")
    options = FitOptions(target=TARGET, preset="fast", seed=seed)
    known = {"name": deliveries.name, "source": str(deliveries), "out": folder / "model"}
    result = fit_table(read_table(deliveries), options, **known, show=show, verbose=True, bar=bar)
    write_result(result, folder / "model", force=True)
    show(f"$ sigmax predict {folder / 'model'} {new}")
    saved = load_folder(folder / "model")
    out = folder / "new_predicted.csv"
    predict_file(saved, str(new), str(out), PredictOptions(), {}, overwrite=True)
    show(first_rows(read_table(out), frame[TARGET].iloc[-N_NEW:].tolist()))


def first_rows(predicted: Any, truth: list[float]) -> ReportTable:
    """Some predictions beside the actual values."""
    names = ["vehicle", "weather", "distance_km", "mean", "lower", "upper"]
    shown = predicted[names].head(N_SHOWN).fillna("").itertuples(index=False)
    rows = [
        [row[0], row[1], f"{row[2]:.1f}", *(f"{number:.1f}" for number in row[3:]), f"{y:.1f}"]
        for row, y in zip(shown, truth, strict=False)
    ]
    return ReportTable(
        title="new deliveries: predicted minutes and 90 % interval",
        header=[*names, "actual"],
        rows=rows,
    )
