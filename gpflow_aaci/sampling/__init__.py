"""
The exact posterior by Gibbs sampling, as ArviZ's ``InferenceData``.

``conditionals`` has the distributions of f and u given ω; ``gibbs`` draws ω, f and u in turn from
their conditionals. ``chains`` defines what a sampler is and runs chains in one batch. ``latents``
has the prior of f or u for any GPflow model. ``posterior`` passes the draws to ArviZ. More samplers
are in :mod:`~gpflow_aaci.contrib`.
"""

from .chains import Sampler
from .gibbs import Gibbs, GibbsKernel, SparseGibbsKernel
from .posterior import sample_posterior

__all__ = ["Gibbs", "GibbsKernel", "Sampler", "SparseGibbsKernel", "sample_posterior"]
