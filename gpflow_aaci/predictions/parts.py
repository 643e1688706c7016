"""
The parts of an additive model: the summands of f under a kernel that is a sum.

u and the part f_S are jointly Gaussian a priori, with the covariance k_S(Z, x) alone, since the
summands are independent. So f_S(x) has the mean k_S(x, Z) K_ZZ⁻¹ E u, and its variance is
Var[f_S(x)|u], plus what q(u) adds to it (Duvenaud, Nickisch and Rasmussen, *Additive Gaussian
processes*, NeurIPS 2011, for Gaussian noise).
"""

from typing import TypeAlias

import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.kernels import Kernel, SeparateIndependent, SharedIndependent, Sum

from ..algebra.projection import Prior, marginals, project
from ..kernels import OrthogonalAdditive
from ..models import AugmentedModel, of_any_model
from ..validation import shown
from .f import checked_inputs

Part: TypeAlias = int | tuple[int, ...] | Kernel


@of_any_model
def predict_component(model: AugmentedModel, Xnew: TensorType, part: Part) -> MeanAndVariance:
    r"""
    Mean and variance of a summand of f at Xnew [N, D] under q, both [N, L].

    Under a kernel k = k_0 + k_1 + ... f is a sum f_0 + f_1 + ... of GPs, which are independent
    before the data are known::

        trend, seasons = SquaredExponential(lengthscales=10.0), Periodic(SquaredExponential())
        model = AugmentedSVGP(trend + seasons, StudentT(), Z, num_data=len(X))
        fit(model, (X, Y))
        mean, variance = predict_component(model, Xnew, seasons)  # or its index, 1
        upper = mean + 1.96 * np.sqrt(variance)

    The means of all parts add up to the mean of f, less the mean function, which belongs to no
    part. Their variances do not add up to the variance of f, since the parts are correlated under
    q. Two ``SquaredExponential`` can both be nearly constant: the data do not tell which part has
    the constant of f, so that both variances include it. The parts of an
    :class:`~gpflow_aaci.kernels.OrthogonalAdditive` kernel have no such function in common. A part
    is Gaussian under q, so that its quantiles follow from the two.

    :param part: which summand: its index i or the kernel itself, ``kernel.kernels[i]``; for an
        ``OrthogonalAdditive`` kernel the tuple of its columns, such as ``(0,)`` or ``(0, 1)``.
        ``SharedIndependent`` and ``SeparateIndependent`` are taken, too, if they are of such
        kernels; with the latter, an index is the same summand of every latent GP.
    :raises ValueError: for bad Xnew, another part, and another kernel.
    """
    X = checked_inputs(model, Xnew)
    kernel = summand(model.kernel, part)
    none = tf.zeros_like(X[:, :1])
    projection = project(Prior(model.prior_covariance(), *model.cross_covariance(X, kernel), none))
    return marginals(projection, *model.whitened_q(projection.chol))


def summand(kernel: Kernel, part: Part) -> Kernel:
    """
    The kernel of a part of f.

    :raises ValueError: for another part, and for a kernel that has no parts.
    """
    if isinstance(kernel, SharedIndependent):
        return SharedIndependent(summand(kernel.kernel, part), kernel.num_latent_gps)
    if isinstance(kernel, SeparateIndependent):
        return SeparateIndependent([summand(of_latent, part) for of_latent in kernel.kernels])
    if isinstance(kernel, OrthogonalAdditive):
        return kernel.part(part)
    for index in summands(kernel):
        if part is kernel.kernels[index] or part == index:
            return kernel.kernels[index]
    raise ValueError(
        f"part must be an index from 0 to {len(kernel.kernels) - 1}, or one of the summands of "
        f"this model's own kernel. Found: {shown(part)}."
    )


def summands(kernel: Kernel) -> list[Part]:
    """
    All parts of f, as ``part`` of :func:`predict_component` names them.

    :raises ValueError: for a kernel that has no parts.
    """
    if isinstance(kernel, SharedIndependent):
        return summands(kernel.kernel)
    if isinstance(kernel, SeparateIndependent):
        return min((summands(of_latent) for of_latent in kernel.kernels), key=len)
    if isinstance(kernel, OrthogonalAdditive):
        return list(kernel.subsets)
    if isinstance(kernel, Sum):
        return list(range(len(kernel.kernels)))
    raise ValueError(
        "kernel must be a Sum or an OrthogonalAdditive, or a SharedIndependent or "
        f"SeparateIndependent of such kernels. Found: {type(kernel).__name__}."
    )
