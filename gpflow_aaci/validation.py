"""Input checks that raise the same messages eagerly and inside ``tf.function``."""

import numbers
import re
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, RegressionData, TensorType
from gpflow.config import default_float
from gpflow.likelihoods import Likelihood, ScalarLikelihood, Softmax, SwitchedLikelihood

from .levels import Levels, are_codes, as_codes, holds_words, meanings

T = TypeVar("T")

# "<module.Class object at 0x7f…>" and "<function name at 0x7f…>"
_ADDRESS = re.compile(r"<(?:function )?(\S+)(?: object)? at 0x[0-9a-f]+>")


class Check(NamedTuple):
    """A condition that must hold, and the message of the error that is raised otherwise."""

    condition: tf.Tensor  # [], bool
    message: str  # names the argument and says what is accepted
    found: Callable[[], tf.Tensor]  # returns what was given instead; called only on failure


def require(checks: Sequence[Check]) -> tf.Tensor:
    """
    Raise an error unless every check holds.

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
        # One branch for all checks, as a branch for each takes long to trace. The assertions run in
        # order, so that the first check which fails raises.
        failed: list[tf.Operation] = []
        for check in checks:
            with tf.control_dependencies(failed):
                data = [check.message, "Found:", check.found()]
                failed = [tf.raw_ops.Assert(condition=check.condition, data=data, summarize=10)]
        with tf.control_dependencies(failed):
            return tf.constant(False)

    all_hold = tf.reduce_all([check.condition for check in checks])
    return tf.cond(all_hold, lambda: tf.constant(True), fail)


def shown(value: Any) -> str:
    """
    The ``repr`` of what was found, for an error message.

    Objects without a ``repr`` of their own are called by their class, and functions by their name,
    instead of by their address.
    """
    return _ADDRESS.sub(r"\1", repr(value))


def message_of(error: Exception) -> str:
    """
    Return the message of an error in one line.

    If a check has failed in a compiled function, it is the message that :func:`require` raises
    eagerly, without TensorFlow's report about the graph.
    """
    assertion = re.search(r"assertion failed: (.*)", str(error))
    if assertion is None:
        return getattr(error, "message", None) or str(error)
    parts = assertion.group(1).replace("] [", " ")
    return parts.removeprefix("[").removesuffix("]") + "."


def unless_cholesky_fails(compute: Callable[[], T], otherwise: T) -> T:
    """
    Return ``compute()``; or ``otherwise``, if TensorFlow says that a matrix has no Cholesky factor.

    Most versions of TensorFlow return a factor of NaN instead. All other errors are raised as they
    are: an index out of range and shapes that do not match are ``InvalidArgumentError``, too.
    """
    try:
        return compute()
    except tf.errors.InvalidArgumentError as error:
        if "Cholesky decomposition was not successful" in error.message:
            return otherwise
        raise


def check_finite(name: str, value: tf.Tensor) -> Check:
    """Check that ``value`` has no NaN and no infinity."""
    return Check(
        # 0·x is 0 for finite x only, and NaN survives the sum: one pass, no mask.
        tf.reduce_sum(0.0 * value) == 0.0,
        f"{name} must be finite.",
        lambda: some(value, ~tf.math.is_finite(value)),
    )


def check_all(values: tf.Tensor, right: tf.Tensor, message: str) -> Check:
    """Check that ``right``, of the same shape, is true of all ``values``."""
    return Check(tf.reduce_all(right), message, lambda: some(values, ~right))


def check_rows(Y: tf.Tensor, right: tf.Tensor, message: str) -> Check:
    """Check that ``right`` [..., N, 1] is true of all rows of Y [..., N, P]."""
    return Check(tf.reduce_all(right), message, lambda: tf.boolean_mask(Y, ~right[..., 0])[:10])


def some(values: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
    """Return the first ten ``values`` at which ``where``, of the same shape, is true."""
    return tf.gather_nd(tf.reshape(values, [-1]), tf.where(tf.reshape(where, [-1]))[:10])


def check_levels(name: str, X: tf.Tensor, levels: Levels) -> list[Check]:
    """Check that the columns of X [N, D] that have levels hold the codes of these alone."""

    def check(column: int, known: AnyNDArray) -> Check:
        are_known = are_codes(X[:, column], known)
        message = f"column {column} of {name} must hold levels of the kernel: {meanings(known)}."
        return check_all(X[:, column], are_known, message)

    # A Difference has the levels of x and x′, and may be given x alone.
    return [check(*of_column) for of_column in levels.items() if of_column[0] < X.shape[-1]]


def check_count(name: str, value: Any, least: int) -> None:
    """
    :raises ValueError: unless ``value`` is an integer of at least ``least``.
    """
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}. Found: {shown(value)}.")


def check_index(name: str, index: Any, size: int) -> None:
    """
    :raises ValueError: unless ``index`` is an integer from 0 to ``size`` − 1.
    """
    if not isinstance(index, int | np.integer) or not 0 <= index < size:
        raise ValueError(f"{name} must be an integer from 0 to {size - 1}. Found: {index!r}.")


def check_positive(name: str, value: Any) -> None:
    """
    :raises ValueError: unless ``value`` is a finite number above 0.
    """
    if not 0.0 < value < np.inf:
        raise ValueError(f"{name} must be above 0. Found: {value}.")


def check_one_of(name: str, value: Any, accepted: Sequence[str]) -> None:
    """
    :raises ValueError: unless ``value`` is one of ``accepted``.
    """
    if value not in accepted:
        listed = ", ".join(f'"{choice}"' for choice in accepted)
        raise ValueError(f"{name} must be one of {listed}. Found: {shown(value)}.")


def check_marginal(call: str, full_cov: bool, full_output_cov: bool) -> None:
    """
    :raises NotImplementedError: for the joint distribution of several y, as in GPflow.
    """
    for name, value in (("full_cov", full_cov), ("full_output_cov", full_output_cov)):
        if value:
            raise NotImplementedError(
                f"{call}: {name} must be False, since each y is predicted by itself. "
                "predictions.predict_y_samples with full_cov=True draws the y of all rows jointly. "
                "Found: True."
            )


def as_observed(likelihood: Likelihood, Y: TensorType) -> tf.Tensor:
    """
    Return Y in the dtype that one of GPflow's own likelihoods takes.

    ``Softmax`` takes integer labels only. Other likelihoods of classes take integers or floats, so
    that integers remain as they are. All other Y become ``default_float()``.
    """
    Y = Y if tf.is_tensor(Y) else np.asarray(Y)
    is_integer = tf.as_dtype(Y.dtype).is_integer
    if isinstance(likelihood, Softmax) and not is_integer:
        return tf.cast(Y, tf.int64)
    is_label = is_integer and not isinstance(likelihood, ScalarLikelihood)
    return tf.convert_to_tensor(Y) if is_label else as_default_float(Y)


def num_observed_columns(likelihood: Likelihood, Y: TensorType, num_latent_gps: int) -> int:
    """The number of columns that Y must have for one of GPflow's own likelihoods."""
    if isinstance(likelihood, ScalarLikelihood):
        # One more column of Y tells a switched likelihood which of its likelihoods a row has.
        return num_latent_gps + isinstance(likelihood, SwitchedLikelihood)
    columns = likelihood.observation_dim
    return int(np.shape(Y)[-1]) if columns is None else int(columns)  # None for Softmax


