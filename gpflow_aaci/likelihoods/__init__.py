"""Likelihoods with an augmentation; a super-Gaussian one states only AACI Eq. 4-5."""

from . import warps
from .base import AugmentedLikelihood
from .classes import BayesianSVM, BinaryLikelihood, Logistic, LogisticSoftmax, Probit
from .composed import (
    KernelNoise,
    NoiseMixture,
    NoiseProduct,
    Scaled,
    Switched,
    TransformedLikelihood,
    Warped,
)
from .conversion import augmented
from .counts import Binomial, NegativeBinomial, Poisson
from .heteroscedastic import HeteroscedasticGaussian
from .noise import (
    AsymmetricLaplace,
    Cauchy,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    LogisticNoise,
    Matern,
    Matern32,
    Matern52,
    MultivariateStudentT,
    ResidualLikelihood,
    StudentT,
)
from .super_gaussian import SuperGaussianLikelihood

__all__ = [
    "AsymmetricLaplace",
    "AugmentedLikelihood",
    "BayesianSVM",
    "BinaryLikelihood",
    "Binomial",
    "Cauchy",
    "Gaussian",
    "GeneralizedGaussian",
    "HeteroscedasticGaussian",
    "KernelNoise",
    "Laplace",
    "Logistic",
    "LogisticNoise",
    "LogisticSoftmax",
    "Matern",
    "Matern32",
    "Matern52",
    "MultivariateStudentT",
    "NegativeBinomial",
    "NoiseMixture",
    "NoiseProduct",
    "Poisson",
    "Probit",
    "ResidualLikelihood",
    "Scaled",
    "StudentT",
    "SuperGaussianLikelihood",
    "Switched",
    "TransformedLikelihood",
    "Warped",
    "augmented",
    "warps",
]
