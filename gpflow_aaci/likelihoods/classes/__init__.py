"""Likelihoods for class labels: two classes, or several."""
