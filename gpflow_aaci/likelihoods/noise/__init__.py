"""Likelihoods of additive noise: y = f + noise, where h² is a squared residual."""
