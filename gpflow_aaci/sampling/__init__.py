"""
The exact posterior by Gibbs sampling, as ArviZ's ``InferenceData``.

``conditionals`` has the conditional laws of f and u given ω, and ``gibbs`` draws ω and them in
turn. ``chains`` says what a sampler is and runs chains in one batch, ``latents`` has the prior of f
or u of any GPflow model, and ``posterior`` hands the draws to ArviZ. Further samplers are in
:mod:`~gpflow_aaci.contrib`.
"""

from .chains import Sampler
from .gibbs import Gibbs, GibbsKernel, SparseGibbsKernel
from .posterior import sample_posterior

__all__ = ["Gibbs", "GibbsKernel", "Sampler", "SparseGibbsKernel", "sample_posterior"]
