"""Quadrature rules for Gaussian expectations, normalisers and cdfs."""
