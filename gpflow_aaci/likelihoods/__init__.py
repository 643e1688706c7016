"""Likelihoods with an augmentation; a super-Gaussian one states only AACI Eq. 4-5."""

from . import warps
from .base import AugmentedLikelihood
from .classification import BayesianSVM, BinaryLikelihood, Logistic, Probit
from .closure import NoiseMixture, NoiseProduct
from .conversion import augmented
from .counts import Binomial, NegativeBinomial
from .from_kernel import KernelNoise
from .generalized_gaussian import GeneralizedGaussian
from .heteroscedastic import HeteroscedasticGaussian
from .matern import Matern, Matern32, Matern52
from .multiclass import LogisticSoftmax
from .multivariate import MultivariateStudentT
from .noise import AsymmetricLaplace, Cauchy, LogisticNoise
from .poisson import Poisson
from .regression import Gaussian, Laplace, ResidualLikelihood, StudentT
from .super_gaussian import SuperGaussianLikelihood
from .switched import Switched
from .tilted import TiltedLikelihood
from .transformed import Scaled, TransformedLikelihood, Warped

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
    "TiltedLikelihood",
    "TransformedLikelihood",
    "Warped",
    "augmented",
    "warps",
]
