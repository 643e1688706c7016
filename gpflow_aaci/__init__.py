"""Automated augmented conjugate inference for GPflow."""

from . import augmentation, distributions, likelihoods, monitor, predictions
from .alternating import AlternatingOptimizer
from .diagnostics import importance_weights, psis_khat
from .distributions import GeneralizedInverseGaussian, PolyaGamma, TiltedDistribution
from .fitting import FitProgress, FitResult, PolishResult, fit_collapsed, polish
from .gibbs import GibbsKernel, SparseGibbsKernel
from .inducing import kmeans_plusplus
from .models import AugmentedSVGP, AugmentedVGP
from .optimizers import AugmentedNaturalGradient
from .sampling import sample_posterior
from .schedules import AdaptiveStepSize, RobbinsMonro
from .testing import check_likelihood
from .training import EarlyStopping, train

__version__ = "0.1.0"

__all__ = [
    "AdaptiveStepSize",
    "AlternatingOptimizer",
    "AugmentedNaturalGradient",
    "AugmentedSVGP",
    "AugmentedVGP",
    "EarlyStopping",
    "FitProgress",
    "FitResult",
    "GeneralizedInverseGaussian",
    "GibbsKernel",
    "PolishResult",
    "PolyaGamma",
    "RobbinsMonro",
    "SparseGibbsKernel",
    "TiltedDistribution",
    "augmentation",
    "check_likelihood",
    "distributions",
    "fit_collapsed",
    "importance_weights",
    "kmeans_plusplus",
    "likelihoods",
    "monitor",
    "polish",
    "predictions",
    "psis_khat",
    "sample_posterior",
    "train",
]
