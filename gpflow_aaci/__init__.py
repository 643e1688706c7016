"""Automated augmented conjugate inference for GPflow."""

from . import augmentation, likelihoods
from .fitting import FitProgress, FitResult, PolishResult, fit_collapsed, polish
from .models import AugmentedSVGP, AugmentedVGP
from .optimizers import AugmentedNaturalGradient
from .testing import check_likelihood

__version__ = "0.1.0"

__all__ = [
    "AugmentedNaturalGradient",
    "AugmentedSVGP",
    "AugmentedVGP",
    "FitProgress",
    "FitResult",
    "PolishResult",
    "augmentation",
    "check_likelihood",
    "fit_collapsed",
    "likelihoods",
    "polish",
]
