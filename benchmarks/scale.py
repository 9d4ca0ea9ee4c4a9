"""Graph, fit and prediction of LocalRegressor against the number of rows, on this device.

    python benchmarks/scale.py [--rows 1000 10000 100000 464000] [--features 90] [--preset fast]
    python benchmarks/scale.py --together 20 --rows 7373 --features 8
    python benchmarks/scale.py --preset fast --out docs/scale      # keeps what it measures
    python benchmarks/scale.py --picture docs/scale                # scale.png from what was kept

Made-up rows of the shape of Year Prediction MSD; compilation is kept apart. With ``--together``, so
many models are fitted in one call.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
from rich.console import Console

from sigmax import LocalRegressor
from sigmax.estimators import fit_together
from sigmax.experts.local import Local
from sigmax.neighbors import neighbor_graph
from sigmax.runs.methods import stopwatch

FILE_NAME = "records.jsonl"


def make_rows(n_rows: int, n_features: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Twelve hidden causes, as many features as wanted, and noise that depends on one of them."""
    rng = np.random.default_rng(seed)
    mixing = np.random.default_rng(0).normal(size=(12, n_features))
    hidden = rng.normal(size=(n_rows, 12))
    X = hidden @ mixing + 0.3 * rng.normal(size=(n_rows, n_features))
    y = np.sin(hidden[:, 0]) + hidden[:, 1] * hidden[:, 2]
    return X, y + np.exp(0.5 * hidden[:, 3]) * rng.normal(size=n_rows)


def timed(function: Callable, seconds: list[float]) -> Callable:
    """The function, which also says how long each call took, compilation apart."""

    def call(*given: Any, **named: Any) -> Any:
        with stopwatch() as watch:
            result = function(*given, **named)
        seconds.append(watch.run)
        return result

    return call


def measure(n_rows: int, n_features: int, preset: str | None, n_models: int, n_new: int) -> dict:
    """One fit, or several together, and predictions."""
    sets = [make_rows(n_rows, n_features, seed) for seed in range(n_models)]
    models = [LocalRegressor(preset, random_state=seed) for seed in range(n_models)]
    graphs: list[float] = []
    slow = timed(neighbor_graph, graphs)
    with patch("sigmax.neighbors.neighbor_graph", slow), stopwatch() as watch:
        fit_together(models, sets)
    model, expert = models[0], models[0].expert()
    assert isinstance(expert, Local)
    expert = expert.fit_to(n_rows)
    assert expert.n_steps is not None
    X, y = make_rows(n_new, n_features, seed=99)
    begin = time.perf_counter()
    model.predict_dist(X[:2048])
    first = time.perf_counter() - begin
    begin = time.perf_counter()
    dist = model.predict_dist(X)
    seconds = time.perf_counter() - begin
    nearest = model.fitted.predictor.nearest
    n_chunks = max(len(m.history_["distribution"]) for m in models)
    return {
        "device": jax.devices()[0].device_kind,
        "preset": preset or "default",
        "models": n_models,
        "rows": n_rows,
        "features": n_features,
        "graph": sum(graphs),
        "compile": watch.compile,
        "fit": watch.run,
        "steps": n_chunks * (expert.n_steps // expert.n_scorings),
        "first_prediction": first,
        "predictions_per_second": n_new / seconds,
        "summed": f"{nearest.k} of {nearest.n_cells} cells" if nearest else "all",
        "log_likelihood": float(np.mean(dist.log_prob(y))),
        "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def draw(folder: Path) -> None:
    """Seconds against rows, both logarithmic, one panel per device and preset."""
    from matplotlib.figure import Figure

    lines = (folder / FILE_NAME).read_text(encoding="utf-8").splitlines()
    records = [record for record in map(json.loads, lines) if record["models"] == 1]
    kinds = sorted({(record["device"], record["preset"]) for record in records})
    figure = Figure(figsize=(5.2 * len(kinds), 4.6), layout="constrained")
    axes = figure.subplots(1, len(kinds), squeeze=False, sharey=True)[0]
    for panel, kind in zip(axes, kinds, strict=True):
        found = [record for record in records if (record["device"], record["preset"]) == kind]
        found.sort(key=lambda record: record["rows"])
        rows = [record["rows"] for record in found]
        curves = {
            "fit, compiled": [record["fit"] for record in found],
            "of it the graph": [record["graph"] for record in found],
            "1,000 steps, graph aside": [
                1000 * (record["fit"] - record["graph"]) / record["steps"] for record in found
            ],
            "1,000 predictions": [1000 / record["predictions_per_second"] for record in found],
        }
        for label, seconds in curves.items():
            panel.loglog(rows, seconds, marker="o", label=label)
        panel.set(title=f"{kind[0]}, {kind[1]}", xlabel="training rows")
        panel.grid(alpha=0.3)
    axes[0].set_ylabel("seconds")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(folder / "scale.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 10_000, 100_000, 464_000])
    parser.add_argument("--features", type=int, default=90)
    parser.add_argument("--preset", default=None)
    parser.add_argument("--together", type=int, default=1)
    parser.add_argument("--predict", type=int, default=20_000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    if given.picture:
        draw(given.picture)
        return
    console = Console(width=160)
    console.print(f"{jax.devices()[0].device_kind}, {given.features} features, {given.preset}")
    console.print(
        "   rows  compile s    fit s  of it graph    steps  ms/step  predict rows/s"
        "  log p   GiB  sums over"
    )
    for n_rows in given.rows:
        found = measure(n_rows, given.features, given.preset, given.together, given.predict)
        per_step = (found["fit"] - found["graph"]) / found["steps"] * 1000
        console.print(
            f"{n_rows:7} {found['compile']:10.1f} {found['fit']:8.1f} {found['graph']:12.1f} "
            f"{found['steps']:8} {per_step:8.2f} {found['predictions_per_second']:15.0f} "
            f"{found['log_likelihood']:6.2f} {found['gib']:5.1f}  {found['summed']}"
        )
        if given.out:
            given.out.mkdir(parents=True, exist_ok=True)
            with (given.out / FILE_NAME).open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
