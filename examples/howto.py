"""Draw pictures of how-to pages, three of them from the variables of the pages' examples.

python examples/howto.py [folder]
"""

import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
from gallery import BLUE, LIGHT, RED
from gallery import main as draw_all

from sigmax import SigmaxRegressor, metrics

GREY = "#777777"


def run(name: str) -> dict[str, Any]:
    """Run an example and return its variables."""
    return runpy.run_path(str(Path(__file__).with_name(f"{name}.py")))


def censored(axes):
    found, grid = run("censored"), np.linspace(-1, 1, 101)
    x, y, hours = (found[name][:100].squeeze() for name in ("X", "y", "hours"))
    is_ended = found["censoring"][:100] == "above"

    lower, upper = found["model"].predict_interval(grid[:, None], 0.9).T
    axes.fill_between(grid, lower, upper, color=LIGHT, alpha=0.6, lw=0, label="90 % interval")
    usual = found["usual"].predict_interval(grid[:, None], 0.9)
    axes.plot(
        grid, usual, "--", color=RED, label=["90 % interval if ends\nare taken as failures", None]
    )
    axes.plot(x[~is_ended], y[~is_ended], ".", color="black", ms=5, label="failure")
    axes.vlines(x[is_ended], y[is_ended], hours[is_ended], color=GREY, lw=0.4)
    axes.plot(x[is_ended], y[is_ended], "^", color=GREY, ms=4, label="end of a test")
    unseen = {
        "mfc": "white",
        "color": BLUE,
        "ms": 4.5,
        "label": "failure after the end,\nwhich nobody saw",
    }
    axes.plot(x[is_ended], hours[is_ended], "o", **unseen)
    axes.set(xlabel="load", ylabel="hours", yscale="log", title="Hours until a part fails")
    axes.set_xticks([-1, -0.5, 0, 0.5, 1])
    axes.set_yticks([5, 10, 20, 50, 100], ["5", "10", "20", "50", "100"])
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))


def known_errors(axes):
    found, grid = run("known_errors"), np.linspace(-3, 3, 121)
    x, y, error = (found[name][:100].squeeze() for name in ("X", "y", "y_error"))
    axes.errorbar(x, y, error, fmt=".", color=GREY, ms=4, lw=0.7, label="measurements ± error")
    for y_error, alpha, label in ((1.0, 0.4, "new measurement, error 1"), (None, 1, "true value")):
        lower, upper = found["model"].predict_dist(grid[:, None], y_error).interval(0.9).T
        axes.fill_between(grid, lower, upper, color=LIGHT, alpha=alpha, lw=0, label=label)
    usual = found["usual"].predict_interval(grid[:, None], 0.9)
    axes.plot(grid, usual, "--", color=RED, lw=1, label=["errors ignored", None])
    axes.set(xlabel="x", ylabel="y", title="90 % intervals")
    axes.legend(frameon=False, fontsize=8, ncols=2)


def splits(axes):
    scores = run("time_and_group_splits")["scores"]
    crps, shares = zip(*scores.values(), strict=True)
    bars = axes.barh(list(scores), crps, 0.6, color=LIGHT)
    axes.bar_label(bars, [f"coverage {100 * share:.0f} %" for share in shares], padding=5)
    axes.invert_yaxis()
    axes.set(xlabel="CRPS", xlim=(0, 1.8), title="CRPS, and coverage of 90 % intervals")


def coverage_in_new_machines(n_machines: int, is_told: bool, seed: int) -> float:
    """Coverage for 100 machines like those of the example, none of which is in the fit."""
    rng = np.random.default_rng(seed)
    machine = np.repeat(np.arange(n_machines + 100), 600 // n_machines)
    oil, wear = rng.normal(0, (1, 2), (n_machines + 100, 2))[machine].T
    load = rng.uniform(0, 1, len(machine))
    X = np.column_stack([oil + rng.normal(0, 0.02, len(machine)), load])
    y = 3 * load + wear + rng.normal(0, 0.3, len(machine))
    new = machine >= n_machines
    groups = machine[~new] if is_told else None
    model = SigmaxRegressor("quick", random_state=0).fit(X[~new], y[~new], groups=groups)
    return metrics.coverage(y[new], model.predict_dist(X[new]), level=0.9)


def groups(axes):
    sizes, seeds = np.array([10, 30, 90]), range(3)
    for is_told, color, label in (
        (True, BLUE, "fit(X, y, groups=machine)"),
        (False, RED, "fit(X, y)"),
    ):
        found = [[coverage_in_new_machines(n, is_told, seed) for seed in seeds] for n in sizes]
        axes.plot(sizes, found, "o", mfc="none", color=color, ms=5)
        axes.plot(sizes, np.mean(found, axis=1), color=color, label=label)
    axes.axhline(0.9, color="black", lw=0.8, ls=":", label="nominal")
    axes.set(xlabel="machines in the fit", ylabel="coverage", ylim=(0, 1))
    axes.set_xscale("log")
    axes.set_xticks(sizes, sizes)
    axes.minorticks_off()
    axes.set_title("90 % intervals in new machines")
    axes.legend(frameon=False, loc="lower right")


if __name__ == "__main__":
    pictures = {draw.__name__: draw for draw in (censored, known_errors, splits, groups)}
    draw_all(*(sys.argv[1:] or ["docs/howto"]), pictures=pictures)
