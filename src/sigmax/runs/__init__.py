"""Experiments as tasks with records: the runner, its engines, and the report of what was found."""

__all__ = ["EXPERIMENTS", "PAPER"]

PAPER = (
    "toy",
    "weather",
    "uci",
    "timings",
    "ablation",
    "active",
    "gradients",
    "moons",
    "images",
)
"""Names of the paper's experiments, in the order of reports."""

EXPERIMENTS = {name: f"sigmax.paper.{name}" for name in PAPER}
EXPERIMENTS["compare"] = "sigmax.commands.compare"
"""Name of an experiment -> module that registers it; `find_experiment` imports the modules."""
