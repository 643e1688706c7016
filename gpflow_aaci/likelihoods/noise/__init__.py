"""Laws of an additive noise: y = f + noise, with h² a squared residual."""

from .generalized_gaussian import GeneralizedGaussian
from .laplace import AsymmetricLaplace, Laplace
from .matern import Matern, Matern32, Matern52
from .residual import Gaussian, LogisticNoise, ResidualLikelihood
from .student_t import Cauchy, MultivariateStudentT, StudentT

__all__ = [
    "AsymmetricLaplace",
    "Cauchy",
    "Gaussian",
    "GeneralizedGaussian",
    "Laplace",
    "LogisticNoise",
    "Matern",
    "Matern32",
    "Matern52",
    "MultivariateStudentT",
    "ResidualLikelihood",
    "StudentT",
]
