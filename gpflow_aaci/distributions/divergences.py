r"""
KL divergences between two laws of ω that are tilts of the same one.

For π(ω\|c) = e^{−c²ω} π(ω\|0)/φ(c²) it is (c₂² − c₁²) ω̄(c₁) + log φ(c₂²) − log φ(c₁²); each law has
φ in its own parameters. ``inverted`` has the divergence of laws that are known by log φ alone.
"""

import tensorflow as tf
import tensorflow_probability as tfp

from ..validation import require
from .generalized_inverse_gaussian import GeneralizedInverseGaussian
from .inverse_gaussian import InverseGaussian
from .parameters import check_parameter
from .positive_normal import PositiveNormal

tfd = tfp.distributions


@tfd.RegisterKL(InverseGaussian, InverseGaussian)
def _of_inverse_gaussians(
    a: InverseGaussian, b: InverseGaussian, name: str | None = None
) -> tf.Tensor:
    """½ (q − 1 − log q) + λ₂ (μ₁/μ₂ − 1)²/(2μ₁), q = λ₂/λ₁, also where one of the means is ∞."""
    with tf.name_scope(name or "kl_of_inverse_gaussians"):
        q = b.concentration / a.concentration
        of_shapes = 0.5 * (q - 1.0 - tf.math.log(q))
        # μ₁ (1/μ₂ − 1/μ₁)², without ∞ − ∞
        root = 1.0 / b.loc - 1.0 / a.loc
        of_means = tf.where(tf.equal(root, 0.0), tf.zeros_like(root), a.loc * tf.square(root))
        return of_shapes + 0.5 * b.concentration * of_means


@tfd.RegisterKL(GeneralizedInverseGaussian, GeneralizedInverseGaussian)
def _of_generalized(
    a: GeneralizedInverseGaussian, b: GeneralizedInverseGaussian, name: str | None = None
) -> tf.Tensor:
    """
    log Z₂ − log Z₁ + ½ (a₂ − a₁) E x + ½ (b₂ − b₁) E 1/x.

    :raises ValueError: unless p is the same for both.
    """
    is_same = tf.equal(a.p, b.p)
    check = check_parameter("kl_divergence", "p", b.p, is_same, "the same for both")
    with tf.name_scope(name or "kl_of_generalized_inverse_gaussians"):
        with tf.control_dependencies([require([check])]):
            (_, a1, b1), (_, a2, b2) = a._float64(), b._float64()

        def part(change: tf.Tensor, order: float) -> tf.Tensor:  # without 0 · ∞
            is_zero = tf.equal(change, 0.0)
            moment = a._moment(order)
            return tf.where(is_zero, tf.zeros_like(change + moment), 0.5 * change * moment)

        kl = b._log_normaliser() - a._log_normaliser() + part(a2 - a1, 1.0) + part(b2 - b1, -1.0)
        return tf.cast(tf.nn.relu(kl), a.dtype)


@tfd.RegisterKL(PositiveNormal, PositiveNormal)
def _of_positive_normals(
    a: PositiveNormal, b: PositiveNormal, name: str | None = None
) -> tf.Tensor:
    """(loc₁ − loc₂) E ω − log Z(loc₁) + log Z(loc₂), Z(z) = E e^{zω} of a half-normal ω."""
    with tf.name_scope(name or "kl_of_positive_normals"):
        kl = (a.loc - b.loc) * a.mean() - a.log_transform() + b.log_transform()
        return tf.nn.relu(kl)