def as_default_float(
    value: TensorType, name: str = "data", levels: Levels | None = None
) -> tf.Tensor:
    """
    Return a tensor of ``default_float()``, without rounding lists to float32 as TensorFlow does.

    :param value: a tensor, an array, a list, or a frame or a ``Series`` of pandas.
    :param name: the name of the argument, for errors.
    :param levels: by which the words in a frame become their codes; None if it may not have words.
    :raises ValueError: for values that are not real numbers, and for masked or missing values.
    """
    return tf.cast(_numbers(value, name, levels), default_float())


def _numbers(value: TensorType, name: str, levels: Levels | None = None) -> TensorType:
    """Return a tensor or array of booleans, integers or floats, in the dtype of ``value``."""
    value = value.to_frame() if hasattr(value, "to_frame") else value
    if hasattr(value, "iloc"):  # a frame of pandas
        columns = [
            of_column(value.iloc[:, at], at, f"column {column!r} of {name}", levels)
            for at, column in enumerate(value.columns)
        ]
        return np.stack(columns, axis=1) if columns else np.zeros([len(value), 0])
    if tf.is_tensor(value):
        kind = _NOT_REAL.get(tf.as_dtype(value.dtype).as_numpy_dtype)
        found = "" if kind is None else f"a tensor of {kind}"
    else:
        value = _unmasked(value, name)
        if value.dtype == object:
            value = _from_objects(value, name)
        found = "" if value.dtype.kind in "biuf" else _described(value)
    if found:
        raise ValueError(f"{name} must be real numbers. Found: {found}.")
    return value


