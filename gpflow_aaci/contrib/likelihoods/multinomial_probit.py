"""Classification into K classes by the largest of K noisy latent GPs."""

from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType

from ...likelihoods.base import Site
from ...likelihoods.classes.labels import LabelLikelihood
from .argmax_normal import ArgmaxNormal, log_first_is_largest, own_first
from .largest import coupling_of_log_largest, expected_log_largest, log_shares_of_largest


class MultinomialProbit(LabelLikelihood):
    r"""
    y is the k with the largest z_k = f_k + e_k, e_k ~ N(0, 1); labels 0 … K − 1 in Y [N, 1].

    p(y = k|f) = E_u Π_{j≠k} Φ(u + f_k − f_j), u ~ N(0, 1). Given z, the K latent GPs are
    independent and Gaussian (Albert and Chib 1993; Girolami and Rogers 2006). Predicted
    probabilities are one-dimensional integrals, too. Under a prior with mean 0 and equal variances
    all classes are equally probable. With two classes this is ``Probit`` of (f_1 − f_0)/√2::

        likelihood = likelihoods.MultinomialProbit(3)
        model = AugmentedSVGP(kernel, likelihood, Z, num_latent_gps=3, num_data=len(X))
        fit(model, (X, Y))  # Y [N, 1] of 0, 1 and 2
        mean, _ = predictions.predict_y(model, Xnew)  # [N, 3], the probabilities

    The bound is loose: it is log p(y|f) at f = Fmu, minus ½ Σ Fvar. E log p(y|f) is an integral
    over K − 1 combinations of f. Its error is about 1e-4 for K ≤ 4 if Fvar is of order 1. For more
    classes 512 quasi-random points are used, and the relative error is about 1 %. Both rules
    integrate quadratic functions of f exactly, and their results stay above the bound. They make
    fits slow: in the kept benchmark ``classes_probit`` one takes 54.9 s on Iris, where
    ``LogisticSoftmax`` takes 10.5 s and predicts as well. Trained inducing points multiply both.
    """

    couples = True

    cost_of_class = 10.0

    # ---- the augmentation ----

    def bound(self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """log p(y|Fmu) − ½ Σ Fvar, as log p(y|f) + ½ Σ f² is convex in f."""
        return self.pointwise_log_prob(X, Fmu, Y)[..., 0] - 0.5 * tf.reduce_sum(Fvar, -1)

    def pointwise_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        ordered = own_first(F, Y[..., 0])
        return log_first_is_largest(ordered, tf.ones_like(ordered))[..., None]

    def auxiliary_law(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """z ~ N(Fmu, I) conditioned on z_y being the largest: a draw is [..., N, K]."""
        return ArgmaxNormal(Fmu + tf.zeros_like(Fvar), Y[..., 0])

    def log_joint(
        self, X: TensorType | None, auxiliary: Any, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log N(z | f, I) for a z whose largest component is z_y, [..., N]."""
        law = self.full_conditional(X, F, Y)
        return law.log_prob(auxiliary) + self.pointwise_log_prob(X, F, Y)[..., 0]

    def site(self, X: TensorType | None, auxiliary: Any, Y: TensorType) -> Site:
        """Potential z, precision 1."""
        return auxiliary, tf.ones_like(auxiliary)

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        z = F + tf.random.stateless_normal(tf.shape(F), seed, dtype=F.dtype)
        return tf.cast(tf.argmax(z, -1), F.dtype)[..., None]

    # ---- expectations ----

    def log_shares(self, F: TensorType) -> tf.Tensor:
        return self.log_expected_shares(F, tf.zeros_like(F))

    def log_expected_shares(self, Fmu: TensorType, Fvar: TensorType) -> tf.Tensor:
        """The formula for known f, with 1 + Fvar as the variance of z."""
        return log_shares_of_largest(Fmu, Fvar)

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return expected_log_largest(*self._ordered(Fmu, Fvar, Y))[..., None]

    def coupling(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        back = -Y[..., 0]
        found = own_first(coupling_of_log_largest(*self._ordered(Fmu, Fvar, Y)), back[..., None])
        return own_first(tf.linalg.matrix_transpose(found), back[..., None])

    @staticmethod
    def _ordered(Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Fmu and Fvar with the class y moved to the first place."""
        zeros = tf.zeros_like(Fmu) + tf.zeros_like(Fvar)
        return own_first(Fmu + zeros, Y[..., 0]), own_first(Fvar + zeros, Y[..., 0])
