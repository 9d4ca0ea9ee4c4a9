"""Which rows to measure next: chosen by the model's uncertainty, or at random."""

import numpy as np

from sigmax import GPRegressor, LocalRegressor
from sigmax.active_learning import active_learning_rounds, choose, expected_gain

rng = np.random.default_rng(0)
X = rng.normal(0, 1, (300, 2))
y = np.sin(2 * X[:, 0]) * X[:, 1] + rng.normal(0, 0.1, 300)
labelled, pool, test = np.arange(15), np.arange(15, 200), np.arange(200, 300)

model = GPRegressor(average=False, random_state=0).fit(X[labelled], y[labelled])
wanted = choose(model, X[pool], 3, diversity=0.5)
print("measure next:", *np.round(X[pool][wanted], 1).tolist())

for acquisition in ("variance", "random"):
    rounds = active_learning_rounds(
        GPRegressor(average=False, random_state=0),
        X,
        y,
        labelled=labelled,
        pool=pool,
        n_rounds=5,
        n_per_round=8,
        acquisition=acquisition,
        diversity=0.5 if acquisition == "variance" else 0,
        random_state=0,
    )
    *_, last = rounds
    error = np.sqrt(np.mean((last.model.predict(X[test]) - y[test]) ** 2))
    print(f"{acquisition:<8} with {len(last.labelled)} labels: RMSE {error:.2f}")

# A batch for one trip: rows that tell different things, within what the trip may cost.
members = LocalRegressor("fast", random_state=0).fit(X[:60], y[:60])
X_pool, cost = X[60:200], np.where(X[60:200, 0] > 0, 1.0, 2.0)
batch = choose(members, X_pool, 20, acquisition="joint-information", cost=cost, budget=12)
spent, gain = cost[batch].sum(), expected_gain(members, X_pool, batch)
print(f"a batch within a budget of 12: {'kept' if spent <= 12 else 'missed'}")
print(f"expected to lower the pool's mean variance by a share of {gain:.2f}")
