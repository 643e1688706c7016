"""``GaussianProcessRegressionNetwork``: mixtures of GPs, with weights that are GPs, too."""

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood
from gpflow.quadrature.gauss_hermite import ndgh_points_and_weights
from gpflow.utilities import positive

from ..likelihoods.integrals.quadrature import safe_sqrt
from ..validation import check_count, check_positive


class GaussianProcessRegressionNetwork(Likelihood):
    r"""
    y_p = Σ_j W_pj(x) f_j(x) + ε_p for P outputs and Q nodes, ε_p ~ N(0, ``variance[p]``).

    Wilson, Knowles and Ghahramani, *Gaussian Process Regression Networks* (ICML 2012), but the
    nodes have no noise here. The L = Q + P·Q latent GPs are the nodes f_1 … f_Q, and after them the
    weights row by row, W_11, W_12, …, W_PQ. So correlations of the outputs, their amplitudes and
    their lengthscales may change with x.

    E log p(y|f, W) has a closed form if q is a product over the latent GPs, as it is within each
    component of :class:`~gpflow_aaci.contrib.MixtureVGP` and in ``gpflow.models.SVGP``. Two nodes
    and three outputs, with weights that vary more slowly than the nodes::

        from gpflow.kernels import SeparateIndependent, SquaredExponential
        likelihood = GaussianProcessRegressionNetwork(num_outputs=3, num_nodes=2)
        of_nodes, of_weights = SquaredExponential(), SquaredExponential(lengthscales=3.0)
        model = MixtureVGP(
            (X, Y),
            SeparateIndependent(2 * [of_nodes] + 6 * [of_weights]),
            likelihood,
            gpflow.functions.Constant([0.0, 0.0, 1.0, -1.0, 1.0, 1.0, -1.0, 1.0]),
        )
        loss = model.training_loss_closure()
        gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables)

    If all nodes and weights have mean 0 under q, the bound is stationary. Therefore give the
    weights a mean function, as above, or start ``q_mu`` elsewhere. Permuting the nodes, or changing
    their signs, gives further modes of the posterior, for which a mixture can have several
    components.
    """

    def __init__(
        self,
        num_outputs: int,
        num_nodes: int,
        variance: float = 0.1,
        num_gauss_hermite_points: int = 20,
    ) -> None:
        """
        :param num_outputs, num_nodes: P and Q.
        :param variance: the noise variance at which the parameter ``variance`` [P] starts.
        :param num_gauss_hermite_points: the number of quadrature points for each node in
            ``predict_log_density``, whose cost is this number to the power of Q. All else is exact.
        :raises ValueError: unless the numbers are at least 1 and the variance is above 0.
        """
        check_count("num_outputs", num_outputs, 1)
        check_count("num_nodes", num_nodes, 1)
        check_count("num_gauss_hermite_points", num_gauss_hermite_points, 1)
        check_positive("variance", variance)
        super().__init__(None, num_nodes * (1 + num_outputs), num_outputs)
        self.num_outputs, self.num_nodes = num_outputs, num_nodes
        self.num_gauss_hermite_points = num_gauss_hermite_points
        start = np.full(num_outputs, variance, gpflow.default_float())
        self.variance = gpflow.Parameter(start, transform=positive())

    def split(self, F: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """The nodes [..., Q] and the weights [..., P, Q] in F [..., L]."""
        F = tf.convert_to_tensor(F)
        nodes, weights = F[..., : self.num_nodes], F[..., self.num_nodes :]
        rows = [self.num_outputs, self.num_nodes]
        return nodes, tf.reshape(weights, tf.concat([tf.shape(weights)[:-1], rows], 0))

    def _noiseless(self, Fmu: TensorType, Fvar: TensorType) -> MeanAndVariance:
        """Mean and variance [..., P] of every Σ_j W_pj f_j under independent latent GPs."""
        f, W = self.split(Fmu)
        f_var, W_var = self.split(Fvar)
        variance = _product(W_var, f_var + tf.square(f)) + _product(tf.square(W), f_var)
        return _product(W, f), variance

    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._variational_expectations(X, F, tf.zeros_like(F), Y)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        f, W = self.split(F)
        return _product(W, f)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.zeros_like(self._conditional_mean(X, F)) + self.variance

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        mean, variance = self._noiseless(Fmu, Fvar)
        return mean, variance + self.variance

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        mean, variance = self._noiseless(Fmu, Fvar)
        at_mean = gpflow.logdensities.gaussian(Y, mean, self.variance)
        return tf.reduce_sum(at_mean - 0.5 * variance / self.variance, -1)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """
        log ∫ Π_p N(y_p | W_p f, Σ_j Var[W_pj] f_j² + σ_p²) N(f | Fmu, Fvar) df, W at its mean.

        The weights are integrated exactly, and the nodes by a Gauss-Hermite rule. The rule
        is placed at the posterior of f given y that results if Σ_j Var[W_pj] f_j² is replaced by
        its mean. If the weights have no variance this is exact, even for very small noise.
        """
        f, W = self.split(Fmu)
        f_var, W_var = self.split(Fvar)
        noise = _product(W_var, tf.square(f) + f_var) + self.variance  # [..., P]
        # In v, f = Fmu + √Fvar v, as Fvar may be 0.
        sd = safe_sqrt(f_var)
        scaled = sd[..., None, :] * W / noise[..., None]
        precision = tf.matmul(scaled, sd[..., None, :] * W, transpose_a=True)
        precision += tf.eye(self.num_nodes, dtype=precision.dtype)
        chol = tf.linalg.cholesky(precision)  # [..., Q, Q]
        potential = tf.linalg.matvec(scaled, Y - _product(W, f), transpose_a=True)
        centre = tf.linalg.cholesky_solve(chol, potential[..., None])  # [..., Q, 1]
        z, dz = ndgh_points_and_weights(self.num_nodes, self.num_gauss_hermite_points)
        z, log_dz = tf.cast(z, f.dtype), tf.cast(tf.math.log(dz[:, 0]), f.dtype)  # [S, Q], [S]
        batch = tf.zeros_like(centre)
        apart = tf.linalg.triangular_solve(chol, tf.transpose(z) + batch, adjoint=True)
        v = tf.linalg.matrix_transpose(centre + apart)  # [..., S, Q]
        nodes = f[..., None, :] + sd[..., None, :] * v

        mean = tf.matmul(nodes, W, transpose_b=True)  # [..., S, P]
        variance = tf.matmul(tf.square(nodes), W_var, transpose_b=True) + self.variance
        gaussian = gpflow.logdensities.gaussian
        log_joint = tf.reduce_sum(gaussian(Y[..., None, :], mean, variance), -1) + tf.reduce_sum(
            gaussian(v, tf.zeros_like(v), tf.ones_like(v)), -1
        )
        log_rule = tf.reduce_sum(gaussian(z, tf.zeros_like(z), tf.ones_like(z)), -1)
        log_det = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(chol)), -1)
        return tf.reduce_logsumexp(log_dz - log_rule + log_joint, -1) - log_det


def _product(W: tf.Tensor, f: tf.Tensor) -> tf.Tensor:
    """W [..., P, Q] times f [..., Q]."""
    return tf.linalg.matvec(W, f)
