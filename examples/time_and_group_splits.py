"""How good a model looks depends on which rows are held out: at random, by group, by time."""

import numpy as np
from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit

from sigmax import LocalRegressor, metrics

rng = np.random.default_rng(0)
machine = np.repeat(np.arange(20), 30)  # 20 machines, 30 days each
day = np.tile(np.arange(30), 20)
oil = rng.normal(0, 1, 20)[machine] + rng.normal(0, 0.02, 600)  # nearly names the machine
load = rng.uniform(0, 1, 600)
wear = rng.normal(0, 2, 20)[machine]  # a property of the machine that no column has
y = 3 * load + wear + 0.1 * day + rng.normal(0, 0.3, 600)
X = np.column_stack([oil, load])

late = day >= 24
splits = {
    "rows at random": next(ShuffleSplit(1, test_size=0.2, random_state=0).split(X)),
    "whole machines": next(
        GroupShuffleSplit(1, test_size=0.2, random_state=0).split(X, y, machine)
    ),
    "the last six days": (np.flatnonzero(~late), np.flatnonzero(late)),
}
scores = {}
for name, (train, test) in splits.items():
    model = LocalRegressor("fast", n_steps=200, random_state=0).fit(X[train], y[train])
    dist = model.predict_dist(X[test])
    scores[name] = metrics.crps(y[test], dist), metrics.coverage(y[test], dist, level=0.9)
    print("{:<18} CRPS {:.2f}, 90 % intervals hold {:.2f}".format(name, *scores[name]))
