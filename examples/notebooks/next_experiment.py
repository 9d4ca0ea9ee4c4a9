# %% [markdown]
# # Choosing the next experiment
#
# Every measurement costs something. A model that knows where it is uncertain can suggest which one
# to make next.

# %%
import matplotlib.pyplot as plt
import numpy as np

from sigmax import GPRegressor
from sigmax.active_learning import choose

rng = np.random.default_rng(0)
X = np.linspace(0, 10, 201)[:, None]


def measure(x):
    """An experiment: its result is costly, and a little noisy."""
    return np.sin(x[:, 0]) + 2 * np.exp(-((x[:, 0] - 7) ** 2)) + rng.normal(0, 0.05, len(x))


# %% [markdown]
# We begin with five experiments on the left side.


# %%
def fit(x, y):
    return GPRegressor(average=False, random_state=0).fit(x, y)


def draw(axes, x, y, title):
    model = fit(x, y)
    lower, upper = model.predict_interval(X, coverage=0.9).T
    axes.fill_between(X[:, 0], lower, upper, color="#9ec3ea")
    axes.plot(X, model.predict(X), color="#1f5fa8")
    axes.plot(x, y, "o", color="black", ms=4)
    axes.set(xlabel="x", title=title, ylim=(-3, 4))


x = X[[0, 10, 25, 40, 60]]
y = measure(x)
figure, axes = plt.subplots(figsize=(7, 3))
draw(axes, x, y, "5 experiments")
plt.show()

# %% [markdown]
# `choose` returns the rows of a pool with the largest predicted variance. We measure the best one
# and fit again, eight times.

# %%
panels = []
for _ in range(8):
    chosen = choose(fit(x, y), X, 1)
    x, y = np.concatenate([x, X[chosen]]), np.concatenate([y, measure(X[chosen])])
    panels.append((x, y))
print("measured, in this order:", *np.round(x[5:, 0], 2).tolist())

# %%
figure, grid = plt.subplots(1, 3, figsize=(10, 3), sharey=True, layout="constrained")
for axes, (x, y) in zip(grid, (panels[0], panels[3], panels[7]), strict=True):
    draw(axes, x, y, f"{len(x)} experiments")
plt.show()

# %% [markdown]
# Compared with eight random experiments, over five repetitions:

# %%
truth = np.sin(X[:, 0]) + 2 * np.exp(-((X[:, 0] - 7) ** 2))
errors = []
for _ in range(5):
    x_random = np.concatenate([X[[0, 10, 25, 40, 60]], X[rng.choice(201, 8, replace=False)]])
    errors.append(np.sqrt(np.mean((fit(x_random, measure(x_random)).predict(X) - truth) ** 2)))
rmse = np.sqrt(np.mean((fit(x, y).predict(X) - truth) ** 2))
print(f"RMSE with chosen experiments {rmse:.2f}, with random ones {np.mean(errors):.2f}")
