# %% [markdown]
# # The paper's toy problem
#
# $y = x \sin x + 0.3 \epsilon_1 + 0.3 x \epsilon_2$: the noise grows with x. There are 500 training
# rows between 0 and 10. What does a model predict between the rows, and what outside?

# %%
import matplotlib.pyplot as plt
import numpy as np

from sigmax import CombinedRegressor, MeanVarianceRegressor, SigmaxRegressor
from sigmax.data import ToyProblem

toy = ToyProblem()
X, y = toy.sample(500, random_state=0)
X_new, y_new = toy.sample(2000, random_state=1)

# %% [markdown]
# - **A mean-variance network** is the baseline: one network for the mean, one for the variance.
# - **Combined** is the paper's method: locality sampler, mean-variance split, inverse-Gamma
#   variance and extrapolation.
# - **The stack**, `SigmaxRegressor("quick")`, is the default of sigmax without networks.

# %%
models = {
    "mean-variance network": MeanVarianceRegressor("fast", random_state=0),
    "Combined": CombinedRegressor("fast", random_state=0),
    "stack": SigmaxRegressor("quick", random_state=0),
}
for model in models.values():
    model.fit(X, y)

# %%
x = np.linspace(-4, 14, 181)
figure, grid = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True, layout="constrained")
for axes, (name, model) in zip(grid, models.items(), strict=True):
    mean, std = model.predict(x[:, None], return_std=True)
    axes.fill_between(x, mean - 2 * std, mean + 2 * std, color="#9ec3ea")
    axes.plot(x, mean, color="#1f5fa8")
    axes.plot(X, y, ".", ms=2, color="black", alpha=0.4)
    axes.set(title=name, xlabel="x", ylim=(-25, 25))
plt.show()

# %% [markdown]
# Between 0 and 10 the three agree. Left of 0 the network is overconfident; Combined and the stack
# widen to the spread of all targets.
#
# ## Scores on 2,000 new rows

# %%
best = toy.log_prob(X_new[:, 0], y_new).mean()
print(f"log-likelihood of the true distribution: {best:.2f}")
for name, model in models.items():
    dist = model.predict_dist(X_new)
    lower, upper = dist.interval(0.9).T
    inside = np.mean((lower <= y_new) & (y_new <= upper))
    _, std = model.predict([[-4.0]], return_std=True)
    print(f"{name}: log-likelihood {dist.log_prob(y_new).mean():.2f},", end=" ")
    print(f"coverage of 90 % intervals {inside:.0%}, std at x = -4: {std[0]:.1f}")
print(f"std of y: {y.std():.1f}")
