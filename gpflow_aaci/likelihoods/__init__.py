"""Likelihoods with an augmentation; a super-Gaussian one states only AACI Eq. 4-5."""

from .base import AugmentedLikelihood
from .classification import BayesianSVM, BinaryLikelihood, Logistic, Probit
from .closure import NoiseMixture, NoiseProduct
from .conversion import augmented
from .from_kernel import KernelNoise
from .generalized_gaussian import GeneralizedGaussian
from .matern import Matern, Matern32, Matern52
from .noise import AsymmetricLaplace, Cauchy, LogisticNoise
from .regression import Gaussian, Laplace, ResidualLikelihood, StudentT
from .super_gaussian import SuperGaussianLikelihood

__all__ = [
    "AsymmetricLaplace",
    "AugmentedLikelihood",
    "BayesianSVM",
    "BinaryLikelihood",
    "Cauchy",
    "Gaussian",
    "GeneralizedGaussian",
    "KernelNoise",
    "Laplace",
    "Logistic",
    "LogisticNoise",
    "Matern",
    "Matern32",
    "Matern52",
    "NoiseMixture",
    "NoiseProduct",
    "Probit",
    "ResidualLikelihood",
    "StudentT",
    "SuperGaussianLikelihood",
    "augmented",
]
