"""
Automated augmented conjugate inference for GPflow.

All methods make the same pass over the data, at a whitened q(v) = N(m, S):

1. ``models``: the prior of u and of f at some rows, K_ZZ, K_ZX, k_ii and μ₀.
2. ``algebra.projection``: A = chol⁻¹K_ZX, and from it the marginals (m_i, v_i) of f.
3. ``algebra.terms``: the term e(m_i, v_i, y_i) of each datum in the bound, and its two slopes.
4. ``algebra.statistics``: the sums E, a = ∂E/∂m and B = ∂E/∂S, over chunks or batches of rows.
5. ``algebra.gaussian``: naturals ← (1 − s)·naturals + s·(a − 2Bm, I − 2B).

With the augmented e, step 5 is the closed-form update; with the standard e, it is a Newton step.

====================================  ============================================================
``likelihoods``, ``distributions``    log φ and what follows from it; the laws of ω
``kernels``                           differences, derivatives, additive models, columns of words
``shapes``                            monotone and convex f
``augmentation``                      functions of the auxiliary variables, one line each
``data``                              arrays, frames, datasets: in passes and in minibatches
``inference.optimizers``              steps on q; ``inference.alternating`` with Adam's on the rest
``inference.training``                ``train``, which runs them
``inference.newton``                  the optimal q; ``inference.profile``: the ELBO at it
``inference.hyperparameter_search``   quasi-Newton ascent in the hyperparameters, on ever more rows
``inference.collapsed``               ``fit_collapsed`` and ``polish``, which run these
``inference.fit``                     ``fit``, which chooses; ``inference.advice``: its warnings
``compiled``                          functions compiled once for all models of one ``structure``
``inference.updating``                ``update``: new rows, with the old q as prior
``inducing``                          rows of X as inducing points
``nearest``                           ``AugmentedNNGP``, which predicts from the nearest rows
``workers``                           sums over the rows of several machines
``sampling``                          ``sample_posterior`` and the exact Gibbs samplers
``predictions``                       f, its parts and y, from q or from these draws
``criticism``, ``diagnostics``        leave-one-out, shares, PSIS; ``plots`` draws the fit
``contrib``                           mixtures, other samplers, priors on inducing points
``saving``                            a model in a folder, with GPflow and without
``sklearn``                           estimators for scikit-learn; imported by itself
``testing``                           ``check_likelihood``, for likelihoods that you write
====================================  ============================================================

The names below are what most programs need. Options and results are in the modules that define
them, such as ``gpflow_aaci.inference.EarlyStopping``, ``gpflow_aaci.sampling.Gibbs``,
``gpflow_aaci.plots.plot_fit`` and ``gpflow_aaci.distributions.PolyaGamma``.
"""

import tensorflow as tf

from . import augmentation, contrib, likelihoods, monitor, predictions

# Modules that are loaded, but not among the names of a star import.
from . import criticism as criticism
from . import data as data
from . import diagnostics as diagnostics
from . import distributions as distributions
from . import effects as effects
from . import inference as inference
from . import kernels as kernels
from . import plots as plots
from . import sampling as sampling
from . import saving as saving
from . import shapes as shapes
from .criticism.choose import choose
from .criticism.loo import loo
from .inducing import kmeans_plusplus
from .inference.alternating import AlternatingOptimizer
from .inference.collapsed import fit_collapsed, polish
from .inference.fit import fit
from .inference.optimizers import AugmentedNaturalGradient
from .inference.training import train
from .inference.updating import update
from .models import AugmentedSVGP, AugmentedVGP
from .nearest import AugmentedNNGP
from .sampling.posterior import sample_posterior
from .testing import check_likelihood

__version__ = "0.1.0"

# On GPUs that have it, TensorFlow multiplies float32 matrices with ten bits (TF32) unless told
# otherwise. A covariance matrix loses its positive definiteness by that.
tf.config.experimental.enable_tensor_float_32_execution(False)

__all__ = [
    "AlternatingOptimizer",
    "AugmentedNNGP",
    "AugmentedNaturalGradient",
    "AugmentedSVGP",
    "AugmentedVGP",
    "augmentation",
    "check_likelihood",
    "choose",
    "contrib",
    "fit",
    "fit_collapsed",
    "kmeans_plusplus",
    "likelihoods",
    "loo",
    "monitor",
    "polish",
    "predictions",
    "sample_posterior",
    "train",
    "update",
]
