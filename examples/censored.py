"""Censored targets: tests that ended before the part failed, and a gauge that ends at a limit."""

import numpy as np

from sigmax import SigmaxRegressor
from sigmax.metrics import censored_log_likelihood

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (4300, 1))  # load of parts
hours = np.exp(3 - X[:, 0] + 0.4 * rng.normal(size=4300))
end = rng.uniform(5, 40, 4300)  # hours after which each test was ended
y, censoring = np.minimum(hours, end), np.where(hours > end, "above", "no")
new = slice(300, None)
print(f"{np.mean(censoring[:300] == 'above'):.0%} of the tests ended before the part failed")

usual = SigmaxRegressor("quick", random_state=0).fit(X[:300], y[:300])
model = SigmaxRegressor("quick", random_state=0).fit(X[:300], y[:300], censoring=censoring[:300])

for name, one in (("ends as failures", usual), ("ends as lower bounds", model)):
    dist = one.predict_dist(X[new])
    lower, upper = dist.interval(0.9).T
    held = np.mean((lower <= hours[new]) & (hours[new] <= upper))
    likelihood = censored_log_likelihood(y[new], dist, censoring[new])
    beyond = dist.sf(50.0).mean()
    print(f"{name:20}  90 % intervals hold {held:.1%}, log-likelihood {likelihood:.2f}, ", end="")
    print(f"more than 50 hours: {beyond:.1%} (true: {np.mean(hours[new] > 50):.1%})")

low, high = np.floor(hours / 10) * 10, np.floor(hours / 10) * 10 + 10  # inspected every 10 hours
bounds = low[:300], high[:300]
bounds[0][:30] = bounds[1][:30] = hours[:30]  # some failures were seen
middle = (bounds[0] + bounds[1]) / 2
inspected = SigmaxRegressor("quick", random_state=0).fit(X[:300], middle, censoring=bounds)
lower, upper = inspected.predict_interval(X[new], 0.9).T
held = np.mean((lower <= hours[new]) & (hours[new] <= upper))
print(f"inspected every 10 hours: 90 % intervals hold {held:.1%}")
