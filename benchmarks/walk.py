"""Walk of a fit through the source: files that it enters, and changes of file on the way.

Every function of the package counts once, in the order of the first calls; a change of file is a
function in another file than the one before it. Lambdas, comprehensions and modules that only
declare errors, checks and settings count like all others; `values.py`, which is to NumPy what the
pytrees of Equinox and JAX are to networks, counts as little as these libraries do::

    python benchmarks/walk.py                     # LocalRegressor, 300 rows of numbers
    python benchmarks/walk.py --estimator CombinedRegressor --show
"""

import argparse
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np

import sigmax

SOURCE = Path(sigmax.__file__).parent
LIBRARY = SOURCE / "values.py"


def walk(work) -> list[tuple[str, str]]:
    """File and name of every function of the package that ``work`` calls, in order."""
    found: dict[tuple[str, str], None] = {}

    def note(frame, event, argument):
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(str(SOURCE)) and path != str(LIBRARY):
            name = frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name
            if "<" not in name.rsplit(".", 1)[-1]:  # no lambdas, comprehensions or module bodies
                found.setdefault((str(Path(path).relative_to(SOURCE)), name))

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return list(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--estimator", default="LocalRegressor")
    parser.add_argument("--show", action="store_true", help="Print every function.")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = X[:, 0] + 0.3 * rng.normal(size=300)
    estimator = getattr(sigmax, options.estimator)(n_steps=20, random_state=0)
    estimator.settings()  # imports the modules of the method, whose class bodies are no steps
    steps = {"fit": lambda: estimator.fit(X, y), "predict": lambda: estimator.predict_interval(X)}
    for name, work in steps.items():
        calls = walk(work)
        files = [file for file, _ in calls]
        changes = sum(a != b for a, b in pairwise(files))
        print(
            f"{options.estimator}.{name}: {len(calls)} functions, {len(set(files))} files,"
            f" {changes} changes of file"
        )
        if options.show:
            for file, function in calls:
                print(f"    {file:45} {function}")


if __name__ == "__main__":
    main()
