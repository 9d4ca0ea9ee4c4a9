"""Locality batches in a PyTorch data loader, and predictions as PyTorch's distributions."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from sigmax import CombinedRegressor, LocalitySampler
from sigmax.integrations.torch import locality_loader, to_torch

rng = np.random.default_rng(0)
X = rng.uniform(0, 10, (400, 1))
y = 3 * X[:, 0] + (0.3 + 0.3 * X[:, 0]) * rng.normal(size=400)
rows = TensorDataset(torch.tensor(X).float(), torch.tensor(y).float())

torch.manual_seed(0)
mean, log_variance = nn.Linear(1, 1), nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam([*mean.parameters(), *log_variance.parameters()], lr=2e-2)

sampler = LocalitySampler(n_primary=4, n_secondary=16, n_neighbors=20, random_state=0).fit(X)
loader = locality_loader(rows, sampler)
for _ in range(80):
    for x, target, weight in loader:
        square = (target - mean(x)[:, 0]) ** 2
        log_v = log_variance(x)[:, 0]
        loss = 0.5 * (log_v + square * torch.exp(-log_v))
        loss = (weight * loss).sum() / len(rows)  # by the number of rows, never the batch size
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
for place in (2.0, 8.0):
    std = torch.exp(0.5 * log_variance(torch.tensor([[place]]))).item()
    print(f"std at x = {place:.0f}: learned {std:.1f}, true {0.3 + 0.3 * place:.1f}")

model = CombinedRegressor(preset="fast", n_steps=500, random_state=0).fit(X, y)
dist = to_torch(model.predict_dist(X))  # MixtureSameFamily of StudentT
difference = dist.log_prob(torch.tensor(y)) - torch.tensor(model.predict_dist(X).log_prob(y))
print(f"{type(dist).__name__}, log-likelihood {dist.log_prob(torch.tensor(y)).mean():.2f},")
print("the same as ours:", bool(difference.abs().max() < 1e-5))
