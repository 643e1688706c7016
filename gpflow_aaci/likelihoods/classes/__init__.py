"""Likelihoods of labels: two classes, or several."""
