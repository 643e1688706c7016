"""Likelihoods made of others, or of a kernel."""
