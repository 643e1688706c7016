"""Likelihoods made of others, or of a kernel."""

from .kernel_noise import KernelNoise
from .mixtures import NoiseMixture, NoiseProduct
from .switched import Switched
from .transformed import Scaled, TransformedLikelihood, Warped

__all__ = [
    "KernelNoise",
    "NoiseMixture",
    "NoiseProduct",
    "Scaled",
    "Switched",
    "TransformedLikelihood",
    "Warped",
]
