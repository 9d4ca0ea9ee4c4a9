"""The command line: each command fills settings, calls one function and shows what came."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import rich.table
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sigmax.errors import SigmaxError

app = typer.Typer(
    help="Predictive distributions you can trust.", no_args_is_help=True, add_completion=False
)
reproduce = typer.Typer(help="The paper's experiments.", no_args_is_help=True)
app.add_typer(reproduce, name="reproduce")
console = Console()

SIX = "gp,nn,bnn,mc-dropout,ens-nn,combined"
STATIONS = "san_diego,sydney,central_england"

Out = Annotated[Path, typer.Option(help="Folder for the tables and pictures.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the data and of the models.")]
Methods = Annotated[str, typer.Option(help="Methods to compare, separated by commas.")]
Stations = Annotated[
    str,
    typer.Option(
        help=f"Stations, separated by commas: {STATIONS}, or csv files with the columns date"
        " (YYYY-MM-DD) and tmax."
    ),
]


@app.callback()
def main() -> None:
    """Predictive distributions you can trust: sharp on the data, wide off it."""


@app.command()
def demo(out: Out = Path("demo"), seed: Seed = 0) -> None:
    """The paper's toy problem: six models, two pictures, one table, a minute or two."""
    toy(out, seed, SIX)


@reproduce.command()
def toy(out: Out = Path("toy"), seed: Seed = 0, methods: Methods = SIX) -> None:
    """The toy problem: mean and spread are known, and the models judged on and off the data."""
    with clear_errors():
        from sigmax.experiments.methods import choose_methods
        from sigmax.experiments.toy import run_toy, toy_figures, toy_table

        chosen = choose_methods(methods.split(","))
        make_folder(out)
        with show_fits(len(chosen)) as report:
            result = run_toy(chosen, random_state=seed, report=report)
        show_results(out, "toy", toy_table(result), toy_figures(result))


@reproduce.command()
def weather(
    out: Out = Path("weather"),
    datasets: Stations = STATIONS,
    methods: Methods = SIX,
    splits: Annotated[int, typer.Option(min=1, help="Draws of a year to learn from.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Number of the first draw.")] = 0,
) -> None:
    """Learn from one year of temperatures, be judged by the spread over a century."""
    with clear_errors():
        from sigmax.data import load_station
        from sigmax.experiments.methods import choose_methods
        from sigmax.experiments.weather import run_weather, weather_figures, weather_table

        stations = [load_station(name) for name in datasets.split(",")]
        chosen = choose_methods(methods.split(","))
        make_folder(out)
        draws = range(seed, seed + splits)
        with show_fits(len(stations) * len(chosen) * splits) as report:
            results = [run_weather(station, chosen, draws, report=report) for station in stations]
        figures = {}
        for result in results:
            figures |= weather_figures(result)
        show_results(out, "weather", weather_table(results), figures)


@contextmanager
def clear_errors() -> Iterator[None]:
    """What sigmax raises on purpose is a message, not a trace."""
    try:
        yield
    except SigmaxError as error:
        console.print(f"[red]error:[/] {error}", soft_wrap=True)
        raise typer.Exit(1) from error


def make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"cannot make the folder: {error}", param_hint="--out") from error


@contextmanager
def show_fits(n_fits: int) -> Iterator[Callable[[str], None]]:
    """A bar of fits done, with the time left; the function given is told of each that begins."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
        task, started = bar.add_task("", total=n_fits), itertools.count()
        yield lambda name: bar.update(task, description=name, completed=next(started))
        bar.update(task, description="done", completed=n_fits)


def show_results(out: Path, name: str, table, figures) -> None:
    """Print a table, and write it and the pictures into the folder."""
    shown = rich.table.Table(title=table.title, caption=" ".join(table.notes))
    for i, column in enumerate(table.header):
        shown.add_column(column, justify="right" if i else "left", no_wrap=True)
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown)
    (out / f"{name}.md").write_text(table.to_markdown(), encoding="utf-8")
    for stem, figure in figures.items():
        figure.savefig(out / f"{stem}.png", dpi=130)
        console.print(f"picture: {out / f'{stem}.png'}", soft_wrap=True)
