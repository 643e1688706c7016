"""
Shapes of f, for the kernel :class:`~gpflow_aaci.kernels.WithDerivatives`.

That f rises at a point is a datum there: the label 1 of probability σ(f′/ν), with a small ν
(Riihimäki and Vehtari, AISTATS 2010, who have Φ instead of σ). So a constraint leaves the steps in
closed form and Gibbs sampling exact. Given Pólya-Gamma variables f′ moves by about √(f′ν) in a
sweep; given those of Φ it would move by ν, and hardly mix.
"""

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData, TensorType
from gpflow.likelihoods import Likelihood

from .likelihoods import AugmentedLikelihood, Logistic, Switched, Warped, augmented
from .likelihoods.derived import delegated, of_base
from .likelihoods.observations import is_any_real
from .validation import (
    as_default_float,
    as_matrix,
    as_pair,
    check_finite,
    check_index,
    check_positive,
    check_rank,
    require,
    shown,
)


def of_f(X: TensorType) -> tf.Tensor:
    """The rows [N, D + 1] of f at X [N, D], for data and predictions."""
    return _with_column(_checked(X, "X"), 0)


def of_slope(X: TensorType, column: int) -> tf.Tensor:
    """
    The rows [N, D + 1] of ∂f/∂x at X [N, D], for the x in ``column``.

    :param column: from 0 to D − 1.
    :raises ValueError: for X that is not finite, and for another column.
    """
    return _of_derivative(_checked(X, "X"), 1, column)


def of_curvature(X: TensorType, column: int) -> tf.Tensor:
    """
    The rows [N, D + 1] of ∂²f/∂x² at X [N, D], for ``WithDerivatives(kernel, input_dim, order=2)``.

    :param column: from 0 to D − 1.
    :raises ValueError: for X that is not finite, and for another column.
    """
    return _of_derivative(_checked(X, "X"), 2, column)


def constrained(
    data: RegressionData,
    likelihood: Likelihood,
    at: TensorType,
    *,
    increasing: int | Sequence[int] = (),
    decreasing: int | Sequence[int] = (),
    convex: int | Sequence[int] = (),
    concave: int | Sequence[int] = (),
    softness: float = 0.02,
) -> tuple[RegressionData, "Shaped"]:
    """
    The data and the likelihood of a model whose f has a shape.

    More of a poison does not make roots grow, whatever outliers say::

        kernel = WithDerivatives(SquaredExponential(), input_dim=1)
        noise, at = StudentT(), np.linspace(0.0, 30.0, 16)[:, None]
        fit(AugmentedVGP((shapes.of_f(X), Y), kernel, noise))
        data, likelihood = shapes.constrained((X, Y), noise, at, decreasing=0)
        model = AugmentedVGP(data, kernel, likelihood)
        polish(model)
        y, variance = model.predict_y(shapes.of_f(Xnew))

    The hyperparameters are best learnt without the constraint, as here: those for which y and the
    constraint together are most likely are also those under which most f have the shape anyway,
    which are too smooth. Where f is flat, many constraints move its slope away from 0, even in the
    exact posterior (Zhou, Ray, Pati and Bhattacharya 2022): a smaller number of points, half a
    lengthscale or more apart, does so less, and f is hardly ever wrong between them.

    All latent GPs have the shape. A constraint counts as a row in ``num_data``, in the ELBO and in
    the results of ``loo``.

    :param data: X [N, D] and Y [N, P].
    :param likelihood: of these rows; a product over outputs.
    :param at: [V, D], the points at which f is constrained.
    :param increasing, decreasing: columns of X, from 0 to D − 1, in which f may not fall or rise.
    :param convex, concave: columns in which ∂²f/∂x² may not be negative or positive. For them write
        ``WithDerivatives(kernel, input_dim, order=2)``.
    :param softness: a slope of the wrong sign and size ν is e times less likely than 0, where ν is
        ``softness`` times the standard deviation of y over the standard deviation of x. For a
        curvature it is over the square of the latter. Where y is a count, a label, a positive
        number, an interval or warped, 1 takes the place of the standard deviation of y. Gibbs
        sampling mixes more slowly if ``softness`` is less.
    :return: (X [N + C V, D + 1], Y [N + C V, P + 1]), with C constraints; and the likelihood.
    :raises ValueError: for bad data, points or columns, no constraint, or two of one derivative,
        and for a likelihood that is no product over outputs.
    """
    X, Y = as_pair(data)
    X, Y, at = _checked(X, "X"), as_default_float(Y, "Y"), _checked(at, "at")
    if at.shape[1] != X.shape[1]:
        raise ValueError(f"at must have {X.shape[1]} columns, as X. Found: {at.shape[1]}.")
    check_positive("softness", softness)
    likelihood = augmented(likelihood)
    shapes = {
        "increasing": (increasing, 1, 1.0),
        "decreasing": (decreasing, 1, -1.0),
        "convex": (convex, 2, 1.0),
        "concave": (concave, 2, -1.0),
    }
    wanted = [
        (order, column, sign, name)
        for name, (columns, order, sign) in shapes.items()
        for column in np.ravel(columns)
    ]
    if len({constraint[:2] for constraint in wanted}) < max(1, len(wanted)):
        found = ", ".join(f"{name}={shown(columns)}" for name, (columns, _, _) in shapes.items())
        raise ValueError(
            "increasing, decreasing, convex and concave must name at least one column, and none "
            f"twice for one derivative. Found: {found}."
        )
    inputs, outputs, parts = [of_f(X)], [_with_column(Y, 0)], [likelihood]
    for part, (order, column, sign, name) in enumerate(wanted, 1):
        inputs.append(_of_derivative(at, order, column, name))
        labels = tf.ones([len(at), Y.shape[1]], Y.dtype) * sign
        outputs.append(_with_column(labels, part))
        unit = _spread(likelihood.response(Y) if _is_real(likelihood) else None)
        parts.append(Sign(softness * unit / _spread(X[:, column]) ** order))
    return (tf.concat(inputs, 0), tf.concat(outputs, 0)), Shaped(parts)