def of_column(column: Any, at: int, name: str, levels: Levels | None) -> TensorType:
    """
    Return the numbers of a ``Series`` of pandas, which is column ``at`` of a frame.

    :param levels: as for :func:`as_default_float`, which raises the same errors.
    """
    known = levels if levels is not None and holds_words(column) else None
    # A dtype of pandas' own may be nullable, and NumPy would turn missing values into NaN.
    if known is not None or not isinstance(column.dtype, np.dtype):
        check_none_missing(int(column.isna().sum()), name)
    if known is not None:
        return as_codes(column, at, known, name)
    return _numbers(np.asarray(column), name)


def check_none_missing(count: int, name: str) -> None:
    """
    :raises ValueError: if ``count`` missing values are not none.
    """
    if count:
        raise ValueError(
            f"{name} must have no missing values: leave their rows out, or fill them in. "
            f"Found: {count} missing."
        )


# What to call the values of tensors that are not real numbers.
_NOT_REAL = {np.complex64: "complex64", np.complex128: "complex128", object: "strings"}


def _unmasked(value: Any, name: str) -> AnyNDArray:
    """
    Return ``value`` as an array.

    :raises ValueError: for lists of unequal lengths, and where values are masked, as NumPy would
        return the numbers under the mask.
    """
    num_masked = int(np.ma.count_masked(value)) if isinstance(value, np.ma.MaskedArray) else 0
    if num_masked:
        raise ValueError(
            f"{name} must have no masked values: leave their rows out, or fill them in. "
            f"Found: {num_masked} masked."
        )
    try:
        return np.asarray(value)
    except ValueError as error:  # NumPy raises it for rows that differ in length
        raise ValueError(f"{name} must be a matrix of numbers. Found: {error}") from error


def _from_objects(value: AnyNDArray, name: str) -> AnyNDArray:
    """
    Return an array of objects, such as NumPy makes of a frame with mixed columns, as floats.

    :raises ValueError: for objects that are not real numbers, such as strings, or missing values.
    """
    missing = [item is None or type(item).__name__ in ("NAType", "NaTType") for item in value.flat]
    check_none_missing(sum(missing), name)
    for item in value.flat:
        if isinstance(item, complex | np.complexfloating) or not isinstance(
            item, numbers.Number | np.bool_
        ):
            found = f"{item!r:.40} of type {type(item).__name__}"
            raise ValueError(f"{name} must be real numbers. Found: {found}.")
    return value.astype(float)


