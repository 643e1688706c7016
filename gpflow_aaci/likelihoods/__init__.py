"""Likelihoods with an augmentation; a super-Gaussian one states only AACI Eq. 4-5."""

from .base import AugmentedLikelihood
from .classification import BayesianSVM, BinaryLikelihood, Logistic, Probit
from .conversion import augmented
from .regression import Gaussian, Laplace, Matern32, Matern52, ResidualLikelihood, StudentT
from .super_gaussian import SuperGaussianLikelihood
from .tilted import TiltedLikelihood

__all__ = [
    "AugmentedLikelihood",
    "BayesianSVM",
    "BinaryLikelihood",
    "Gaussian",
    "Laplace",
    "Logistic",
    "Matern32",
    "Matern52",
    "Probit",
    "ResidualLikelihood",
    "StudentT",
    "SuperGaussianLikelihood",
    "TiltedLikelihood",
    "augmented",
]
