"""The timings: every method alone on the first split of each UCI set, compilation apart."""

from sigmax.data import UCI_SETS
from sigmax.paper.uci import run_splits
from sigmax.paper.uci_report import uci_tables
from sigmax.runs.methods import METHODS
from sigmax.runs.registry import Experiment, register

register(
    Experiment(
        name="timings",
        about="every method alone on its first split, compilation apart",
        datasets=tuple(UCI_SETS),
        methods=tuple(METHODS),
        n_splits=1,
        most_splits=lambda dataset: UCI_SETS[dataset].n_splits,
        run=run_splits,
        tables=uci_tables,
    )
)
