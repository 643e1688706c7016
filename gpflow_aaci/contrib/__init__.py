"""
What is not the core of the package: other approximations and other samplers.

``MixtureVGP``: a q(f) of several Gaussians, for posteriors of several modes.
``GaussianProcessRegressionNetwork``: a likelihood of several outputs for it.
``DeepGP``: sparse GPs in layers, which ``SGHMC`` samples.

Samplers for :func:`~gpflow_aaci.sample_posterior`: ``HyperparameterGibbs`` and
``HyperparameterHMC`` draw hyperparameters and inducing points besides; ``HyperparameterHMC``,
``EllipticalSlices`` and ``HMC`` need no augmentation, so they take GPflow's own models and
likelihoods; ``SGHMC`` goes by minibatches. ``EllipticalSliceKernel``, ``HamiltonianKernel`` and
``SGHMCKernel`` are kernels of ``tfp.mcmc``.

``Determinantal`` and ``Strauss`` (:mod:`~gpflow_aaci.contrib.priors`): priors on inducing points.

The modules here import the core, which imports none of them.
"""

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
]
