"""Bayesian optimisation with our models and with BoTorch's own Gaussian process.

    python benchmarks/bayesian_optimisation.py run --seeds 10 --jobs 2 [--acquisition knowledge]
    python benchmarks/bayesian_optimisation.py report

`run` appends a line of JSON for every finished run and leaves out what is there already; `report`
writes the table and the picture of docs/integrations/botorch.md. All methods begin with the same
ten Sobol points, maximise qLogNoisyExpectedImprovement in the same way, or qKnowledgeGradient, and
stop after 50 evaluations. `--problems` with the names in DEVELOPMENT runs the problems that
settings were chosen on, which are not reported.
"""

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import botorch
import numpy as np
import torch
from botorch.acquisition import qKnowledgeGradient, qLogNoisyExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from botorch.test_functions import (
    Branin,
    Hartmann,
    Levy,
    Rosenbrock,
    SixHumpCamel,
    StyblinskiTang,
)
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from sigmax.integrations.botorch import fit_sigmax_model
from sigmax.version import __version__

HERE = Path(__file__).resolve().parent
RECORDS = HERE.parent / "docs" / "integrations" / "bayesian_optimisation.jsonl"
PICTURE = RECORDS.with_suffix(".png")

N_INITIAL, N_EVALUATIONS = 10, 50
NAMES = {"sigmax": "GPRegressor", "gp": "SingleTaskGP"}
COLORS = {"sigmax": "C0", "gp": "C1"}
TITLES = {
    "branin": "Branin",
    "hartmann6": "Hartmann-6",
    "branin_noisy": "Branin, noise depends on x",
    "hartmann3_noisy": "Hartmann-3, noise depends on x",
}


@dataclass(frozen=True)
class Problem:
    """A function on the unit cube to maximise, and the standard deviation of its noise."""

    n_features: int
    value: Callable[[Tensor], Tensor]
    best: float
    noise: Callable[[Tensor], Tensor] | None = None


def on_unit_cube(function: Any, scale: float = 1.0) -> dict[str, Any]:
    """A test function of BoTorch to minimise, negated, with its box as unit cube."""
    lower, upper = function.bounds.double()
    return {
        "n_features": function.dim,
        "value": lambda X: -function.evaluate_true(lower + (upper - lower) * X).double() / scale,
        "best": -function.optimal_value / scale,
    }


def bumps(n_features: int) -> dict[str, Any]:
    """Five Gaussian bumps at random places of the unit cube; the highest, of height 1, is alone."""
    generator = torch.Generator().manual_seed(n_features)
    places = torch.rand(5, n_features, dtype=torch.double, generator=generator)
    heights = torch.tensor([1.0, 0.7, 0.6, 0.5, 0.4], dtype=torch.double)
    width = 0.2 * n_features**0.5

    def value(X: Tensor) -> Tensor:
        return (heights * torch.exp(-0.5 * (torch.cdist(X, places) / width) ** 2)).amax(dim=-1)

    return {"n_features": n_features, "value": value, "best": 1.0}


PROBLEMS = {
    "branin": Problem(**on_unit_cube(Branin())),
    "hartmann6": Problem(**on_unit_cube(Hartmann(dim=6))),
    # Branin over 50 has a standard deviation of about 1. The noise grows from left to right: two
    # of the three optima lie where it is small, or middling, and the third where it is large.
    "branin_noisy": Problem(
        **on_unit_cube(Branin(), scale=50.0), noise=lambda X: 0.02 + 0.8 * X[:, 0] ** 2
    ),
    # The optimum is at x3 = 0.85, where the noise is small; the function varies by about 1.
    "hartmann3_noisy": Problem(
        **on_unit_cube(Hartmann(dim=3)), noise=lambda X: 0.02 + 1.5 * (1 - X[:, 2]) ** 2
    ),
}
DEVELOPMENT = {
    "bumps6": Problem(**bumps(6)),
    "levy2": Problem(**on_unit_cube(Levy(dim=2))),
    "styblinski3": Problem(**on_unit_cube(StyblinskiTang(dim=3), scale=50.0)),
    "camel": Problem(**on_unit_cube(SixHumpCamel())),
    "rosenbrock4": Problem(**on_unit_cube(Rosenbrock(dim=4), scale=1000.0)),
    "camel_noisy": Problem(
        **on_unit_cube(SixHumpCamel(), scale=20.0), noise=lambda X: 0.02 + 0.5 * X[:, 0]
    ),
    "levy2_noisy": Problem(
        **on_unit_cube(Levy(dim=2), scale=20.0), noise=lambda X: 0.02 + 1.0 * X[:, 1]
    ),
}
ALL = PROBLEMS | DEVELOPMENT


