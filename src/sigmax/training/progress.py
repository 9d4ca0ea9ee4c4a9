"""What a fit is doing, for those who ask: a bar of the training, and a line for other phases."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from sigmax.training.loop import AbstractStage, Progress


@contextmanager
def progress_bar(
    stages: Sequence[AbstractStage], *, visible: bool
) -> Iterator[Callable[[Progress], None] | None]:
    """What `train_stage` should report to: a bar on the terminal, or nothing.

    Stages that stop early count as done when the next one starts. Until the first chunk of a stage
    is done, the bar says that it is compiled.
    """
    if not visible:
        yield None
        return
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    ends = np.cumsum([stage.n_chunks for stage in stages]).tolist()
    before = {stage.name: end - stage.n_chunks for stage, end in zip(stages, ends, strict=True)}
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Bar(*columns, TextColumn("{task.fields[score]}")) as bar:
        task = bar.add_task("preparing", total=ends[-1], score="")

        def report(progress: Progress) -> None:
            name, chunk = progress.stage.name, progress.chunk
            score = progress.stage.describe(progress.figures) if chunk else ""
            text = name if chunk else f"{name}: compiling, first steps"
            done = before[name] + chunk
            bar.update(task, completed=done, description=text, score=score, refresh=not chunk)

        yield report
        bar.update(task, completed=ends[-1])


@contextmanager
def phase_line(name: str, *, visible: bool) -> Iterator[None]:
    """A line on the terminal while a block runs whose share of work is not known."""
    from rich import get_console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    hidden = not (visible and get_console().is_terminal)  # in a file it would be an empty line
    with Bar(*columns, transient=True, disable=hidden) as bar:
        bar.add_task(name, total=None)
        yield
