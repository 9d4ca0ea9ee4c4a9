"""Whether two checkouts give the same results: scores of fits with fixed seeds, side by side.

    python benchmarks/same_results.py run --label after --out FILE.jsonl [--only uci,moons,images]
    python benchmarks/same_results.py compare FILE.jsonl

`run` uses nothing but the public interface, so that PYTHONPATH=CHECKOUT/src and another label give
the figures of another checkout. Needs SIGMAX_DATA. Regressors have the fast preset, on the first
five standard splits of four sets; autoencoders are small, on two moons and on a thousand digits.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sigmax import VAE, CombinedRegressor, CombVAE, LocalRegressor
from sigmax.data import TwoMoons, load_images, load_uci

SETS = ("boston", "concrete", "wine_red", "kin8nm")
N_SPLITS = 5
REGRESSORS = {"Local": LocalRegressor, "Combined": CombinedRegressor}
AUTOENCODERS = {"VAE": VAE, "Comb-VAE": CombVAE}
SMALL: dict[str, Any] = {"hidden_sizes": (32, 16), "n_steps": 400, "batch_size": 128}
KINDS = ("uci", "moons", "images")


def uci_scores() -> Iterator[tuple[str, dict[str, float]]]:
    for name in SETS:
        data = load_uci(name)
        for split, (train, test) in enumerate(data.splits[:N_SPLITS]):
            for title, regressor in REGRESSORS.items():
                model = regressor(preset="fast", random_state=split)
                model.fit(data.X[train], data.y[train])
                dist, y = model.predict_dist(data.X[test]), data.y[test]
                scores = {"log_likelihood": dist.log_prob(y), "crps": dist.crps(y)}
                means = {score: float(values.mean()) for score, values in scores.items()}
                yield f"{name} {split} {title}", means


def generative_scores(
    X: np.ndarray, name: str, **settings: Any
) -> Iterator[tuple[str, dict[str, float]]]:
    for title, autoencoder in AUTOENCODERS.items():
        model = autoencoder(**SMALL, **settings, random_state=0).fit(X[:-200])
        found = model.log_prob(X[-200:], n_samples=20)
        yield f"{name} {title}", {"log_likelihood": float(found.mean())}


def scores_of(kind: str) -> Iterator[tuple[str, dict[str, float]]]:
    if kind == "uci":
        yield from uci_scores()
    elif kind == "moons":
        X, _ = TwoMoons().sample(1200, random_state=0)
        yield from generative_scores(X, kind)
    else:
        pixels: dict[str, Any] = {"scaling": "none", "min_std": 0.1}
        yield from generative_scores(load_images("mnist").X_train[:1000], kind, **pixels)


def run(label: str, kinds: list[str], out: Path) -> None:
    """Append one line per fit."""
    for kind in kinds:
        for name, scores in scores_of(kind):
            line = {"label": label, "name": name, **scores}
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(line, flush=True)


def compare(path: Path) -> None:
    """The largest relative difference of every score between the labels."""
    lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    first, second = dict.fromkeys(line["label"] for line in lines)
    of_label = {
        label: {line["name"]: line for line in lines if line["label"] == label}
        for label in (first, second)
    }
    print(f"| fit | score | {first} | {second} | difference |\n|---|---|---:|---:|---:|")
    for name in of_label[first].keys() & of_label[second].keys():
        for score in of_label[first][name].keys() - {"label", "name"}:
            a, b = (of_label[label][name][score] for label in (first, second))
            print(f"| {name} | {score} | {a:.6f} | {b:.6f} | {abs(a - b):.1e} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("run")
    runner.add_argument("--label", default="after")
    runner.add_argument("--out", type=Path, required=True)
    runner.add_argument("--only", default=",".join(KINDS))
    comparer = commands.add_parser("compare")
    comparer.add_argument("records", type=Path)
    given = parser.parse_args()
    if given.command == "run":
        run(given.label, given.only.split(","), given.out)
    else:
        compare(given.records)


if __name__ == "__main__":
    main()
