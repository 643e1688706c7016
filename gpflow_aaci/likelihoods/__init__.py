"""Likelihoods with an augmentation; a super-Gaussian one states only AACI Eq. 4-5."""

from . import warps
from .base import AugmentedLikelihood
from .classification import BayesianSVM, BinaryLikelihood, Logistic, Probit
from .conversion import augmented
from .counts import Binomial, NegativeBinomial, Poisson
from .heteroscedastic import HeteroscedasticGaussian
from .multiclass import LogisticSoftmax
from .regression import Gaussian, Laplace, Matern32, Matern52, ResidualLikelihood, StudentT
from .super_gaussian import SuperGaussianLikelihood
from .switched import Switched
from .tilted import TiltedLikelihood
from .transformed import Scaled, TransformedLikelihood, Warped

__all__ = [
    "AugmentedLikelihood",
    "BayesianSVM",
    "BinaryLikelihood",
    "Binomial",
    "Gaussian",
    "HeteroscedasticGaussian",
    "Laplace",
    "Logistic",
    "LogisticSoftmax",
    "Matern32",
    "Matern52",
    "NegativeBinomial",
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
