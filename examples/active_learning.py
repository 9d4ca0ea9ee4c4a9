"""Which rows to measure next: chosen by the model's uncertainty, or at random."""

import numpy as np

from sigmax import GPRegressor, LocalRegressor
from sigmax.active_learning import choose, expected_gain

rng = np.random.default_rng(0)
X = rng.normal(0, 1, (300, 2))
y = np.sin(2 * X[:, 0]) * X[:, 1] + rng.normal(0, 0.1, 300)
test = np.arange(200, 300)


def fit(rows):
    return GPRegressor(average=False, random_state=0).fit(X[rows], y[rows])


wanted = choose(fit(range(15)), X[15:200], 3)
print("measure next:", *np.round(X[15:200][wanted], 1).tolist())

for acquisition in ("variance", "random"):
    labelled, pool = np.arange(15), np.arange(15, 200)
    for number in range(8):
        chosen = choose(fit(labelled), X[pool], 4, acquisition=acquisition, random_state=number)
        labelled, pool = np.append(labelled, pool[chosen]), np.delete(pool, chosen)
    error = np.sqrt(np.mean((fit(labelled).predict(X[test]) - y[test]) ** 2))
    print(f"{acquisition:<8} with {len(labelled)} labels: RMSE {error:.2f}")

# A batch that is measured at once: rows that tell different things.
members = LocalRegressor("fast", random_state=0).fit(X[:60], y[:60])
batch = choose(members, X[60:200], 10, acquisition="joint-information")
gain = expected_gain(members, X[60:200], batch)
print(f"ten rows are expected to lower the pool's mean variance by a share of {gain:.2f}")
