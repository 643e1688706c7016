"""GPflow's SVGP with the augmented bound in the place of the quadrature one."""

from collections.abc import Callable, Sequence
from typing import cast

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow import covariances
from gpflow.base import RegressionData, TensorType
from gpflow.config import default_jitter
from gpflow.inducing_variables import (
    FallbackSeparateIndependentInducingVariables,
    FallbackSharedIndependentInducingVariables,
    InducingPoints,
    InducingVariables,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.inducing_variables.multioutput import MultioutputInducingVariables
from gpflow.kernels import (
    Kernel,
    MultioutputKernel,
)
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction
from gpflow.models.training_mixins import DatasetOwnedIterator
from gpflow.models.util import InducingVariablesLike

from ..algebra.arrow import Matrix
from ..algebra.projection import Prior
from ..data import checked_rows
from ..effects import (
    Effect,
    WithEffects,
    added,
    beside,
    check_offsets,
    compact_covariance,
    compact_prior_covariance,
    covariance_with_part,
    num_of_others,
)
from ..kernels import columns_of_x, levels_of
from ..likelihoods import AugmentedLikelihood, augmented
from ..validation import as_default_float, check_levels, require
from .bounds import WithBounds
from .given_u import with_noise_given_u
from .posteriors import handed_out
from .predictions import WithPredictions
from .shared import AnyData, check_kernel, check_latents, k_diag


class AugmentedSVGP(WithBounds, WithPredictions, gpflow.models.SVGP):
    r"""
    ``gpflow.models.SVGP`` whose ``training_loss`` is the augmented bound (AACI App. A.4.4).

    The bound is Σ_i [log C + g m_i + log φ(E h_i²)] · num_data/|B| − KL[q(u) ‖ p(u)]. It is lower
    than SVGP's own ELBO, which ``elbo`` returns. On this bound GPflow's ``NaturalGradient(gamma)``
    is the closed-form step, and q(u) stays positive definite for every gamma in (0, 1]. Everything
    else is as in GPflow::

        model = AugmentedSVGP(kernel, gpflow.likelihoods.StudentT(), Z, num_data=N)
        AugmentedNaturalGradient(step_size=1.0).minimize(model, (X, Y))

    The kernel has a single output, or is a ``SharedIndependent``, a ``SeparateIndependent`` or a
    ``LinearCoregionalization``. With one of these three the inducing variable is plain points,
    which all latent GPs share, ``SharedIndependentInducingVariables``,
    ``SeparateIndependentInducingVariables``, or one of GPflow's ``Fallback`` versions of these,
    which have the same q. If ``LinearCoregionalization`` mixes the latent GPs, or the auxiliary
    variables of the likelihood couple them, closed-form steps move one q after the other. (In
    GPflow's SVGP, plain points with a multi-output kernel mean one joint q(u) for all outputs, with
    a ``q_mu`` [M P, 1] that must be given; this model does not offer that.)
    """

    likelihood: AugmentedLikelihood

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: InducingVariablesLike,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int = 1,
        q_diag: bool = False,
        q_mu: TensorType | None = None,
        q_sqrt: TensorType | None = None,
        whiten: bool = True,
        num_data: TensorType | None = None,
        effects: Sequence[Effect] = (),
    ):
        """
        The arguments are the same as for ``gpflow.models.SVGP``.

        :param likelihood: a likelihood of :mod:`gpflow_aaci.likelihoods`, of GPflow, or your own;
            see :func:`~gpflow_aaci.likelihoods.augmented`. The model shares its Parameters.
        :param q_diag: whether the covariance of the whitened q(v) is diagonal. Steps and fits then
            find the best such q, with S = 1/diag(I − 2B) instead of (I − 2B)⁻¹ and the same mean;
            its bound is lower. This saves no time here.
        :param effects: effects of groups, and linear ones, that are added to the kernel's GP; see
            :mod:`gpflow_aaci.effects`. Z [M, D] has all columns of X.
        :raises ValueError: for a likelihood whose E log p(y|f) is a random estimate, for
            ``q_diag=True`` without ``whiten``, for other multi-output kernels, and if
            ``num_latent_gps`` does not suit the likelihood or the kernel.
        """
        # Checked first: a user who must change the likelihood may have to change the rest as well.
        likelihood = augmented(likelihood)
        check_diagonal(q_diag, whiten)
        if hasattr(inducing_variable, "iloc"):  # a frame, which may hold words
            levels = levels_of(added(kernel, effects, inducing_variable.shape[1]))
            inducing_variable = as_default_float(inducing_variable, "inducing_variable", levels)
        inducing_variable = gpflow.models.util.inducingpoint_wrapper(inducing_variable)
        if isinstance(kernel, MultioutputKernel) and type(inducing_variable) is InducingPoints:
            inducing_variable = SharedIndependentInducingVariables(inducing_variable)
        inducing_variable = of_independent_gps(inducing_variable)
        kernel = added(kernel, effects, _input_dim(inducing_variable))
        inducing_variable = beside(inducing_variable, effects)
        check_inducing_variable(kernel, inducing_variable)
        if (levels := levels_of(kernel)) and type(inducing_variable) is InducingPoints:
            Z = tf.convert_to_tensor(inducing_variable.Z)
            require(check_levels("inducing_variable", Z, levels))
        super().__init__(
            kernel,
            likelihood,
            inducing_variable,
            mean_function=mean_function,
            num_latent_gps=num_latent_gps,
            q_diag=q_diag,
            q_mu=q_mu,
            q_sqrt=q_sqrt,
            whiten=whiten,
            num_data=num_data,
        )
        # GPflow takes the number of latent GPs from q_sqrt where it is given.
        check_latents(kernel, likelihood, self.num_latent_gps)
        check_offsets(self)
        handed_out(self)

    def training_loss_closure(
        self, data: RegressionData | DatasetOwnedIterator, *, compile: bool = True
    ) -> Callable[[], tf.Tensor]:
        """
        GPflow's closure of the training loss. Arrays are checked once, outside the compiled code.

        :raises ValueError: for bad data, see :func:`~gpflow_aaci.validation.checked_data`.
        """
        if not isinstance(data, DatasetOwnedIterator):
            data = checked_rows(self.expected_data, data)
        return super().training_loss_closure(data, compile=compile)

    def fitc_objective(self, data: AnyData, *, progress: bool = True) -> tf.Tensor:
        r"""
        FITC's log evidence, if q(u) is FITC's posterior of u; lower for other q(u): [].

        It is Σ E log N(y_i \| E[f_i\|u], σ² + k̃_i) − KL[q(u) ‖ p(u)], k̃_i = Var[f_i\|u], and with
        the best q(u) log N(Y \| μ₀, Q + diag(σ² + k̃)), Q = AᵀA (Snelson and Ghahramani 2006).
        ``fit`` and ``train`` maximise it with ``objective="fitc"``. It is no bound on log p(Y)
        under the GP's prior: with few points k̃ may take the place of the noise, which vanishes
        (Bauer, van der Wilk and Rasmussen, NeurIPS 2016)::

            fit(model, (X, Y), objective="fitc")

        :raises ValueError: for bad data, unless the noise is Gaussian and of one variance, and for
            latent GPs that the kernel mixes.
        """
        return with_noise_given_u(self, "fitc").elbo(data, progress=progress)

    def heteroscedastic_objective(self, data: AnyData, *, progress: bool = True) -> tf.Tensor:
        """
        The ELBO under noise of the variances σ² + k̃_i, k̃_i = Var[f_i|u], []: below FITC's.

        It is :meth:`fitc_objective` − ½ Σ k̃_i/(σ² + k̃_i) (Rossi and others, AISTATS 2021, (14) and
        (15)). The variances follow the kernel and Z. ``fit`` and ``train`` maximise it with
        ``objective="heteroscedastic"``.

        :raises ValueError: as :meth:`fitc_objective`.
        """
        return with_noise_given_u(self, "heteroscedastic").elbo(data, progress=progress)

    @property
    def input_dim(self) -> int | None:
        """Columns of X, or None where the inducing variable does not tell."""
        return columns_of_x(self.kernel, _input_dim(self.inducing_variable))

    @property
    def points(self) -> gpflow.Parameter | None:
        """Z [M, D], where the inducing variables of all latent GPs are f at these points."""
        inducing_variable = self.inducing_variable
        if type(inducing_variable) is SharedIndependentInducingVariables:
            inducing_variable = inducing_variable.inducing_variable
        return inducing_variable.Z if type(inducing_variable) is InducingPoints else None

    def prior_covariance(self) -> tf.Tensor:
        """K_ZZ + jitter I, [L, M, M]; L = 1 where the latent GPs share it."""
        K = covariances.Kuu(self.inducing_variable, self.kernel, jitter=default_jitter())
        return K if len(K.shape) == 3 else K[None]

    def compact_prior_covariance(self) -> Matrix:
        if self.num_before_groups is None:
            return self.prior_covariance()
        return compact_prior_covariance(self.inducing_variable, self.kernel, default_jitter())

    @check_shapes("X: [N, D]")
    def cross_covariance(
        self, X: TensorType, kernel: Kernel | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """K_ZX [L, M, N] and k(x_i, x_i) [L, N]; of a summand of f, if its kernel is given."""
        part, kernel = kernel, kernel or self.kernel
        if part is not None and isinstance(self.inducing_variable, WithEffects):
            K = covariance_with_part(self.inducing_variable, self.kernel, X, part)
        else:
            K = covariances.Kuf(self.inducing_variable, kernel, X)
        return (K if len(K.shape) == 3 else K[None]), k_diag(kernel, X)

    @property
    def num_before_groups(self) -> int | None:
        """The number of v before the effects of the factor with most groups, if there is one."""
        of = self.inducing_variable
        return num_of_others(of, self.kernel) if isinstance(of, WithEffects) else None

    def prior(self, X: TensorType) -> Prior:
        """The prior of u and f at X; of effects of groups, what of it is not zero."""
        if self.num_before_groups is None:
            return super().prior(X)
        K_FX, entries = compact_covariance(self.inducing_variable, self.kernel, X)
        of_f = k_diag(self.kernel, X), self.mean_function(X)
        return Prior(self.compact_prior_covariance(), K_FX, *of_f, entries)


def of_independent_gps(inducing_variable: InducingVariables) -> InducingVariables:
    """
    GPflow's ``Fallback...InducingVariables`` as the class that says the same of the prior.

    They mean the same q, and only choose a slower conditional.
    """
    if type(inducing_variable) is FallbackSharedIndependentInducingVariables:
        return SharedIndependentInducingVariables(inducing_variable.inducing_variable)
    if type(inducing_variable) is FallbackSeparateIndependentInducingVariables:
        return SeparateIndependentInducingVariables(inducing_variable.inducing_variable_list)
    return inducing_variable


def check_diagonal(q_diag: bool, whiten: bool) -> None:
    """
    :raises ValueError: for a diagonal q(u), whose inducing variables are not whitened.
    """
    if q_diag and not whiten:
        raise ValueError(
            "whiten must be True if q_diag is True: only the whitened q(v) may be diagonal. "
            "Found: False."
        )


def check_inducing_variable(kernel: Kernel, inducing_variable: InducingVariables) -> None:
    """
    The inducing variables must be of latent GPs that are independent a priori, K_ZZ [L, M, M].

    :raises ValueError: for another multi-output kernel, and other inducing variables under one.
    """
    if not isinstance(kernel, MultioutputKernel):
        if isinstance(inducing_variable, MultioutputInducingVariables):
            raise ValueError(
                "inducing_variable must be points or patches with a single-output kernel, such as "
                f"{type(kernel).__name__}. Found: {type(inducing_variable).__name__}."
            )
        return
    check_kernel(kernel)
    if not isinstance(
        inducing_variable,
        SharedIndependentInducingVariables | SeparateIndependentInducingVariables,
    ):
        raise ValueError(
            "inducing_variable must be points, a SharedIndependentInducingVariables or a "
            f"SeparateIndependentInducingVariables with a {type(kernel).__name__} kernel. "
            f"Found: {type(inducing_variable).__name__}."
        )


def _input_dim(inducing_variable: InducingVariables) -> int | None:
    """Columns of Z, or None for inducing variables that are not points."""
    if isinstance(inducing_variable, SharedIndependentInducingVariables | WithEffects):
        return _input_dim(inducing_variable.inducing_variable)
    if isinstance(inducing_variable, SeparateIndependentInducingVariables):
        return _input_dim(inducing_variable.inducing_variable_list[0])
    if type(inducing_variable) is not InducingPoints:  # patches, for one, are not points
        return None
    return cast("int | None", inducing_variable.Z.shape[-1])
