"""Warnings about a fitted model: why it may be worse than it could be."""

from collections.abc import Iterator, Sequence

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_jitter
from gpflow.functions import Constant
from gpflow.kernels import Kernel

from ..effects import known_levels
from ..kernels import basic_kernels, columns_of_f
from ..models import AugmentedModel, AugmentedSVGP
from .rescues import largest_variance, noise_and_signal, signal_parameters
from .settings import SETTINGS

_MOST_UNEXPLAINED = 0.1  # of the prior variance of f, that Z leaves
_FARTHEST = 100.0  # ranges of an input, for a lengthscale
_UNITS = 100.0  # between the standard deviation of an input and 1
_AT_BOUND = 1e-3  # relative to the bound, or to 1 where that is 0
_LEAST_JITTER_RATIO = 100.0  # kernel variance over jitter: beyond 1 %, jitter is noise
_MOST_ROWS = 2_000  # that are looked at
_MOST_LISTED = 4  # columns


def advice(model: AugmentedModel, X: AnyNDArray, names: Sequence[str] = ()) -> list[str]:
    """
    Return warnings as sentences; an empty list if there is nothing to warn about.

    :param X: [N, D], the inputs of all rows or of a part.
    :param names: [D], of the columns of X. Default: their numbers.
    """
    called = [*map(repr, names or range(X.shape[1]))]
    said = [*_of_inputs(model.kernel, X), *_of_signal(model)]
    said += _of_levels(model.kernel, X, called)
    if isinstance(model, AugmentedModel):  # a model without q uses no jitter
        said += [*of_jitter(model), *_of_rounding(model)]
    said += [*_of_lengthscales(model.kernel, X, called), *_of_likelihood(model)]
    if isinstance(model, AugmentedSVGP):
        said += _of_inducing_points(model, X[:: -(-len(X) // _MOST_ROWS)])
    return said


def _of_levels(kernel: Kernel, X: AnyNDArray, called: Sequence[str]) -> Iterator[str]:
    for column, levels in known_levels(kernel).items():
        unknown = ~np.isin(X[:, column], levels)
        if unknown.any():
            yield (
                f"{unknown.sum()} of {len(X)} rows have a level in column {called[column]} of X "
                f"that effects.Grouped does not have, such as {X[unknown, column][0]:g}: their "
                "groups are not learnt, and its variance is too small. Give all levels."
            )


def _of_inducing_points(model: AugmentedModel, X: AnyNDArray) -> Iterator[str]:
    projection = model.project(tf.constant(X))
    share = float(tf.reduce_mean(projection.unexplained / model.cross_covariance(X)[1]))
    if share > _MOST_UNEXPLAINED:
        yield (
            f"The {model.q_mu.shape[0]} inducing points leave {100 * share:.0f} % of the prior "
            "variance of f at the data unexplained (mean of (k_ii − q_ii)/k_ii): with more of "
            "them the model may fit better."
        )


def _of_inputs(kernel: Kernel, X: AnyNDArray) -> Iterator[str]:
    """Whether a lengthscale is of order 1 where the standard deviation of its column is not."""
    all_sd = X[:, : columns_of_f(kernel, X.shape[1])].std(0)
    for part in basic_kernels(kernel):
        lengthscales = getattr(part, "lengthscales", None)
        if lengthscales is None:
            continue
        sd = all_sd[part.active_dims]
        lengthscales = np.broadcast_to(lengthscales, sd.shape)[sd > 0.0]
        sd = sd[sd > 0.0]
        is_far = (np.abs(np.log(sd)) > np.log(_UNITS)) & (np.abs(np.log(lengthscales)) < np.log(10))
        if is_far.any():
            found = f"column of X is not scaled: its standard deviation is {sd[0]:.2g}"
            if len(sd) > 1:
                found = (
                    "columns of X are not scaled: their standard deviations range from "
                    f"{sd.min():.2g} to {sd.max():.2g}"
                )
            yield (
                f"The {found}. Lengthscales of order 1, as GPflow begins with, suit columns that "
                "are divided by their standard deviation; kernels.start(X) begins with others."
            )


def of_jitter(model: AugmentedModel) -> Iterator[str]:
    """Whether the jitter, an absolute number, is small beside the kernel's variance."""
    jitter, least = default_jitter(), _LEAST_JITTER_RATIO
    variance = float(tf.reduce_max(model.prior_variance()))
    if variance < least * jitter:
        yield (
            f"The kernel's variance is {variance:.2g} after the fit, less than {least:g} times "
            f"default_jitter, {jitter:.2g}. Either f is nearly constant, or Y has too large a unit "
            "for that jitter: give it another, or lower gpflow.config.default_jitter()."
        )


def _of_rounding(model: AugmentedModel) -> Iterator[str]:
    variances = [float(p.numpy()) for p, _ in signal_parameters(model.kernel, 1.0)]
    if max(variances, default=0.0) > 0.5 * largest_variance(model):
        yield (
            f"A variance of the kernel is {max(variances):.2g} after the fit, as large as the "
            "rounding errors of K_ZZ allow: f is so smooth that it is nearly a polynomial of X. A "
            "rougher kernel, such as Matern52, or fewer inducing points may fit better."
        )


def _of_signal(model: AugmentedModel) -> Iterator[str]:
    noise, signal = noise_and_signal(model)
    # A mean function of X may explain everything by itself.
    if isinstance(model.mean_function, Constant) and noise > SETTINGS.no_signal * signal:
        yield (
            "f explains almost nothing of Y: its standard deviation is "
            f"{signal:.2g} beside noise of {noise:.2g}. Either X does not predict Y, or another "
            "start would find more: kernel variance and noise of the size of Y's variance, "
            "lengthscales of √D times the standard deviations of the D columns of X, as "
            "kernels.start(X) has them."
        )


def _of_lengthscales(kernel: Kernel, X: AnyNDArray, called: Sequence[str]) -> Iterator[str]:
    X = X[:, : columns_of_f(kernel, X.shape[1])]
    for part in basic_kernels(kernel):
        lengthscales = getattr(part, "lengthscales", None)
        if lengthscales is None:
            continue
        inputs = np.arange(X.shape[1])[part.active_dims]
        ranges = np.ptp(X[:, inputs], axis=0)
        if lengthscales.shape.rank == 0:
            ranges = ranges.max()
        ratio = np.ravel(lengthscales.numpy() / np.where(ranges > 0.0, ranges, np.inf))
        far = np.flatnonzero(ratio > _FARTHEST)
        if len(far):
            one = len(far) == 1
            those = inputs[far] if len(ratio) == len(inputs) else inputs  # or one for all of these
            of = f"column{'s'[len(those) == 1 :]} {_listed([called[column] for column in those])}"
            of = "all columns" if len(ratio) < len(those) == X.shape[1] else of
            exceed, these = ("exceeds", "it") if one else ("exceed", "these")
            yield (
                f"{len(far)} of {len(ratio)} lengthscales of {type(part).__name__} {exceed} the "
                f"range of the input more than {_FARTHEST:g} times ({of}): f hardly depends on "
                f"{these}."
            )


def _listed(columns: Sequence[str]) -> str:
    """What the first few columns are called, and how many more there are."""
    more = len(columns) - _MOST_LISTED
    listed = ", ".join(columns[:_MOST_LISTED])
    return f"{listed} and {more} more" if more > 0 else listed


def _of_likelihood(model: AugmentedModel) -> Iterator[str]:
    for path, parameter in gpflow.utilities.parameter_dict(model.likelihood).items():
        if not (isinstance(parameter, gpflow.Parameter) and parameter.trainable):
            continue
        value = parameter.numpy()
        for bounds in _bounds(parameter):
            closest = _AT_BOUND * np.where(bounds == 0.0, _AT_BOUND, np.abs(bounds))
            reached = bounds[np.isfinite(bounds) & (np.abs(value - bounds) <= closest)]
            if len(reached):
                yield (
                    f"likelihood{path} is {np.array2string(value, precision=4)}, at the bound "
                    f"{reached[0]:.4g} of its range: another likelihood may suit the data "
                    "better."
                )


def _bounds(parameter: gpflow.Parameter) -> Iterator[AnyNDArray]:
    """The bounds that a transform sets, in the parameter's shape; some may be infinite."""
    transform = parameter.transform
    # A transform of whole vectors or matrices has no bounds for single elements.
    if transform is None or transform.forward_min_event_ndims > 0:
        return
    for end in (-np.inf, np.inf):
        unconstrained = np.full(parameter.unconstrained_variable.shape, end)
        yield np.asarray(transform.forward(tf.constant(unconstrained, parameter.dtype)))
