r"""
Moving the inducing points, and what q(u) at the old points says about u at the new ones.

With u_a, u_b at the old and the new points, whitened, v_a | v_b ~ N(C v_b, I − CCᵀ). Old data act
on f through t(v_a) = q(v_a)/N(v_a; 0, I) alone, and the best q(v_b) given them (Bui, Nguyen and
Turner 2017, at fixed hyperparameters) is proportional to N(v_b; 0, I) exp E[log t(v_a) | v_b].
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, TensorType
from gpflow.config import default_float, default_jitter
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.inducing_variables.multioutput import MultioutputInducingVariables
from gpflow.models.util import InducingVariablesLike

from ..algebra.gaussian import Gaussian, carried, columns, lower_triangular_inverse, regression
from ..kernels import levels_of
from ..models import AugmentedSVGP
from ..validation import as_default_float, check_levels, require


def new_points(model: AugmentedSVGP, inducing_variable: InducingVariablesLike) -> list[AnyNDArray]:
    """
    Z [M, D] for each of the model's sets of points: one set, or one for each latent GP.

    :raises ValueError: unless the points are finite, hold known levels, and have the shapes of the
        model's points.
    """
    shapes = [tuple(points.Z.shape) for points in _points(model.inducing_variable)]
    if isinstance(inducing_variable, InducingVariables):
        points = [tf.convert_to_tensor(each.Z) for each in _points(inducing_variable)]
    else:
        points = [inducing_variable]
    levels = levels_of(model.kernel)
    new = [as_default_float(Z, "inducing_variable", levels).numpy() for Z in points]
    found = [Z.shape for Z in new]
    if found != shapes:
        raise ValueError(
            "inducing_variable must keep the model's number of points: "
            f"Z of shape {shapes}. Found: {found}."
        )
    if not all(np.all(np.isfinite(Z)) for Z in new):
        raise ValueError("inducing_variable must be finite. Found: NaN or infinity.")
    for Z in new:
        require(check_levels("inducing_variable", tf.constant(Z), levels))
    return new


def move(model: AugmentedSVGP, new: Sequence[AnyNDArray]) -> tf.Tensor:
    """
    Move the model to the new points, with the best q there given the old q.

    :param new: the result of :func:`new_points`.
    :return: [], the change of the bound [nats]: ≤ 0, and 0 if u_b determines u_a.
    """
    old = _points(model.inducing_variable)
    chol_a = tf.linalg.cholesky(model.prior_covariance())
    q = model.whitened_q(chol_a)
    K_ab = [model.cross_covariance(tf.constant(Z))[0] for Z in new]
    K = K_ab[0] if len(new) == 1 else tf.stack([own[i] for i, own in enumerate(K_ab)])
    # u includes the jitter: points that stay keep their jitter, or each move would lose it.
    stay = np.stack(
        [_same_rows(tf.convert_to_tensor(p.Z), Z) for p, Z in zip(old, new, strict=True)]
    )
    K += default_jitter() * tf.constant(stay, default_float())
    for points, Z in zip(old, new, strict=True):
        points.Z.assign(Z)
    chol_b = tf.linalg.cholesky(model.prior_covariance())
    C = regression(chol_a, tf.linalg.matrix_transpose(K), chol_b)
    moved = carried(*q, C)
    model.assign_whitened_q(moved)
    return lost(q, moved, C)


def lost(q: Gaussian, moved: Gaussian, C: tf.Tensor) -> tf.Tensor:
    """
    The logarithm [] of the integral over v_b of what :func:`carried` makes, not yet normalised.

    I − CᵀC is a covariance, so ``moved`` exists for any q(v_a), even if t(v_a) is not a density. By
    Jensen's inequality the logarithm is ≤ 0, as E t(v_a) = 1 under the prior.

    :param q: q(v_a), mu [M, L], sqrt [L, M, M].
    :param moved: q(v_b), mu [K, L], sqrt [L, K, K].
    :param C: [broadcast L, M, K].
    """
    R_inv = lower_triangular_inverse(q.sqrt)
    G, R_inv_m = tf.matmul(R_inv, C), columns(tf.matmul, R_inv, q.mu)
    lambda_1 = columns(tf.matmul, G, R_inv_m, transpose_a=True)
    L, M = tf.unstack(tf.shape(q.sqrt)[:2])
    squares = tf.square(R_inv_m), tf.square(R_inv), tf.broadcast_to(tf.square(C), tf.shape(G))
    of_mean, of_precision, of_C = map(tf.reduce_sum, squares)
    dropped = of_precision - tf.reduce_sum(tf.square(G)) - tf.cast(L * M, C.dtype) + of_C
    gained = _log_diagonal(moved.sqrt) - _log_diagonal(q.sqrt)
    return gained + 0.5 * (tf.reduce_sum(lambda_1 * moved.mu) - of_mean - dropped)


def _log_diagonal(sqrt: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.math.log(tf.abs(tf.linalg.diag_part(sqrt))))


def _points(inducing_variable: InducingVariables) -> list[InducingPoints]:
    """
    The sets of points that an inducing variable has.

    :raises ValueError: if the inducing variables are not points.
    """
    found = [inducing_variable]
    if isinstance(inducing_variable, MultioutputInducingVariables):
        found = list(inducing_variable.inducing_variables)
    for points in found:
        if type(points) is not InducingPoints:
            raise ValueError(
                "inducing_variable must be points Z [M, D], InducingPoints, or "
                "SharedIndependentInducingVariables or SeparateIndependentInducingVariables of "
                f"them, where it moves. Found: {type(points).__name__}."
            )
    return found


def _same_rows(old: TensorType, new: AnyNDArray) -> AnyNDArray:
    """A matrix [M, M]: 1 if a row of ``old`` [M, D] is paired with an equal row of ``new``."""
    at = {row.tobytes(): number for number, row in enumerate(np.asarray(old))}
    pairs = np.zeros([len(new), len(new)])
    for column, row in enumerate(new):
        number = at.pop(row.tobytes(), None)
        if number is not None:
            pairs[number, column] = 1.0
    return pairs
