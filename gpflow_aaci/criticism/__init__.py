"""
Model criticism: how well a model predicts unseen or left-out data.

``loo``: leave-one-out densities in closed form. ``elpd``: the ArviZ object that holds them.
``annealed_evidence``: log p(y) between two ends. ``calibration``: PIT values and coverage.
``choose``: inducing points or nearest neighbours. ``sobol``: the shares of columns of X and of
parts of f in what the model has learnt. ``separable``: the exact ones, of sums of products.
``kernel_search``: sums and products of kernels, compared.
"""

from .annealed_evidence import Evidence, evidence
from .kernel_search import KernelComparison, compare_kernels
from .sobol import shares, shares_of_parts

__all__ = [
    "Evidence",
    "KernelComparison",
    "compare_kernels",
    "evidence",
    "shares",
    "shares_of_parts",
]
