"""A Lightning trainer on locality batches: a mean-variance network."""

import logging
import warnings

import lightning
import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from sigmax import LocalitySampler
from sigmax.integrations.torch import locality_loader

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
warnings.filterwarnings("ignore", ".*does not have many workers")
rng = np.random.default_rng(0)
X = rng.uniform(0, 10, (400, 1))
y = 3 * X[:, 0] + (0.3 + 0.3 * X[:, 0]) * rng.normal(size=400)
rows = TensorDataset(torch.tensor(X).float(), torch.tensor(y).float())


class MeanVariance(lightning.LightningModule):
    def __init__(self, n_rows):
        super().__init__()
        self.n_rows, self.mean = n_rows, nn.Linear(1, 1)
        self.log_variance = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))

    def training_step(self, batch):
        x, y, weight = batch
        log_v = self.log_variance(x)[:, 0]
        loss = 0.5 * (log_v + (y - self.mean(x)[:, 0]) ** 2 * torch.exp(-log_v))
        return (weight * loss).sum() / self.n_rows

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-2)


lightning.seed_everything(0, verbose=False)
sampler = LocalitySampler(n_primary=4, n_secondary=16, n_neighbors=20, random_state=0).fit(X)
trainer = lightning.Trainer(
    max_epochs=80,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    use_distributed_sampler=False,  # the batches are drawn by us
)
network = MeanVariance(len(rows))
trainer.fit(network, locality_loader(rows, sampler))
for place in (2.0, 8.0):
    std = torch.exp(0.5 * network.log_variance(torch.tensor([[place]]))).item()
    print(f"std at x = {place:.0f}: learned {std:.1f}, true {0.3 + 0.3 * place:.1f}")
