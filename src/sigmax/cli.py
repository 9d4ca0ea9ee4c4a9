"""The command line: each command fills settings, calls one function and shows what came."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(
    help="Predictive distributions you can trust.", no_args_is_help=True, add_completion=False
)
console = Console()

TOY_COLUMNS = ("log p", "below true", "std error", "90 % cov.", "std(−4)", "std(14)")


@app.callback()
def main() -> None:
    """Predictive distributions you can trust: sharp on the data, wide off it."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the data and of the models.")] = 0,
) -> None:
    """The paper's toy problem: two models, one picture, one table, a minute."""
    from sigmax.experiments.toy import demo_models, run_toy, toy_figure

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"cannot make the folder: {error}", param_hint="--out") from error
    models = demo_models(seed)
    for model in models.values():
        model.set_params(verbose=1)
    result = run_toy(models, random_state=seed, report=lambda name: console.print(f"fit {name}"))
    console.print(toy_table(result.scores))
    picture = out / "toy.png"
    toy_figure(result).savefig(picture, dpi=130)
    console.print(f"picture: {picture}", soft_wrap=True)


def toy_table(scores) -> Table:
    """The scores of the toy problem, one row per model."""
    table = Table(
        title="toy problem: 500 points, y = x sin x + 0.3 ε₁ + 0.3 x ε₂ on [0, 10]",
        caption="log-likelihood and coverage on 10,000 fresh points; mean relative error of std on"
        " [0.5, 9.5]; std at x = −4 and 14 in units of std(y)",
    )
    table.add_column("model", no_wrap=True)
    for column in TOY_COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for name, score in scores.items():
        table.add_row(
            name,
            f"{score.log_likelihood:.3f}",
            f"{score.excess:.3f}",
            f"{score.std_error:.1%}",
            f"{score.coverage:.1%}",
            f"{score.std_left:.2f}",
            f"{score.std_right:.2f}",
        )
    return table
