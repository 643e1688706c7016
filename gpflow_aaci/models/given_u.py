r"""
Gaussian noise that has the variance of f which u leaves unexplained: FITC, and a bound beside it.

With k̃_i = k_ii − ‖A_i‖², the variance of f_i given u, and Λ_i = σ² + k̃_i, the two objectives are

- FITC's log evidence log N(y | μ₀, Q + diag Λ) (Snelson and Ghahramani 2006), Q = AᵀA;
- the bound of a GP whose noise has the variances Λ_i, log N(y | μ₀, Q + diag Λ) − ½ Σ k̃_i/Λ_i
  (Rossi and others, AISTATS 2021, (14) and (15)).

Λ follows the kernel and Z. Of both objectives the best q(u) is the posterior of u under FITC.
"""

import copy
from typing import Literal, TypeVar, cast, get_args

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ..likelihoods import Gaussian
from ..likelihoods.derived import described, of_base
from ..likelihoods.outputwise import OutputwiseLikelihood
from .posteriors import share_posteriors
from .shared import Augmented

M = TypeVar("M", bound=Augmented)

GivenU = Literal["fitc", "heteroscedastic"]


class _NoiseGivenU(OutputwiseLikelihood):
    """
    Noise of variance Λ_i for training; predictions are of the noise alone, of variance σ².

    E log N(y_i | f_i, Λ_i) has the mean over f_i. In FITC it has the mean over E[f_i|u] alone.
    """

    def __init__(self, model: Augmented, objective: GivenU) -> None:
        """
        :param model: the model of Gaussian noise. Its Parameters are shared.
        """
        super().__init__()
        self.model, self.base, self.objective = model, model.likelihood, objective
        # A fit looks for the scale of the noise under one of these names.
        self.variance, self.scale = self.base.variance, self.base.scale

    def _variances(self, X: TensorType, Fvar: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Λ_i, and the variance of f_i or of E[f_i|u], [N, L]."""
        unexplained = tf.transpose(self.model.project(X).unexplained)
        total = tf.cast(self.base.noise_variance(), Fvar.dtype) + unexplained
        return total, Fvar - unexplained if self.objective == "fitc" else Fvar

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        noise, spread = self._variances(X, Fvar)
        squares = tf.square(Y - Fmu) + spread
        return -0.5 * (tf.math.log(2.0 * np.pi * noise) + squares / noise)

    # The objective is quadratic in f: it is its own augmented bound.
    pointwise_bound = expected_log_prob

    def bound_slopes(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        noise, _ = self._variances(X, Fvar)
        return (Y - Fmu) / noise, -0.5 / noise + tf.zeros_like(Fvar)

    predictive_log_density = _predict_mean_and_var = _predict_cdf = of_base()


def of_objective(model: M, objective: str) -> M:
    """
    The model whose bounds are raised to maximise the objective: ``model``, but for a ``GivenU``.

    :raises ValueError: as :func:`with_noise_given_u`.
    """
    if objective not in get_args(GivenU):
        return model
    return with_noise_given_u(model, cast(GivenU, objective))


def with_noise_given_u(model: M, objective: GivenU) -> M:
    """
    A model that shares all Parameters with ``model``, and has the objective as its two bounds.

    :raises ValueError: for a model without inducing variables, for latent GPs that are mixed, and
        unless the noise is Gaussian and of one variance.
    """
    likelihood, where = model.likelihood, f'where objective is "{objective}"'
    if model.own_data is not None:
        raise ValueError(
            f"model must have inducing variables {where}, since f at the data leaves nothing of "
            f"itself unexplained. Found: {type(model).__name__}."
        )
    if type(likelihood) is not Gaussian or likelihood.given:
        raise ValueError(
            f"likelihood must be Gaussian, with one variance for all data, {where}. "
            f"Found: {described(likelihood)}."
        )
    if model.mixing is not None:
        raise ValueError(
            f"kernel must not mix the latent GPs {where}. Found: {type(model.kernel).__name__}."
        )
    view = copy.copy(model)
    # By ``__dict__``, as TensorFlow would note a new part in both.
    view.__dict__["likelihood"] = _NoiseGivenU(model, objective)
    share_posteriors(view, model)
    return view
