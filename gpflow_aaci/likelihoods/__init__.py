"""Likelihoods with an augmentation, each stating only AACI Eq. 4-5."""

from .base import SuperGaussianLikelihood
from .classification import BayesianSVM, BinaryLikelihood, Logistic
from .conversion import augmented
from .regression import Gaussian, Laplace, Matern32, Matern52, ResidualLikelihood, StudentT

__all__ = [
    "BayesianSVM",
    "BinaryLikelihood",
    "Gaussian",
    "Laplace",
    "Logistic",
    "Matern32",
    "Matern52",
    "ResidualLikelihood",
    "StudentT",
    "SuperGaussianLikelihood",
    "augmented",
]
