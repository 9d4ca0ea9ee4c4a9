"""Generative models: rows in, a density to draw new rows from out."""

from sigmax.generative.bernoulli import Bernoulli
from sigmax.generative.comb_vae import CombVAE
from sigmax.generative.joint_fit import fit_together
from sigmax.generative.vae import VAE

__all__ = ["VAE", "Bernoulli", "CombVAE", "fit_together"]