class SigmaxRun:
    """Our model, fitted anew after every evaluation."""

    def __init__(self, seed: int, **settings: Any):
        self.seed, self.settings = seed, settings

    def model_of(self, X: Tensor, Y: Tensor) -> Any:
        return fit_sigmax_model(X, Y, random_state=self.seed, **self.settings)


class GPRun:
    """BoTorch's Gaussian process, whose hyperparameters are found anew after every evaluation."""

    def __init__(self, seed: int):
        self.seed = seed

    def model_of(self, X: Tensor, Y: Tensor) -> Any:
        model = SingleTaskGP(X, Y)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return model


def by_improvement(model: Any, X: Tensor, bounds: Tensor, seed: int) -> Tensor:
    """The point of the largest expected improvement."""
    sampler = SobolQMCNormalSampler(torch.Size([512]), seed=seed)
    acquisition = qLogNoisyExpectedImprovement(model, X, sampler=sampler, prune_baseline=True)
    return best_point(acquisition, bounds, raw_samples=128, max_iter=50)


def by_knowledge(model: Any, X: Tensor, bounds: Tensor, seed: int) -> Tensor:
    """The point at which a measurement is expected to raise the largest posterior mean most."""
    sampler = SobolQMCNormalSampler(torch.Size([16]), seed=seed)
    acquisition = qKnowledgeGradient(model, num_fantasies=16, sampler=sampler)
    return best_point(acquisition, bounds, raw_samples=64, max_iter=30)


ACQUISITIONS = {"improvement": by_improvement, "knowledge": by_knowledge}


def best_point(acquisition: Any, bounds: Tensor, raw_samples: int, max_iter: int) -> Tensor:
    candidate, _ = optimize_acqf(
        acquisition,
        bounds,
        q=1,
        num_restarts=4,
        raw_samples=raw_samples,
        options={"maxiter": max_iter},
        retry_on_optimization_warning=False,
    )
    return candidate


def optimise(
    problem: Problem, method: str, seed: int, acquisition: str = "improvement", **settings: Any
) -> dict[str, Any]:
    """One run: regret after every evaluation from the initial ones on, and seconds."""
    torch.manual_seed(seed)
    run = GPRun(seed)
    if method == "sigmax":
        run = SigmaxRun(seed, **settings)
    rng = np.random.default_rng(seed)
    sobol = torch.quasirandom.SobolEngine(problem.n_features, scramble=True, seed=seed)
    X = sobol.draw(N_INITIAL, dtype=torch.double)
    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.double).repeat(1, problem.n_features)
    noise = torch.from_numpy(rng.normal(size=N_EVALUATIONS))  # the same draws for both methods

    def observe(X: Tensor, first: int) -> Tensor:
        Y = problem.value(X)
        if problem.noise is not None:
            Y = Y + problem.noise(X) * noise[first : first + len(X)]
        return Y[:, None]

    Y, regrets, start = observe(X, 0), [], time.perf_counter()
    while True:
        model = run.model_of(X, Y)
        with torch.no_grad():
            judged = Y if problem.noise is None else model.posterior(X).mean
        chosen = X[judged.argmax()]
        regrets.append(problem.best - float(problem.value(chosen[None])))
        if len(X) == N_EVALUATIONS:
            break
        candidate = ACQUISITIONS[acquisition](model, X, bounds, 1000 * seed + len(X))
        Y = torch.cat([Y, observe(candidate, len(X))])
        X = torch.cat([X, candidate])
    return {"regrets": regrets, "seconds": time.perf_counter() - start}


