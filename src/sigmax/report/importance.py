"""What drives the mean and what drives the spread: permutation importance on held-out rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.report.charts import Axis, Chart, Layer
from sigmax.report.texts import count_text, listed, number_text

__all__ = ["Importance", "importance_charts", "permutation_importance", "predict_moments"]

MOST_ROWS = 400
"""Held-out rows whose cells are permuted."""
MOST_PREDICTIONS = 60_000
"""Rows to predict, over all columns: of many columns fewer rows and permutations are taken."""
MOST_PERMUTATIONS = 3
FEWEST_ROWS = 40
MOST_BARS = 15
BLOCK = 2_048
"""Rows of a prediction, so that all but the last have one shape."""

Numbers = NDArray[np.float64]
Progress = Callable[[float], None]
"""Takes the share that is done."""


@final
@dataclass(frozen=True, eq=False)
class Importance:
    """What becomes of predictions if the cells of one column change places between rows.

    The arrays have one entry per unit.
    """

    units: tuple[tuple[str, ...], ...]
    """Columns, of which some may be permuted together."""
    mean_shift: Numbers
    """The root mean square change of the mean, in units of the target."""
    error_rise: Numbers
    """By how much the root mean square error rises."""
    spread_change: Numbers
    """The mean absolute change of the logarithm of the standard deviation."""
    n_rows: int
    n_permutations: int

    @property
    def columns(self) -> tuple[str, ...]:
        """What units are called."""
        return tuple(" and ".join(unit) for unit in self.units)

    @property
    def spread_factor(self) -> Numbers:
        """By which share the spread changes up or down: 0.2 is a fifth."""
        return np.expm1(self.spread_change)

    def order(self) -> NDArray[np.intp]:
        """Positions of columns, the most important for the mean or the spread first."""
        shares = [
            part / (part.max() or 1.0) if len(part) else part
            for part in (self.mean_shift, self.spread_change)
        ]
        return np.lexsort((-shares[0] - shares[1], -np.round(shares[0], 3)))


def permutation_importance(
    model: Any,
    X: pd.DataFrame,
    y: Numbers,
    *,
    together: Sequence[str] = (),
    seed: int = 0,
    progress: Progress = lambda share: None,
) -> Importance:
    """Permute every column in turn and see how predictions change.

    Parameters
    ----------
    X, y
        Held-out rows; as many of the first are taken as the bound on predictions allows.
    together
        Columns that change places together, such as a start and an end.
    progress
        Is told the share of the work that is done.
    """
    units = [(str(name),) for name in X.columns if name not in together]
    units += [tuple(together)] if together else []
    n_rows = min(len(X), MOST_ROWS, max(FEWEST_ROWS, MOST_PREDICTIONS // len(units)))
    n_permutations = MOST_PREDICTIONS // (n_rows * len(units))
    n_permutations = int(np.clip(n_permutations, 1, MOST_PERMUTATIONS))
    X, y = X.iloc[:n_rows].reset_index(drop=True), y[:n_rows]
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(n_rows) for _ in range(n_permutations)]
    mean, std = predict_moments(model, [X])
    frames = (permuted(X, unit, order) for unit in units for order in orders)
    total = len(units) * n_permutations * n_rows
    found = predict_moments(model, frames, lambda n_done: progress(n_done / total))
    shape = len(units), n_permutations * n_rows
    means, stds = (part.reshape(shape) for part in found)
    mean, std, y = (np.tile(part, n_permutations) for part in (mean, std, y))
    rmse = np.sqrt(np.mean((mean - y) ** 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        changes = np.abs(np.log(stds) - np.log(std))
    return Importance(
        units=tuple(units),
        mean_shift=np.sqrt(np.mean((means - mean[None]) ** 2, axis=1)),
        error_rise=np.sqrt(np.mean((means - y[None]) ** 2, axis=1)) - rmse,
        spread_change=np.mean(np.where(np.isfinite(changes), changes, 0.0), axis=1),
        n_rows=n_rows,
        n_permutations=n_permutations,
    )


def permuted(X: pd.DataFrame, unit: Sequence[str], order: NDArray[np.intp]) -> pd.DataFrame:
    """The rows with the cells of some columns in another order, of the same type."""
    return X.assign(**{name: X[name].take(order).reset_index(drop=True) for name in unit})


def predict_moments(
    model: Any,
    frames: Sequence[pd.DataFrame] | Iterator[pd.DataFrame],
    progress: Callable[[int], None] = lambda n_done: None,
) -> tuple[Numbers, Numbers]:
    """Mean and standard deviation of the rows of several frames, predicted in large blocks."""
    means, stds, n_done = [], [], 0
    for block in blocks_of(frames):
        dist = model.predict_dist(block)
        means.append(dist.mean)
        stds.append(dist.std)
        n_done += len(block)
        progress(n_done)
    return np.concatenate(means), np.concatenate(stds)


def blocks_of(
    frames: Sequence[pd.DataFrame] | Iterator[pd.DataFrame],
) -> Iterator[pd.DataFrame]:
    """The rows of all frames in their order, in blocks of one size, the last one smaller."""
    waiting: list[pd.DataFrame] = []
    n_waiting = 0
    for frame in frames:
        waiting.append(frame)
        n_waiting += len(frame)
        while n_waiting >= BLOCK:
            whole = pd.concat(waiting, ignore_index=True)
            yield whole.iloc[:BLOCK]
            waiting, n_waiting = [whole.iloc[BLOCK:]], n_waiting - BLOCK
    if n_waiting:
        yield pd.concat(waiting, ignore_index=True)


def importance_charts(found: Importance, target: str) -> list[Chart]:
    """One chart of what moves the mean and one of what changes the spread, rows in one order."""
    order = found.order()
    shown = order[:MOST_BARS]
    names = tuple(found.columns[i] for i in shown)
    places = np.arange(len(shown))
    hidden = len(order) - len(shown)
    more = f" The {hidden:,} other columns are in the table." if hidden else ""
    by_spread = [found.columns[i] for i in np.argsort(-found.spread_change, kind="stable")]
    rises = [f"error rises by {number_text(found.error_rise[i], 3)}" for i in shown]
    axis = Axis(label="", scale="category", levels=names)
    height = 90 + 26 * len(shown)
    return [
        Chart(
            name="importance-mean",
            title="What drives the mean",
            description=f"The mean of {target} depends most on {listed(names)}. Without the first"
            f" of them it moves by {number_text(found.mean_shift[shown[0]], 3)}.",
            x=Axis(label=f"mean moves by, in units of {target}", low=0.0),
            y=axis,
            layers=[
                Layer(
                    mark="bars",
                    label="mean moves by",
                    x=found.mean_shift[shown],
                    y=places,
                    texts=rises,
                )
            ],
            height=height,
        ),
        Chart(
            name="importance-spread",
            title="What drives the spread",
            description=f"The standard deviation depends most on {listed(by_spread)}.",
            x=Axis(label="spread changes by", low=0.0, percent=True),
            y=axis,
            layers=[
                Layer(
                    mark="bars",
                    label="spread changes by",
                    color="miss",
                    x=found.spread_factor[shown],
                    y=places,
                )
            ],
            note=f"Cells of one column change places between {count_text(found.n_rows, 'row')},"
            f" {count_text(found.n_permutations, 'time')}; how far predictions move is what the"
            f" model takes from that column. Columns that say the same share it.{more}",
            height=height,
        ),
    ]
