"""GPflow's VGP with the augmented bound in the place of the quadrature one."""

from collections.abc import Sequence

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import RegressionData, TensorType
from gpflow.inducing_variables import (
    InducingPoints,
    InducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import Kernel, LinearCoregionalization, MultioutputKernel
from gpflow.kullback_leiblers import gauss_kl
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction
from gpflow.posteriors import AbstractPosterior, PrecomputeCacheType, create_posterior

from ..algebra.projection import Prior
from ..effects import Effect, added, check_offsets
from ..kernels import levels_of
from ..likelihoods import AugmentedLikelihood, augmented
from ..validation import as_pair, checked_data, column_names
from .bounds import WithBounds
from .posteriors import handed_out
from .predictions import WithPredictions
from .shared import (
    check_kernel,
    check_latents,
    covariance_of_latents,
    jittered,
    k_diag,
    num_mixed,
    with_jitter,
)


class AugmentedVGP(WithBounds, WithPredictions, gpflow.models.VGP):
    r"""
    ``gpflow.models.VGP`` whose ``training_loss`` is the augmented bound (AACI App. A.4.1).

    Like VGP it stores its data, so its methods take none. It equals ``AugmentedSVGP`` with Z = X: f
    is projected through A = L⁻¹K(X, X), and k_ii has no jitter, as in ``predict_f``. Therefore the
    bound, its natural gradient and the predictions of one model agree. The kernel may also be a
    ``SharedIndependent``, a ``SeparateIndependent`` or a ``LinearCoregionalization``::

        model = AugmentedVGP((X, Y), kernel, gpflow_aaci.likelihoods.Laplace())
        AugmentedNaturalGradient(step_size=1.0).minimize(model)
    """

    likelihood: AugmentedLikelihood

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        effects: Sequence[Effect] = (),
    ):
        """
        The arguments are the same as for ``gpflow.models.VGP``.

        :param likelihood: as in :class:`AugmentedSVGP`.
        :param effects: effects of groups, and linear ones, that are added to the kernel's GP; see
            :mod:`gpflow_aaci.effects`.
        :raises ValueError: for a likelihood whose E log p(y|f) is a random estimate, for
            multi-output kernels other than ``SharedIndependent``, ``SeparateIndependent`` and
            ``LinearCoregionalization``, and for bad data.
        """
        # Checked first: a user who must change the likelihood may have to change the rest as well.
        likelihood = augmented(likelihood)
        check_kernel(kernel)
        of_X = np.shape(data[0]) if isinstance(data, tuple | list) and data else ()
        kernel = added(kernel, effects, of_X[-1] if len(of_X) == 2 else None)
        levels = levels_of(kernel)
        X, Y = as_pair(data, levels)
        if num_latent_gps is None:
            num_latent_gps = likelihood.num_outputs(int(np.shape(Y)[-1]))
            if isinstance(kernel, LinearCoregionalization):
                num_latent_gps = kernel.num_latent_gps
        check_latents(kernel, likelihood, num_latent_gps)
        num_outputs = num_mixed(kernel) or num_latent_gps
        X, Y = checked_data(
            X,
            Y,
            num_observed=likelihood.num_observed(num_outputs),
            num_outputs=num_outputs,
            given=likelihood.given,
            labels=likelihood.labels,
            levels=levels,
            checks_of_Y=likelihood.checks,
        )
        # Variables stay themselves: gpflow.models.vgp.update_vgp_data assigns to them.
        stored = data if all(isinstance(d, tf.Variable) for d in data) else (X, Y)
        super().__init__(stored, kernel, likelihood, mean_function, num_latent_gps)
        check_offsets(self)
        self.column_names = column_names(data[0])
        handed_out(self)

    @property
    def own_data(self) -> RegressionData:
        """X [N, D] and Y [N, P] of the constructor."""
        return self.data

    @check_shapes("return: []")
    def prior_kl(self) -> tf.Tensor:
        """KL[q(v) ‖ N(0, I)], which is KL[q(f) ‖ p(f)]."""
        return gauss_kl(self.q_mu, self.q_sqrt)

    @property
    def whiten(self) -> bool:
        """VGP is always whitened."""
        return True

    @property
    def input_dim(self) -> int:
        """Columns of X."""
        return int(self.data[0].shape[-1])

    def prior_covariance(self) -> tf.Tensor:
        """K(X, X) + jitter I, [broadcast L, N, N]."""
        return with_jitter(self.kernel, self.data[0])

    def prior_variance(self) -> tf.Tensor:
        """k(x_i, x_i) of the data, [broadcast L, N]; without the N² others."""
        return k_diag(self.kernel, self.data[0])

    def prior_of_data(self) -> Prior:
        """:meth:`prior` at the data, for which K(X, X) is evaluated, and differentiated, once."""
        X = self.data[0]
        K = covariance_of_latents(self.kernel, X)
        return Prior(jittered(K), K, k_diag(self.kernel, X), self.latent_mean(X))

    @check_shapes("X: [N, D]")
    def cross_covariance(
        self, X: TensorType, kernel: Kernel | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """K(X_data, X) [L, M, N] and k(x_i, x_i) [L, N]; of a summand of f, if it is given."""
        kernel = kernel or self.kernel
        return covariance_of_latents(kernel, self.data[0], X), k_diag(kernel, X)

    def data_as_points(self) -> InducingVariables:
        """Z = X, which the latent GPs share, as inducing points; f at X is its u."""
        points = InducingPoints.__new__(InducingPoints)  # whose ``__init__`` makes a variable
        tf.Module.__init__(points)
        points.Z = tf.identity(self.data[0])
        is_single = not isinstance(self.kernel, MultioutputKernel)
        return points if is_single else SharedIndependentInducingVariables(points)

    def _new_posterior(self, precompute_cache: PrecomputeCacheType) -> AbstractPosterior:
        """GPflow's own of a VGP takes single-output kernels; others have SVGP's, with Z = X."""
        if not isinstance(self.kernel, MultioutputKernel):
            return super()._new_posterior(precompute_cache)
        return create_posterior(
            self.kernel,
            self.data_as_points(),
            self.q_mu,
            self.q_sqrt,
            whiten=True,
            mean_function=self.mean_function,
            precompute_cache=precompute_cache,
        )