def read(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def run_one(about: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = {"acquisition": about["acquisition"]} | about.get("settings", {})
        found = optimise(ALL[about["problem"]], about["method"], about["seed"], **chosen)
    return about | found | {"versions": {"sigmax": __version__, "botorch": botorch.__version__}}


def run_all(arguments: argparse.Namespace) -> None:
    given, known, tasks = json.loads(arguments.settings), list(read(arguments.records)), []
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        for name, method in product(arguments.problems, arguments.methods):
            about = {"problem": name, "method": method, "seed": seed}
            about |= {"acquisition": arguments.acquisition}
            settings = {"noise_free": ALL[name].noise is None} | given
            about |= {"settings": settings} if method == "sigmax" else {}
            if not any(about.items() <= record.items() for record in known):
                tasks.append(about)
    context = get_context("spawn")
    with ProcessPoolExecutor(arguments.jobs, mp_context=context) as pool:
        for done in as_completed([pool.submit(run_one, about) for about in tasks]):
            record = done.result()
            with arguments.records.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            about = f"{record['problem']} {record['method']} {record['seed']}"
            last, seconds = record["regrets"][-1], record["seconds"]
            print(f"{about}: {last:.4g}, {seconds:.0f} s", flush=True)


def regrets_of(records: list[dict[str, Any]], problem: str, method: str) -> dict[int, np.ndarray]:
    """By seed, in the order of the records."""
    return {
        record["seed"]: np.maximum(record["regrets"], 1e-12)
        for record in records
        if (record["problem"], record["method"]) == (problem, method)
    }


def report(arguments: argparse.Namespace) -> None:
    """The table, printed, and the picture."""
    import matplotlib.pyplot as plt

    records = [r for r in read(arguments.records) if r["acquisition"] == arguments.acquisition]
    figure, axes = plt.subplots(1, len(arguments.problems), figsize=(14, 3.4), squeeze=False)
    print("| problem | method | seeds | after 20 | after 30 | after 50 | median | s per run |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    steps = np.arange(N_INITIAL, N_EVALUATIONS + 1)
    for axis, name in zip(axes[0], arguments.problems, strict=True):
        found = {method: regrets_of(records, name, method) for method in NAMES}
        for method, label in NAMES.items():
            curves = np.array(list(found[method].values()))
            if len(curves) < 2:
                continue
            mean, median = curves.mean(axis=0), np.median(curves, axis=0)
            error = curves.std(axis=0, ddof=1) / np.sqrt(len(curves))
            color, band = COLORS[method], np.quantile(curves, [0.25, 0.75], axis=0)
            axis.plot(steps, median, color=color, label=f"{label}, {len(curves)} seeds")
            axis.fill_between(steps, *band, color=color, alpha=0.2, linewidth=0)
            at = np.array([20, 30, 50]) - N_INITIAL
            cells = [f"{mean[i]:.2g} ± {error[i]:.1g}" for i in at]
            seconds = np.mean(
                [r["seconds"] for r in records if (r["problem"], r["method"]) == (name, method)]
            )
            cells = [str(len(curves)), *cells, f"{median[-1]:.2g}", f"{seconds:.0f}"]
            print(f"| {name} | {label} | {' | '.join(cells)} |")
        seeds = sorted(set(found["sigmax"]) & set(found["gp"]))
        wins = sum(bool(found["sigmax"][seed][-1] < found["gp"][seed][-1]) for seed in seeds)
        print(f"<!-- {name}: GPRegressor below SingleTaskGP in {wins} of {len(seeds)} -->")
        axis.set(title=TITLES.get(name, name), xlabel="evaluations", yscale="log")
        axis.legend(fontsize="small")
    axes[0, 0].set_ylabel("simple regret: median and quartiles")
    figure.tight_layout()
    figure.savefig(arguments.picture, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=["run", "report"])
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS), choices=list(ALL))
    parser.add_argument("--methods", nargs="+", default=list(NAMES), choices=list(NAMES))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--settings", default="{}", help="of our estimators, as JSON")
    parser.add_argument("--acquisition", default="improvement", choices=list(ACQUISITIONS))
    parser.add_argument("--jobs", type=int, default=1, help="runs at once, a core each")
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    arguments = parser.parse_args()
    {"run": run_all, "report": report}[arguments.command](arguments)


if __name__ == "__main__":
    main()
