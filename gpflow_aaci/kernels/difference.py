"""A kernel on pairs of inputs, for the difference of one function between the two."""

import tensorflow as tf
from gpflow.base import TensorType

from .linear_in_f import LinearInF


class Difference(LinearInF):
    r"""
    The GP f(x) − f(x′) for rows (x, x′), for preferences (Chu and Ghahramani, ICML 2005).

    With ``Logistic`` or ``Probit`` a label says which of two inputs is preferred, and f is its
    utility. Inducing points Z [M, D] are inputs of f itself, and so may Xnew be::

        kernel = Difference(SquaredExponential(), input_dim=1)
        model = AugmentedSVGP(kernel, Probit(), Z, num_data=len(pairs))  # Z [M, 1]
        fit(model, (pairs, is_first_preferred))  # pairs [N, 2]
        p, _ = model.predict_y(np.hstack([x, x_other]))  # P(x is preferred to x_other)
        utility, variance = model.predict_f(x)  # f at x [N, 1]

    The data determine f only up to a constant, for which the prior has mean 0.
    """

    @property
    def num_columns(self) -> int:
        return 2 * self.input_dim

    def _ends(self, X: TensorType) -> list[tuple[float, tf.Tensor]]:
        """The inputs of f, each with the sign of f there: one for X [..., D], two for [..., 2D]."""
        X, D = tf.convert_to_tensor(X), self.input_dim
        if X.shape[-1] == D:
            return [(1.0, X)]
        if X.shape[-1] == 2 * D:
            return [(1.0, X[..., :D]), (-1.0, X[..., D:])]
        raise ValueError(
            f"X must have {2 * D} columns, x and x′, or {D}, x alone, for the kernel Difference. "
            f"Found: {X.shape[-1]}."
        )

    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        """[N, N2], k(x, z) − k(x, z′) − k(x′, z) + k(x′, z′) of pairs (x, x′) and (z, z′)."""
        ends = self._ends(X)
        others = ends if X2 is None else self._ends(X2)

        def covariance(x: tf.Tensor, z: tf.Tensor) -> tf.Tensor:
            # White noise is in k(x) alone: GPflow's k(x, x) takes the two for other inputs.
            return self.kernel(x) if x is z else self.kernel(x, z)

        return sum(
            sign * other_sign * covariance(x, z) for sign, x in ends for other_sign, z in others
        )

    def K_diag(self, X: TensorType) -> tf.Tensor:
        """[N], k(x, x) − 2 k(x, x′) + k(x′, x′)."""
        signs, ends = zip(*self._ends(X), strict=True)
        if len(ends) == 1:
            return self.kernel(ends[0], full_cov=False)
        signs = tf.constant(signs, ends[0].dtype)
        between = self.kernel(tf.stack(ends, -2))  # [N, 2, 2]
        return tf.einsum("i,...ij,j->...", signs, between, signs)
