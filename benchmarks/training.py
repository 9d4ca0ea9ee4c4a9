"""How long the paper's recipe takes: the first result of a fresh process, and a steady step.

    python benchmarks/training.py [--members 1 5 20 100] [--rows 455] [--features 13]

Prints a table. Where torch is importable, the same steps are timed there, eagerly, in one run.
"""

import argparse
import subprocess
import sys
import time
from importlib.util import find_spec

import numpy as np
from rich.console import Console
from rich.table import Table

FIRST = """
import time; begin = time.perf_counter()
import numpy as np
from sigmax import CombinedRegressor
rng = np.random.default_rng(0)
X = rng.normal(size=({rows}, {features})); y = X[:, 0] + rng.normal(size={rows})
imported = time.perf_counter()
CombinedRegressor("paper", random_state=0).fit(X, y).predict(X[:1], return_std=True)
print(imported - begin, time.perf_counter() - imported)
"""


def first_result(rows: int, features: int) -> tuple[float, float, float]:
    """Seconds of a fresh process: all of it, imports, fit with compilation and one prediction."""
    begin = time.perf_counter()
    code = FIRST.format(rows=rows, features=features)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    whole = time.perf_counter() - begin
    imports, fit = map(float, done.stdout.split())
    return whole, imports, fit


def steady_step(X: np.ndarray, y: np.ndarray, n_members: int) -> float:
    """Microseconds of a step of all members, in a second fit that compiles nothing."""
    from sigmax import CombinedRegressor

    model = CombinedRegressor("paper", n_members=n_members, random_state=0)
    model.fit(X, y)
    begin = time.perf_counter()
    model.fit(X, y)
    return (time.perf_counter() - begin) / model.settings()["n_steps"] * 1e6


def torch_step(X: np.ndarray, y: np.ndarray, n_steps: int = 1000) -> float:
    """Microseconds of an eager PyTorch step of the same networks and batch sizes."""
    import torch  # pyright: ignore[reportMissingImports]

    torch.manual_seed(0)
    n_rows, n_features = X.shape
    X_, y_ = torch.tensor(X, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)[:, None]
    mean, concentration, rate = (
        torch.nn.Sequential(
            torch.nn.Linear(n_features, 50), torch.nn.ReLU(), torch.nn.Linear(50, 1)
        )
        for _ in range(3)
    )
    mean_optimizer = torch.optim.Adam(mean.parameters(), 1e-2)
    spread = [*concentration.parameters(), *rate.parameters()]
    spread_optimizer = torch.optim.Adam(spread, 1e-2)
    softplus = torch.nn.functional.softplus

    def negative_log_likelihood(rows):
        x = X_[rows]
        a = 1.1 + softplus(concentration(x))
        b = softplus(rate(x)) * a
        squared = (y_[rows] - mean(x)) ** 2
        return -(
            a * b.log()
            - torch.lgamma(a)
            + torch.lgamma(a + 0.5)
            - (a + 0.5) * (b + squared / 2).log()
        ).mean()

    def step(i):
        if i % 2 == 0:  # half of all steps are warm-up
            rows = torch.randint(n_rows, (256,))
            optimizer, loss = mean_optimizer, ((y_[rows] - mean(X_[rows])) ** 2).mean() / 2
        elif i % 4 == 1:
            rows = torch.randint(n_rows, (120,))
            optimizer, loss = mean_optimizer, negative_log_likelihood(rows)
        else:
            rows = torch.randint(n_rows, (10,))
            optimizer, loss = spread_optimizer, negative_log_likelihood(rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for i in range(100):
        step(i)
    begin = time.perf_counter()
    for i in range(n_steps):
        step(i)
    return (time.perf_counter() - begin) / n_steps * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("--members", type=int, nargs="+", default=[1, 5, 20, 100])
    parser.add_argument("--rows", type=int, default=455)
    parser.add_argument("--features", type=int, default=13)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(options.rows, options.features))
    y = X[:, 0] + rng.normal(size=options.rows)
    console = Console()

    whole, imports, fit = first_result(options.rows, options.features)
    console.print(
        f"first result of a fresh process, 10,000 iterations: {whole:.1f} s"
        f" (imports {imports:.1f} s, fit with compilation {fit:.1f} s)"
    )
    table = Table(title=f"steady step of the paper's recipe, {options.rows} x {options.features}")
    for column in ("members", "µs / step", "µs / member-step", "s / 10,000 iterations"):
        table.add_column(column, justify="right")
    for n_members in options.members:
        step = steady_step(X, y, n_members)
        table.add_row(str(n_members), f"{step:.0f}", f"{step / n_members:.1f}", f"{step / 100:.2f}")
    if find_spec("torch"):
        step = torch_step(X, y)
        table.add_row("1, eager torch", f"{step:.0f}", f"{step:.1f}", f"{step / 100:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
