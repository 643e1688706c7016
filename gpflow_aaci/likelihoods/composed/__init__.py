"""Likelihoods that are built from other likelihoods, or from a kernel."""