class Shaped(Switched):
    """``Switched`` between the likelihood of y, part 0, and constraints; a new y is of part 0."""

    def __init__(self, likelihoods: Sequence[AugmentedLikelihood], **kwargs: Any) -> None:
        """
        :param likelihoods: the likelihood of y, and one for each constraint.
        :raises ValueError: as ``Switched``.
        """
        super().__init__(likelihoods, **kwargs)
        for name in ("labels", "lowest", "is_density"):
            setattr(self, name, getattr(self.base, name))

    @property
    def base(self) -> AugmentedLikelihood:
        """The likelihood of y."""
        return self.likelihoods[0]

    outcomes = in_support = draw_y = of_base()
    _conditional_mean = _conditional_variance = _predict_mean_and_var = of_base()

    def as_observed(self, y: TensorType) -> tf.Tensor:
        return _with_column(self.base.as_observed(y), 0)


class Sign(Logistic):
    """σ(y f/ν): f, here a slope or a curvature, has the sign y = ±1."""

    def __init__(self, nu: float, **kwargs: Any) -> None:
        """
        :param nu: ν, in the unit of f.
        :raises ValueError: unless it is positive.
        """
        check_positive("nu", nu)
        super().__init__(**kwargs)
        # Not a number, so that models with another ν share compiled functions.
        self.nu = gpflow.Parameter(nu, transform=gpflow.utilities.positive(), trainable=False)

    def g(self, Y: TensorType) -> tf.Tensor:
        return super().g(Y) / self.nu

    def gamma(self, Y: TensorType) -> tf.Tensor:
        return super().gamma(Y) / self.nu**2

    def log_probability(self, yF: TensorType) -> tf.Tensor:
        return super().log_probability(yF / self.nu)

    def _of_scaled_f(
        self, name: str, X: TensorType, marginals: Sequence[TensorType], Y: TensorType
    ) -> tf.Tensor:
        Fmu, Fvar = marginals
        return getattr(super(), name)(X, Fmu / self.nu, Fvar / self.nu**2, Y)

    expected_log_prob = predictive_log_density = delegated(_of_scaled_f)


def _checked(X: TensorType, name: str) -> tf.Tensor:
    X = as_default_float(as_matrix(X, name), name)
    check_rank(name, X.shape.rank)
    with tf.control_dependencies([require([check_finite(name, X)])]):
        return tf.identity(X)


def _with_column(values: tf.Tensor, last: int) -> tf.Tensor:
    return tf.concat([values, tf.zeros_like(values[..., :1]) + float(last)], -1)


def _of_derivative(X: tf.Tensor, order: int, column: int, name: str = "column") -> tf.Tensor:
    D = X.shape[1]
    check_index(name, column, D)
    return _with_column(X, (order - 1) * D + int(column) + 1)


def _is_real(likelihood: AugmentedLikelihood) -> bool:
    """Whether f has the unit of y, which is any real number."""
    is_transformed = isinstance(likelihood, Warped) or likelihood.is_interval
    return is_any_real(likelihood) and not is_transformed


def _spread(values: TensorType | None) -> float:
    """The standard deviation of what is finite; 1 where it is 0 or there is nothing."""
    finite: AnyNDArray = np.ravel([] if values is None else values)
    finite = finite[np.isfinite(finite)]
    return float(np.std(finite)) or 1.0 if finite.size else 1.0
