"""Generative models: densities of whole rows, to score rows with and to draw new ones from."""

from sigmax.generative.vae import VAE, CombVAE, fit_together

__all__ = ["VAE", "CombVAE", "fit_together"]