def _described(value: AnyNDArray) -> str:
    """Say what an array holds that has no real numbers, and how to turn it into numbers."""
    first = f", such as {value.flat[0]!s:.40}" if value.size else ""
    if value.dtype.kind in "SU":
        return (
            f"strings{first}. Numbers in their place are numpy.unique(values, "
            "return_inverse=True)[1]"
        )
    if value.dtype.kind in "mM":
        return (
            f"dates or times{first}. Days since the first of them are "
            '(values - values.min()) / numpy.timedelta64(1, "D")'
        )
    return f"{value.dtype}{first}"


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
    given: Sequence[str] = (),
    labels: Sequence[float] | AnyNDArray | None = None,
    levels: Levels = MappingProxyType({}),
    checks_of_Y: Callable[[tf.Tensor], Sequence[Check]] = lambda Y: [check_finite("Y", Y)],
    may_be_empty: bool = False,
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Return X and Y as tensors of ``default_float()``, once they have passed all checks.

    The returned tensors depend on the checks, so that nothing computed from them, such as an
    assignment to a variable, runs before the checks have passed.

    :param num_observed, num_outputs: the numbers of columns of Y and of f.
    :param input_dim: the number of columns of X; None where any number is accepted.
    :param given: the names of the columns of Y after those of y.
    :param labels: the values that y takes, or None where it is a real number or a count.
    :param levels: of columns of X, which may be words in a frame and hold no others.
    :param checks_of_Y: returns the likelihood's checks of Y.
    :param may_be_empty: whether data without rows are accepted.
    :raises ValueError: for values that are not real numbers, non-finite or empty data, dimensions
        that disagree, or labels that ``checks_of_Y`` refuses. A compiled function checks values
        when it runs, and raises ``tf.errors.InvalidArgumentError`` with the same message.
    """
    X, Y = as_default_float(X, "X", levels), as_default_float(Y, "Y")
    check_rank("X", X.shape.rank)
    check_rank("Y", Y.shape.rank)
    N = tf.shape(X)[0]
    of_latents = num_observed == num_outputs and not given
    wording = (
        "one column for each latent GP" if of_latents else "the likelihood's number of columns"
    )
    names = f" ({', '.join(['y', *given])})" if given else ""
    is_one_label = labels is not None and num_observed - len(given) == 1
    of_labels = _LABELS.format(_range_of(labels)) if is_one_label else ""
    checks = [
        Check(
            _has_shape(X, None, input_dim),
            f"X must have as many columns as inducing_variable, {input_dim}.",
            lambda: tf.shape(X)[-1],
        ),
        Check(
            _has_shape(Y, N, num_observed),
            f"Y must have as many rows as X, and {wording}, {num_observed}{names}.{of_labels}",
            lambda: tf.shape(Y),
        ),
        Check((N > 0) | may_be_empty, "X must have at least one row.", lambda: tf.shape(X)),
        check_finite("X", X),
        *checks_of_Y(Y),
    ]
    with tf.control_dependencies([require(checks)]):
        # The checks hold from here on, so that these shapes may be used while tracing.
        X, Y = tf.ensure_shape(X, [None, input_dim]), tf.ensure_shape(Y, [None, num_observed])
    if not levels:
        return X, Y
    with tf.control_dependencies([require(check_levels("X", X, levels))]):
        return tf.identity(X), tf.identity(Y)


_LABELS = (
    " Each y is the number of a label, {}, in one column, and not one-hot. Soft labels are rows "
    "that are given once for each label, with its probability as the weight: likelihoods.Weighted."
)


def _range_of(labels: Sequence[float] | AnyNDArray) -> str:
    return "0 or 1" if len(labels) == 2 else f"0 to {len(labels) - 1}"


def check_rank(name: str, rank: int | None) -> None:
    """
    :param rank: the rank of the argument ``name``; None where it is not known.
    :raises ValueError: unless the argument is a matrix.
    """
    if rank in (2, None):
        return
    advice = f" {name}[:, None] makes one column of a vector." if rank == 1 else ""
    raise ValueError(f"{name} must be a matrix, one row per datum.{advice} Found: rank {rank}.")


def as_matrix(value: TensorType, name: str, levels: Levels | None = None) -> TensorType:
    """
    Return inputs or observations as a matrix of numbers, in the dtype that they have.

    A frame of pandas, or a ``Series`` as one column, becomes a tensor of ``default_float()``.

    :param name: the name of the argument, for errors.
    :param levels: as for :func:`as_default_float`.
    :raises ValueError: for vectors, and as :func:`as_default_float`.
    """
    if hasattr(value, "to_numpy"):
        return as_default_float(value, name, levels)
    value = _numbers(value, name)
    if tf.TensorShape(value.shape).rank == 1:
        check_rank(name, 1)
    return value


def column_names(X: Any) -> tuple[str, ...]:
    """The names of the columns of a frame; none of an array."""
    return tuple(map(str, X.columns)) if hasattr(X, "columns") else ()


def as_pair(data: RegressionData, levels: Levels | None = None) -> tuple[TensorType, TensorType]:
    """Return X and Y, each as :func:`as_matrix` returns it; ``levels`` are those of X."""
    X, Y = data
    return as_matrix(X, "X", levels), as_matrix(Y, "Y")


def _has_shape(value: tf.Tensor, rows: tf.Tensor | None, columns: int | None) -> tf.Tensor:
    """Whether ``value`` is a matrix of so many rows and columns, where None accepts any number."""
    if tf.executing_eagerly():  # seven operations less
        known = [None if rows is None else int(rows), columns]
        return tf.constant(value.shape.is_compatible_with(known))
    shape = tf.shape(value)
    padded = tf.concat([shape, [-1, -1]], axis=0)  # has two entries even if the rank is 0
    right = tf.equal(tf.size(shape), 2)
    for at, wanted in enumerate((rows, columns)):
        if wanted is not None:
            right &= tf.equal(padded[at], wanted)
    return right
