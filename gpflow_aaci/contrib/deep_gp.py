r"""
Deep GPs: layers of sparse GPs; the outputs of each layer are the inputs of the next.

The layers are those of *Doubly Stochastic Variational Inference for Deep Gaussian Processes*
(Salimbeni and Deisenroth, NIPS 2017): inducing variables for each layer, and a mean function that
carries a layer's inputs to its outputs. There is no variational q: stochastic-gradient HMC draws
the inducing variables of all layers (Havasi, Hernández-Lobato and Murillo-Fuentes, NeurIPS 2018),
and also hyperparameters and inducing points (Rossi, Heinonen, Bonilla, Shen and Filippone, AISTATS
2021).
"""

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow import Parameter
from gpflow.base import AnyNDArray, TensorType
from gpflow.functions import Identity, MeanFunction, Zero
from gpflow.inducing_variables import InducingPoints
from gpflow.inducing_variables.inducing_variables import InducingPointsBase
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Likelihood
from gpflow.utilities import to_default_float

from ..models.shared import covariance_of_latents
from ..predictions.f import coloured
from ..sampling.conditionals import normal
from ..sampling.latents import f_given_v, project_at


def whitened_variables(num_inducing: int, num_latent_gps: int) -> Parameter:
    """v [M, L] = 0, with its standard normal prior."""
    standard = tfp.distributions.Normal(to_default_float(0.0), to_default_float(1.0))
    return Parameter(np.zeros([num_inducing, num_latent_gps]), prior=standard)


class HiddenLayer(gpflow.Module):
    """A sparse GP with ``num_latent_gps`` outputs, independent given v, that share a kernel."""

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: InducingPoints,
        mean_function: MeanFunction,
        num_latent_gps: int,
    ) -> None:
        super().__init__()
        self.kernel, self.inducing_variable = kernel, inducing_variable
        self.mean_function, self.num_latent_gps = mean_function, num_latent_gps
        self.v = whitened_variables(inducing_variable.num_inducing, num_latent_gps)

    @check_shapes("X: [N, D]", "return: [N, L]")
    def draw(self, X: TensorType, seed: Any, full_cov: bool) -> tf.Tensor:
        """Outputs at X given v: independent given X, or jointly Gaussian if ``full_cov``."""
        projection = project_at(self, X)
        mean, variance = f_given_v(projection, self.v)
        if full_cov:
            A = projection.A
            variance = covariance_of_latents(self.kernel, X) - tf.matmul(A, A, transpose_a=True)
        return mean + coloured(normal(tf.shape(mean), seed)[None], variance, full_cov)[0]


class DeepGP(gpflow.Module):
    r"""
    A deep GP with one or more layers, which ``SGHMC`` samples.

    A layer's outputs are its mean function plus GPs that share a kernel and inducing points. Each
    layer has as many outputs as the next layer has inputs. The model's own attributes describe the
    last layer, so a deep GP with one layer is an ``SVGP`` without q; ``hidden_layers`` holds the
    other layers. Give every trainable parameter a prior, or make it not trainable; each hidden
    layer's ``v`` has its standard normal prior::

        kernels = [gpflow.kernels.RBF(0.1), gpflow.kernels.RBF()]
        model = contrib.DeepGP(kernels, likelihoods.Gaussian(0.1), [Z, Z])
        gpflow.set_trainable(model, False)
        samples = sample_posterior(model, (X, Y), contrib.SGHMC())
        mean, variance = predictions.predict_y(model, X, samples=samples)

    The draws ``u`` belong to the last layer; ``hidden_layers[0].v`` holds the first layer's
    whitened inducing variables. Hidden outputs h are drawn anew for each row and step, so the
    target has E_h log E p(y|f) for each datum, which is at most log E_h E p(y|f): with hidden
    layers, the draws follow the posterior only to the extent that v determines h. Predictions are
    mixtures over all draws, each with one draw of h. There is no ``elbo`` and no q.
    """

    def __init__(
        self,
        kernels: Sequence[Kernel],
        likelihood: Likelihood,
        inducing_variables: Sequence[AnyNDArray | InducingPoints],
        *,
        mean_functions: Sequence[MeanFunction] | None = None,
        num_latent_gps: int = 1,
    ) -> None:
        """
        :param kernels: one for each layer, beginning with the first layer.
        :param likelihood: p(y|f) of the last layer's f.
        :param inducing_variables: one for each layer, [M, D] with D its number of inputs.
        :param mean_functions: one for each layer. Default: zero for the last layer, and for the
            others the identity, which needs as many outputs as inputs.
        :param num_latent_gps: the number of outputs of the last layer.
        :raises ValueError: for sequences of different lengths, kernels with several outputs,
            inducing variables other than points, and layers that change the number of inputs
            without a mean function.
        """
        super().__init__()
        points = [gpflow.models.util.inducingpoint_wrapper(Z) for Z in inducing_variables]
        for each in points:
            if not isinstance(each, InducingPointsBase):
                raise ValueError(
                    f"inducing_variables must be points Z [M, D]. Found: {type(each).__name__}."
                )
        widths = [each.Z.shape[-1] for each in points]
        if mean_functions is None:
            if len(set(widths)) > 1:
                raise ValueError(
                    "mean_functions must be given if layers have different numbers of inputs. "
                    f"Found: inputs {widths}."
                )
            mean_functions = [*(Identity() for _ in points[1:]), Zero(num_latent_gps)]
        if not len(kernels) == len(points) == len(mean_functions) > 0:
            raise ValueError(
                "kernels, inducing_variables and mean_functions must have one entry for each layer."
                f" Found: {len(kernels)}, {len(points)} and {len(mean_functions)}."
            )
        for kernel in kernels:
            if not isinstance(kernel, Kernel) or isinstance(kernel, MultioutputKernel):
                raise ValueError(
                    f"kernels must be single-output kernels. Found: {type(kernel).__name__}."
                )
        *hidden, last = zip(kernels, points, mean_functions, strict=True)
        of_hidden = zip(hidden, widths[1:], strict=True)
        self.input_dim, self.num_latent_gps = widths[0], num_latent_gps
        # Parameters are drawn in the order in which they are found here, which is an SVGP's.
        self.kernel, inducing_variable, self.mean_function = last
        self.likelihood, self.inducing_variable = likelihood, inducing_variable
        self.hidden_layers = [HiddenLayer(*layer, width) for layer, width in of_hidden]

    @property
    def hidden_v(self) -> dict[str, Parameter]:
        """Map the names of the hidden layers' whitened inducing variables to v [M, L]."""
        return {f"hidden_layers[{i}].v": layer.v for i, layer in enumerate(self.hidden_layers)}

    @check_shapes("X: [N, D]", "return: [N, L]")
    def draw_hidden(self, X: TensorType, seed: Any, full_cov: bool = False) -> tf.Tensor:
        """
        Draw the last hidden layer's outputs at X given every v; return X if there is one layer.

        :param full_cov: whether rows are drawn jointly. Independent draws cost less.
        """
        seeds = tfp.random.split_seed(seed, n=max(1, len(self.hidden_layers)), salt="deep_gp")
        for layer, own_seed in zip(self.hidden_layers, seeds, strict=False):
            X = layer.draw(X, own_seed, full_cov)
        return X
