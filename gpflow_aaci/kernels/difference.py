"""A kernel on pairs of inputs, for the difference of one function between the two."""

import tensorflow as tf
from gpflow import covariances
from gpflow.base import TensorType
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel


class Difference(Kernel):
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

    def __init__(self, kernel: Kernel, input_dim: int, name: str | None = None) -> None:
        """
        :param kernel: the kernel of f, with one output.
        :param input_dim: D, the number of columns of x.
        :raises ValueError: if ``input_dim`` is not a positive integer.
        """
        if not (input_dim >= 1 and float(input_dim).is_integer()):
            raise ValueError(
                f"Difference: input_dim must be a whole number of at least 1. Found: {input_dim!r}."
            )
        super().__init__(name=name)
        self.kernel = kernel
        self.input_dim = int(input_dim)

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

    def __call__(
        self,
        X: TensorType,
        X2: TensorType | None = None,
        *,
        full_cov: bool = True,
        presliced: bool = False,
    ) -> tf.Tensor:
        """As for every GPflow kernel, but X and X2 may each have D or 2D columns."""
        if full_cov:
            return self.K(X, X2)
        if X2 is not None:
            raise ValueError("X2 must not be given with full_cov=False.")
        return self.K_diag(X)


@covariances.Kuf.register(InducingPoints, Difference, object)
def _covariance_of_f_and_differences(
    inducing_variable: InducingPoints, kernel: Difference, X: TensorType
) -> tf.Tensor:
    """The covariance [M, N] of f at Z and f(x) − f(x′)."""
    return kernel(inducing_variable.Z, X)


def columns_of_f(kernel: Kernel, num_columns: int | None) -> int | None:
    """How many of so many columns of X are an input of one f."""
    return kernel.input_dim if isinstance(kernel, Difference) else num_columns


def columns_of_x(kernel: Kernel, num_columns: int | None) -> int | None:
    """How many columns X has, where an input of f has so many."""
    if num_columns is None or not isinstance(kernel, Difference):
        return num_columns
    return 2 * num_columns
