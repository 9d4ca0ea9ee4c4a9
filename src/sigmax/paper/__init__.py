"""The experiments of the paper, each in the module of its name, which registers it."""

__all__ = ["EXPERIMENTS"]

EXPERIMENTS = (
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
"""Names of experiments, in the order of reports; `find_experiment` imports the modules."""
