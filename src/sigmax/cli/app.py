"""The application: its commands, which are imported when used, and the options they share."""

import functools
import inspect
import json
import shlex
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, final, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from sigmax.errors import InvalidArgumentError
from sigmax.ray_session import DEVICES
from sigmax.settings import check_choice
from sigmax.version import __version__

COMMANDS = {
    "describe": "Show the columns of a table and likely problems, before you fit a model.",
    "fit": "Fit a model to a table and score it on held-out rows.",
    "predict": "Add predictions with their uncertainty to the rows of one or many files.",
    "evaluate": "Score a model on labelled rows, in total and by group or time.",
    "compare": "Cross-validate methods on a table and rank them; resumes a stopped run.",
    "monitor": "Test whether predictions still hold on new labelled rows, in file order.",
    "serve": "Serve a model as a web page and a JSON API; set SIGMAX_TOKEN to require a token.",
    "demo": "Fit and predict a synthetic table; with Matplotlib, also compare models.",
    "reproduce": "Run an experiment of the paper; resumes a stopped run.",
    "report": "Rebuild the page and the tables of a folder from its recorded results.",
}
"""Commands with the first line of their docstrings, which `sigmax --help` shows."""
MODULES = {"demo": "reproduce", "monitor": "evaluate", "report": "reproduce"}
"""Modules of commands that do not have the name of the command."""

typed_command: ContextVar[str] = ContextVar("typed_command", default="")
"""Command line as it was typed, which reproduces a report."""

Source = Annotated[
    str, typer.Argument(help="CSV, TSV, Parquet or Excel file, also gzipped; - for standard input.")
]
ModelFolder = Annotated[Path, typer.Argument(help="Folder written by `sigmax fit`.")]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Run failed tasks again.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Setting of the model, as in n_steps=500; may be repeated."),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the split and of the models.")]
IntervalMethod = Annotated[
    str | None, typer.Option(help="Intervals: distribution or conformal; by default as fitted.")
]


@final
@dataclass(frozen=True, kw_only=True)
class Reading:
    delimiter: Annotated[
        str | None, typer.Option(help="Delimiter of the text file; detected by default.")
    ] = None
    encoding: Annotated[
        str | None, typer.Option(help="Encoding of the text file; detected by default.")
    ] = None
    sheet: Annotated[
        str | None, typer.Option(help="Sheet of the Excel file; the first by default.")
    ] = None


@final
@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Processes that do the work."""

    engine: Annotated[str, typer.Option(help="local or ray (needs the ray extra).")] = "local"
    address: Annotated[
        str | None,
        typer.Option(help="Address of a Ray cluster; by default one is started on this machine."),
    ] = None
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Parallel workers; by default 1, or all Ray workers for fit and predict."
        ),
    ] = None
    device: Annotated[str, typer.Option(help="Device of Ray workers: auto, cpu or gpu.")] = "auto"

    def uses_ray(self) -> bool:
        """True for Ray; raise an error if other options need it."""
        check_choice("--device", self.device, DEVICES)
        if check_choice("--engine", self.engine, ("local", "ray")) == "ray":
            return True
        for name, is_set in {
            "--address": self.address is not None,
            "--workers": self.workers is not None,
            "--device": self.device != "auto",
        }.items():
            if is_set:
                advice = " To keep JAX on the CPU, set JAX_PLATFORMS=cpu." * (name == "--device")
                raise InvalidArgumentError(f"`{name}` needs `--engine ray`.{advice}")
        return False

    def create(self) -> Any:
        from sigmax.runs.engines import create_engine

        return create_engine(
            self.engine, address=self.address, n_workers=self.workers or 1, device=self.device
        )


def split_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def parse_settings(texts: list[str] | None) -> dict[str, Any]:
    """Settings such as ``n_steps=500`` or ``hidden_sizes=[50,50]``; values are JSON or a word."""
    settings = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidArgumentError(f"`--set` must have the form name=value, got {text!r}.")
        try:
            settings[name] = json.loads(value)
        except json.JSONDecodeError:
            settings[name] = value
    return settings


def parse_numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(number) for number in split_names(text))
    except ValueError as error:
        rule = "numbers, separated by commas"
        raise InvalidArgumentError(f"`{option}` must be {rule}, got {text!r}.") from error


def load_command(name: str) -> Any:
    from sigmax.cli.terminal import report_errors

    with report_errors():  # a missing extra
        module = import_module(f"sigmax.cli.{MODULES.get(name, name)}")
    single = typer.Typer(add_completion=False)
    single.command(name)(with_option_groups(getattr(module, name)))
    return typer.main.get_command(single)


def with_option_groups(function: Callable[..., Any]) -> Callable[..., Any]:
    """A command with one option per annotated field of every parameter that is a dataclass."""
    hints = get_type_hints(function, include_extras=True)
    options: dict[str, tuple[Any, Any]] = {}
    groups: dict[str, list[str]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if not is_dataclass(hints[name]):
            options[name] = hints[name], parameter.default
            continue
        field_hints = get_type_hints(hints[name], include_extras=True)
        groups[name] = []
        for field in fields(hints[name]):
            hint, default = field_hints[field.name], field.default
            if get_origin(hint) is not Annotated:  # not an option
                continue
            groups[name].append(field.name)
            if hint.__origin__ == tuple[str, ...]:  # typer takes lists
                hint, default = Annotated[list[str] | None, *hint.__metadata__], None
            options[field.name] = hint, inspect.Parameter.empty if default is MISSING else default

    @functools.wraps(function)
    def command(**values: Any) -> Any:
        for name, own in groups.items():
            chosen = {field: values.pop(field) for field in own}
            given = {field: value for field, value in chosen.items() if value is not None}
            lists = {field: tuple(value) for field, value in given.items() if type(value) is list}
            values[name] = hints[name](**given | lists)
        return function(**values)

    keyword: Any = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(name, keyword, annotation=hint, default=default)
        for name, (hint, default) in options.items()
    ]
    command.__dict__["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {name: hint for name, (hint, _) in options.items()}
    return command


@final
class LazyCommand(TyperCommand):
    """A command that is imported when it is used, and not for `sigmax --help`."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        typed_command.set(shlex.join(["sigmax", str(self.name), *args]))
        return load_command(str(self.name)).make_context(info_name, args, parent, **extra)


@final
class LazyCommands(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        return LazyCommand(name=cmd_name, help=COMMANDS[cmd_name])


app = typer.Typer(cls=LazyCommands, no_args_is_help=True, add_completion=False)


def show_version(is_wanted: bool) -> bool:
    if is_wanted:
        typer.echo(f"sigmax {__version__}")
        raise typer.Exit
    return is_wanted


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Predictions with honest error bars: narrow where you have data, wide where you do not."""
