"""
Likelihoods that few models need, with the integrals and the laws of ω that they alone have.

``NoiseMixture`` and ``NoiseProduct``: mixtures and products of noise distributions.
``KernelNoise``: noise whose density is a stationary kernel (AACI Sec. 3.4).
``MultinomialProbit``: several classes, whose bound is loose for more than four of them.
"""

from .argmax_normal import ArgmaxNormal
from .kernel_noise import KernelNoise
from .mixtures import NoiseMixture, NoiseProduct
from .multinomial_probit import MultinomialProbit

__all__ = ["ArgmaxNormal", "KernelNoise", "MultinomialProbit", "NoiseMixture", "NoiseProduct"]
