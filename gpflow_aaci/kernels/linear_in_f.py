"""The base class of kernels of functionals of f, such as differences and derivatives."""

import abc

import tensorflow as tf
from gpflow import covariances
from gpflow.base import TensorType
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel


class LinearInF(Kernel, abc.ABC):
    """The kernel of functionals of f, which rows of X describe; a row of D columns is f itself."""

    def __init__(self, kernel: Kernel, input_dim: int, name: str | None = None) -> None:
        """
        :param kernel: the kernel of f, with one output.
        :param input_dim: D, the number of columns of an input x of f.
        :raises ValueError: if ``input_dim`` is not a positive integer.
        """
        if not (input_dim >= 1 and float(input_dim).is_integer()):
            raise ValueError(
                f"{type(self).__name__}: input_dim must be a whole number of at least 1. "
                f"Found: {input_dim!r}."
            )
        super().__init__(name=name)
        self.kernel = kernel
        self.input_dim = int(input_dim)

    @property
    @abc.abstractmethod
    def num_columns(self) -> int:
        """Columns of X."""

    def __call__(
        self,
        X: TensorType,
        X2: TensorType | None = None,
        *,
        full_cov: bool = True,
        presliced: bool = False,
    ) -> tf.Tensor:
        """As for every GPflow kernel, but X and X2 may each have as many columns as an x."""
        if full_cov:
            return self.K(X, X2)
        if X2 is not None:
            raise ValueError("X2 must not be given with full_cov=False.")
        return self.K_diag(X)


@covariances.Kuf.register(InducingPoints, LinearInF, object)
def _covariance_of_f_and_functionals(
    inducing_variable: InducingPoints, kernel: LinearInF, X: TensorType
) -> tf.Tensor:
    """The covariance [M, N] of f at Z and what the rows of X describe."""
    return kernel(inducing_variable.Z, X)


def columns_of_f(kernel: Kernel, num_columns: int | None) -> int | None:
    """How many of so many columns of X are an input of one f."""
    return kernel.input_dim if isinstance(kernel, LinearInF) else num_columns


def columns_of_x(kernel: Kernel, num_columns: int | None) -> int | None:
    """
    How many columns X has, where inducing points have so many.

    :raises ValueError: if that is not as many as an input of f has.
    """
    if num_columns is None or not isinstance(kernel, LinearInF):
        return num_columns
    if num_columns != kernel.input_dim:
        raise ValueError(
            f"inducing_variable must be inputs of f with {kernel.input_dim} columns for the kernel "
            f"{type(kernel).__name__}. Found: {num_columns}."
        )
    return kernel.num_columns
