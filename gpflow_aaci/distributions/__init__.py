"""Distributions of the auxiliary variable ω."""

from . import divergences as divergences
from .generalized_inverse_gaussian import GeneralizedInverseGaussian
from .interval_normal import IntervalNormal
from .inverse_gaussian import InverseGaussian
from .polya_gamma import PolyaGamma
from .positive_normal import PositiveNormal
from .tilted import TiltedDistribution

__all__ = [
    "GeneralizedInverseGaussian",
    "IntervalNormal",
    "InverseGaussian",
    "PolyaGamma",
    "PositiveNormal",
    "TiltedDistribution",
]
