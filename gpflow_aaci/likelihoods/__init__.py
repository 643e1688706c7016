"""Likelihoods with an augmentation. A super-Gaussian one defines only AACI Eq. 4-5."""

from . import warps
from .base import AugmentedLikelihood
from .classes.binary import BayesianSVM, BinaryLikelihood, Logistic, Probit
from .classes.ordinal import Ordinal
from .classes.softmax import LogisticSoftmax, Softmax
from .classes.tree import LogisticTree, ward_tree
from .composed.per_datum import Missing, Switched
from .composed.transformed import Scaled, TransformedLikelihood, Warped
from .composed.weighted import Weighted
from .composed.zeros import Hurdle, ZeroInflated, ZeroTruncated
from .conversion import augmented
from .counts import Binomial, NegativeBinomial
from .heteroscedastic import Heteroscedastic
from .interval import Interval
from .noise.generalized_gaussian import GeneralizedGaussian
from .noise.laplace import AsymmetricLaplace, Laplace
from .noise.matern import Matern, Matern32, Matern52
from .noise.residual import Gaussian, LogisticNoise, ResidualLikelihood
from .noise.student_t import Cauchy, MultivariateStudentT, StudentT
from .rates import CoxProcess, Exponential, Gamma, Poisson, Rate, Weibull
from .super_gaussian import SuperGaussianLikelihood
from .unaugmented import Unaugmented

__all__ = [
    "AsymmetricLaplace",
    "AugmentedLikelihood",
    "BayesianSVM",
    "BinaryLikelihood",
    "Binomial",
    "Cauchy",
    "CoxProcess",
    "Exponential",
    "Gamma",
    "Gaussian",
    "GeneralizedGaussian",
    "Heteroscedastic",
    "Hurdle",
    "Interval",
    "Laplace",
    "Logistic",
    "LogisticNoise",
    "LogisticSoftmax",
    "LogisticTree",
    "Matern",
    "Matern32",
    "Matern52",
    "Missing",
    "MultivariateStudentT",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "Probit",
    "Rate",
    "ResidualLikelihood",
    "Scaled",
    "Softmax",
    "StudentT",
    "SuperGaussianLikelihood",
    "Switched",
    "TransformedLikelihood",
    "Unaugmented",
    "Warped",
    "Weibull",
    "Weighted",
    "ZeroInflated",
    "ZeroTruncated",
    "augmented",
    "ward_tree",
    "warps",
]
