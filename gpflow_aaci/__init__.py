"""Automated augmented conjugate inference for GPflow."""

from . import augmentation, distributions, likelihoods
from .distributions import GeneralizedInverseGaussian, PolyaGamma, TiltedDistribution
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
    "GeneralizedInverseGaussian",
    "PolishResult",
    "PolyaGamma",
    "TiltedDistribution",
    "augmentation",
    "check_likelihood",
    "distributions",
    "fit_collapsed",
    "likelihoods",
    "polish",
]
