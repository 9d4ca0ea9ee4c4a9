"""An alarm for rows that are out of distribution."""

import numpy as np

from sigmax import LocalRegressor

rng = np.random.default_rng(0)
X = rng.normal(0, 1, (500, 2))
y = np.sin(2 * X[:, 0]) + X[:, 1] + rng.normal(0, 0.2, 500)
model = LocalRegressor("fast", random_state=0).fit(X, y)

THRESHOLD = 0.5  # half way between the training rows and out of distribution
ALARM = 0.05  # of the rows of a batch

monday = rng.normal(0, 1, (200, 2))  # as before
friday = monday + np.array([0.0, 6.0])  # one sensor was replaced and reads six units more
for name, batch in {"Monday": monday, "Friday": friday}.items():
    parts = model.predict_uncertainty(batch)
    share, evidence = np.mean(parts["gate"] > THRESHOLD), np.median(parts["evidence"])
    state = "ALARM" if share > ALARM else "fine"
    print(f"{name}: {share:.0%} out of distribution, {state}")
    print(f"    median evidence about {round(evidence, -1):.0f} rows")
    print(f"    median std {np.median(parts['total']):.1f}, that of y {y.std():.1f}")
