"""
Automated augmented conjugate inference for GPflow.

Every route is the same pass over the data, at a whitened q(v) = N(m, S):

1. ``models``: the prior of u and of f at some rows, K_ZZ, K_ZX, k_ii and μ₀.
2. ``algebra.projection``: A = chol⁻¹K_ZX, and so the marginals (m_i, v_i) of f.
3. ``algebra.terms``: what a datum is worth there, e(m_i, v_i, y_i), and its two slopes.
4. ``algebra.statistics``: the sums E, a = ∂E/∂m and B = ∂E/∂S. Batches, chunks: sums add.
5. ``algebra.gaussian``: naturals ← (1 − s)·naturals + s·(a − 2Bm, I − 2B).

With the augmented e that is the closed-form step, with the standard one a Newton step.

====================================  ============================================================
``likelihoods``, ``distributions``    log φ and what follows from it; the laws of ω
``augmentation``                      the auxiliary-variable verbs, one line each
``data``                              arrays, frames, datasets: in passes and in minibatches
``inference.optimizers``              steps on q; ``inference.alternating`` with Adam's on the rest
``inference.training``                ``train``, which runs them
``inference.newton``                  q at its best; ``inference.profile``: the ELBO there
``inference.climb``                   its ascent in the hyperparameters, on ever more rows
``inference.fitting``                 ``fit_collapsed`` and ``polish``, which run these
``inference.front_door``              ``fit``, which chooses; ``inference.advice``: what it warns of
``inference.compiled``                functions compiled once for all models of one ``structure``
``inference.updating``                ``update``: new rows, q in the place of the prior
``workers``                           sums over the rows of several machines
``sampling``                          the exact sampler; ``priors`` on inducing points
``predictions``                       of f and y from its draws; the law of y, from q too
``criticism``                         leave-one-out, calibration; ``plots`` draws it and the fit
``sklearn``                           estimators for scikit-learn; imported by itself
``testing``                           ``check_likelihood``, for likelihoods of one's own
====================================  ============================================================
"""

from . import augmentation, data, distributions, likelihoods, monitor, predictions, priors
from .criticism.loo import loo
from .diagnostics import importance_weights, psis_khat
from .distributions import GeneralizedInverseGaussian, PolyaGamma, TiltedDistribution
from .inducing import kmeans_plusplus
from .inference.alternating import AlternatingOptimizer
from .inference.fitting import FitProgress, FitResult, PolishResult, fit_collapsed, polish
from .inference.front_door import Fit, fit
from .inference.optimizers import AugmentedNaturalGradient
from .inference.schedules import AdaptiveStepSize, RobbinsMonro
from .inference.stopping import EarlyStopping
from .inference.training import train
from .inference.updating import UpdateResult, update
from .models import AugmentedSVGP, AugmentedVGP, MixtureVGP
from .plots import plot_calibration, plot_fit
from .sampling.elliptical import EllipticalSliceKernel, HamiltonianKernel
from .sampling.gibbs import GibbsKernel, SparseGibbsKernel
from .sampling.posterior import sample_posterior
from .sampling.sghmc import SGHMC
from .testing import check_likelihood

__version__ = "0.1.0"

__all__ = [
    "SGHMC",
    "AdaptiveStepSize",
    "AlternatingOptimizer",
    "AugmentedNaturalGradient",
    "AugmentedSVGP",
    "AugmentedVGP",
    "EarlyStopping",
    "EllipticalSliceKernel",
    "Fit",
    "FitProgress",
    "FitResult",
    "GeneralizedInverseGaussian",
    "GibbsKernel",
    "HamiltonianKernel",
    "MixtureVGP",
    "PolishResult",
    "PolyaGamma",
    "RobbinsMonro",
    "SparseGibbsKernel",
    "TiltedDistribution",
    "UpdateResult",
    "augmentation",
    "check_likelihood",
    "data",
    "distributions",
    "fit",
    "fit_collapsed",
    "importance_weights",
    "kmeans_plusplus",
    "likelihoods",
    "loo",
    "monitor",
    "plot_calibration",
    "plot_fit",
    "polish",
    "predictions",
    "priors",
    "psis_khat",
    "sample_posterior",
    "train",
    "update",
]
