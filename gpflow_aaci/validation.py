"""Input checks that speak the same language eagerly and inside ``tf.function``."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.config import default_float
from gpflow.likelihoods import Likelihood, ScalarLikelihood, Softmax, SwitchedLikelihood


class Check(NamedTuple):
    """A condition that must hold, what to say where it does not, and what was found instead."""

    condition: tf.Tensor  # [], bool
    message: str  # names the argument and says what is accepted
    found: Callable[[], tf.Tensor]  # called only on failure


def require(checks: Sequence[Check]) -> tf.Tensor:
    """
    Raise unless every check holds.

    :return: a tensor for ``tf.control_dependencies``: what depends on it runs after the checks.
    :raises ValueError: eagerly.
    :raises tf.errors.InvalidArgumentError: when a compiled function runs.
    """
    if tf.executing_eagerly():
        for check in checks:
            if not check.condition:
                found = tf.convert_to_tensor(check.found()).numpy()
                raise ValueError(f"{check.message} Found: {found}.")
        return tf.constant(True)

    def fail() -> tf.Tensor:
        # Without a branch for each check, which would take long to trace; the first that fails.
        failed: list[tf.Operation] = []
        for check in checks:
            with tf.control_dependencies(failed):
                data = [check.message, "Found:", check.found()]
                failed = [tf.raw_ops.Assert(condition=check.condition, data=data, summarize=10)]
        with tf.control_dependencies(failed):
            return tf.constant(False)

    all_hold = tf.reduce_all([check.condition for check in checks])
    return tf.cond(all_hold, lambda: tf.constant(True), fail)


def check_finite(name: str, value: tf.Tensor) -> Check:
    """``value`` must hold neither NaN nor infinity."""
    return Check(
        # 0·x is 0 for finite x only, and NaN survives the sum: one pass, no mask.
        tf.reduce_sum(0.0 * value) == 0.0,
        f"{name} must be finite.",
        lambda: some(value, ~tf.math.is_finite(value)),
    )


def some(values: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
    """The first ten of them; ``where`` has their shape."""
    return tf.gather_nd(tf.reshape(values, [-1]), tf.where(tf.reshape(where, [-1]))[:10])


def check_count(name: str, value: Any, least: int) -> None:
    """
    :raises ValueError: unless it is an integer of at least that.
    """
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}. Found: {value!r}.")


def check_positive(name: str, value: Any) -> None:
    """
    :raises ValueError: unless it is a finite number above 0.
    """
    if not 0.0 < value < np.inf:
        raise ValueError(f"{name} must be above 0. Found: {value}.")


def check_one_of(name: str, value: Any, accepted: Sequence[str]) -> None:
    """
    :raises ValueError: unless it is.
    """
    if value not in accepted:
        listed = ", ".join(f'"{one}"' for one in accepted)
        raise ValueError(f"{name} must be one of {listed}. Found: {value!r}.")


def as_observed(likelihood: Likelihood, Y: TensorType) -> tf.Tensor:
    """
    Y as a likelihood of GPflow's own takes it: of ``default_float()``, or integers.

    Its ``Softmax`` takes no other labels; of classes they may be integers, and stay so.
    """
    Y = Y if tf.is_tensor(Y) else np.asarray(Y)
    is_integer = tf.as_dtype(Y.dtype).is_integer
    if isinstance(likelihood, Softmax) and not is_integer:
        return tf.cast(Y, tf.int64)
    is_label = is_integer and not isinstance(likelihood, ScalarLikelihood)
    return tf.convert_to_tensor(Y) if is_label else as_default_float(Y)


def num_observed_columns(likelihood: Likelihood, Y: TensorType, num_latent_gps: int) -> int:
    """Columns that Y must have for a likelihood of GPflow's own."""
    if isinstance(likelihood, ScalarLikelihood):
        # A switched likelihood has one more, which says by which of its parts y was observed.
        return num_latent_gps + isinstance(likelihood, SwitchedLikelihood)
    columns = likelihood.observation_dim
    return int(np.shape(Y)[-1]) if columns is None else int(columns)  # Softmax does not say


def as_default_float(value: TensorType) -> tf.Tensor:
    """A tensor of ``default_float()``; TensorFlow by itself rounds Python lists to float32."""
    if not tf.is_tensor(value):
        value = np.asarray(value)
    return tf.cast(value, default_float())


@check_shapes(
    "X: [N, D]",
    "Y: [N, P]",
    "return[0]: [N, D]",
    "return[1]: [N, P]",
)
def checked_data(
    X: TensorType,
    Y: TensorType,
    *,
    num_observed: int,
    num_outputs: int,
    input_dim: int | None = None,
    num_data: TensorType | None = None,
    check_labels: Callable[[tf.Tensor], Sequence[Check]] = lambda Y: (),
    may_be_empty: bool = False,
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    The training data [N, D], [N, P] as tensors of ``default_float()``, or a clear error.

    The returned tensors depend on the checks, so that nothing computed from them (an assignment
    least of all) runs before the checks have passed.

    :param num_observed, num_outputs: columns of Y, and of the f that they are observations of.
    :raises ValueError: for non-finite or empty data, dimensions that disagree, more rows than
        ``num_data``, or labels that ``check_labels`` refuses. Values are checked when a compiled
        function runs, which raises ``tf.errors.InvalidArgumentError`` with the same message.
    """
    X, Y = as_default_float(X), as_default_float(Y)
    for name, value in (("X", X), ("Y", Y)):
        if value.shape.rank not in (2, None):
            raise ValueError(f"{name} must be a matrix, one row per datum. Found: {value.shape}.")
    N = tf.shape(X)[0]
    of_latents = num_observed == num_outputs
    wording = (
        "as many columns as latent GPs" if of_latents else "the likelihood's number of columns"
    )
    checks = [
        Check(
            _has_shape(X, None, input_dim),
            f"X must have as many columns as inducing_variable, {input_dim}.",
            lambda: tf.shape(X)[-1],
        ),
        Check(
            _has_shape(Y, N, num_observed),
            f"Y must have as many rows as X, and {wording}, {num_observed}.",
            lambda: tf.shape(Y),
        ),
        Check((N > 0) | may_be_empty, "X must have at least one row.", lambda: tf.shape(X)),
        check_finite("X", X),
        check_finite("Y", Y),
        *check_labels(Y),
    ]
    if num_data is not None:
        num_data = tf.cast(num_data, N.dtype)
        checks.append(
            Check(
                num_data >= N,
                "num_data must be at least the number of rows of a batch.",
                lambda: tf.stack([num_data, N]),
            )
        )
    with tf.control_dependencies([require(checks)]):
        # What the checks have found out, tracing may now know.
        return tf.ensure_shape(X, [None, input_dim]), tf.ensure_shape(Y, [None, num_observed])


def as_matrix(value: TensorType) -> TensorType:
    """The numbers of a frame, or as one column those of a ``Series`` of pandas."""
    value = value.to_frame() if hasattr(value, "to_frame") else value
    return as_default_float(value) if hasattr(value, "to_numpy") else value


def _has_shape(value: tf.Tensor, rows: tf.Tensor | None, columns: int | None) -> tf.Tensor:
    """Whether ``value`` is [rows, columns], None for any, also where tracing knows no rank."""
    shape = tf.shape(value)
    padded = tf.concat([shape, [-1, -1]], axis=0)
    right = tf.equal(tf.size(shape), 2)
    for at, wanted in enumerate((rows, columns)):
        if wanted is not None:
            right &= tf.equal(padded[at], wanted)
    return right
