"""
Additions to the core of the package: other approximations and other samplers.

``MixtureVGP``: q(f) is a mixture of Gaussians, for posteriors with several modes.
``GaussianProcessRegressionNetwork``: a likelihood with several outputs, for ``MixtureVGP``.
``DeepGP``: sparse GPs in layers, which ``SGHMC`` samples.

Samplers for :func:`~gpflow_aaci.sample_posterior`: ``HyperparameterGibbs`` and
``HyperparameterHMC`` draw hyperparameters and inducing points, too. ``HyperparameterHMC``,
``EllipticalSlices`` and ``HMC`` need no augmentation, so they accept GPflow's own models and
likelihoods. ``SGHMC`` uses minibatches. ``EllipticalSliceKernel``, ``HamiltonianKernel`` and
``SGHMCKernel`` are kernels of ``tfp.mcmc``.

``likelihoods``: mixtures and products of noise, noise from a kernel, and multinomial probit.

``Determinantal`` and ``Strauss`` (:mod:`~gpflow_aaci.contrib.priors`): priors on inducing points.

The modules here import the core; the core does not import them.
"""

from . import likelihoods
from .deep_gp import DeepGP
from .elliptical_slices import EllipticalSliceKernel, EllipticalSlices
from .hmc import HMC, HamiltonianKernel
from .hyperparameter_gibbs import HyperparameterGibbs
from .hyperparameter_hmc import HyperparameterHMC
from .mixture_vgp import MixtureVGP
from .priors import Determinantal, Strauss
from .regression_network import GaussianProcessRegressionNetwork
from .sghmc import SGHMC
from .sghmc_kernel import SGHMCKernel

__all__ = [
    "HMC",
    "SGHMC",
    "DeepGP",
    "Determinantal",
    "EllipticalSliceKernel",
    "EllipticalSlices",
    "GaussianProcessRegressionNetwork",
    "HamiltonianKernel",
    "HyperparameterGibbs",
    "HyperparameterHMC",
    "MixtureVGP",
    "SGHMCKernel",
    "Strauss",
    "likelihoods",
]
