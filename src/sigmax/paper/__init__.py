"""The experiments of the paper, by name."""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sigmax.runs.experiments import Experiment

__all__ = ["PAPER", "paper_experiments"]

PAPER = ("toy", "weather", "uci", "timings", "ablation", "active", "gradients", "moons", "images")
"""Names of the experiments, in the order of reports."""


@cache
def paper_experiments() -> "dict[str, Experiment]":
    """All experiments by name; their modules are imported by the first call."""
    import sigmax.plots  # noqa: F401, raises an error without Matplotlib
    from sigmax.paper import curves, generative, gradients, uci

    found = [curves.TOY, curves.WEATHER, uci.UCI, uci.TIMINGS, uci.ABLATION, uci.ACTIVE]
    found += [gradients.GRADIENTS, generative.MOONS, generative.IMAGES]
    return {experiment.name: experiment for experiment in found}
