"""Distributions of the auxiliary variable ω."""

from .polya_gamma import PolyaGamma
from .tilted import TiltedDistribution

__all__ = ["PolyaGamma", "TiltedDistribution"]
