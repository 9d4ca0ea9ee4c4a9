"""Where to measure next: Bayesian optimisation by BoTorch, with our model of the measurements."""

import torch
from botorch.acquisition import qLogNoisyExpectedImprovement
from botorch.optim import optimize_acqf

from sigmax.integrations.botorch import fit_sigmax_model

torch.manual_seed(0)
bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)
search = {"num_restarts": 2, "raw_samples": 32, "options": {"maxiter": 20}}


def measure(X):
    """A hill at (0.3, 0.7), with noise that grows to the right."""
    height = torch.exp(-4 * ((X - torch.tensor([0.3, 0.7])) ** 2).sum(dim=-1, keepdim=True))
    return height + 0.2 * X[:, :1] * torch.randn(len(X), 1, dtype=X.dtype)


X = torch.quasirandom.SobolEngine(2, scramble=True, seed=0).draw(10, dtype=torch.double)
Y = measure(X)

for _ in range(4):
    model = fit_sigmax_model(X, Y, random_state=0)
    improvement = qLogNoisyExpectedImprovement(model, X)
    x, _ = optimize_acqf(improvement, bounds, q=1, **search)
    X, Y = torch.cat([X, x]), torch.cat([Y, measure(x)])

model = fit_sigmax_model(X, Y, random_state=0)
posterior = model.posterior(X)
best = posterior.mean.argmax()
print(f"{len(X)} measurements, the best mean at ({X[best, 0]:.1f}, {X[best, 1]:.1f})")
print(f"expected there: {posterior.mean[best, 0]:.1f} ± {posterior.variance[best, 0] ** 0.5:.1f}")

more = model.condition_on_observations(X[best][None], torch.tensor([[0.9]]).double())  # no fit
narrower = more.posterior(X[best][None]).variance < posterior.variance[best]
print("another measurement there would make it surer:", bool(narrower))
