"""The paper's locality batches in a training loop of one's own, here of plain NumPy."""

from itertools import islice

import numpy as np

from sigmax import LocalitySampler

rng = np.random.default_rng(0)
x = rng.uniform(0, 10, 2000)
y = x * np.sin(x) + (0.3 + 0.3 * x) * rng.normal(size=2000)  # the noise grows with x
bumps = np.linspace(0, 10, 21)


def features(x):
    return np.exp(-0.5 * (x[:, None] - bumps) ** 2 / 0.5**2)


sampler = LocalitySampler(n_primary=3, n_secondary=40, n_neighbors=50, random_state=0)
sampler.fit(x[:, None])

# An honest mean first, by ridge regression; then the log-variance, by gradient steps.
A = features(x)
mean = A @ np.linalg.solve(A.T @ A + 1e-2 * np.eye(len(bumps)), A.T @ y)
residual = y - mean
log_variance = np.zeros(len(bumps) + 1)
B = np.column_stack([A, np.ones(2000)])
for indices, weights in islice(sampler, 4000):  # the sampler never ends by itself
    square = residual[indices] ** 2 * np.exp(-B[indices] @ log_variance)
    gradient = 0.5 * B[indices].T @ (weights * (1 - square)) / len(x)  # never over the batch size
    log_variance -= 0.2 * gradient

seen = np.zeros(2000)
for indices, weights in islice(sampler, 4000):
    np.add.at(seen, indices, weights)
print(f"mean weight of a row over 4000 batches: {np.mean(seen / 4000):.2f}")
for place in (2.0, 5.0, 8.0):
    B_place = np.append(features(np.array([place]))[0], 1.0)
    std = np.exp(0.5 * B_place @ log_variance)
    print(f"std at x = {place:.0f}: learned {std:.1f}, true {0.3 + 0.3 * place:.1f}")
