"""From the rows of a table to X, in TensorFlow: what fitted encoders of scikit-learn do."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float

from ..levels import UNSEEN, Levels, are_words, meanings
from ..validation import check_rows, require, shown

Columns: TypeAlias = list[tf.Tensor]
"""One tensor [N] for each column, of floats or of text."""


class Table(NamedTuple):
    """The rows that a function takes."""

    spec: Any
    """The TensorSpec of a matrix; where columns hold text, a dictionary of them by name."""
    columns: list[dict[str, Any]]
    """The name or number of each column, what it holds, and its levels if it has any."""
    inputs: Callable[[Any], tf.Tensor]
    """From such rows to X, as a model takes it."""


def table(
    encoders: Sequence[Any], names: Sequence[str] | None, num_columns: int | None, levels: Levels
) -> Table:
    """
    The rows that a model's predictions take, before fitted encoders make its X of them.

    :param names: of the columns of rows, where they have some; else there is no text in them.
    :param levels: of the columns of X.
    :raises NotImplementedError: for encoders that are not known in TensorFlow.
    """
    kind = np.dtype(default_float()).name
    words = {at: known for at, known in levels.items() if are_words(known)} if names else {}
    of_x = [*(encoders[-1].get_feature_names_out() if encoders else names or ())] if words else []
    text = {of_x[at]: known for at, known in words.items()}
    if not text.keys() <= set(names or ()):
        raise NotImplementedError(f"columns of words do not keep their names, {', '.join(text)}")

    def column(at: int) -> dict[str, Any]:
        name = names[at] if names else at
        if name in text:
            return {"name": name, "holds": "text", "levels": text[name].tolist()}
        known = None if encoders else levels.get(at)
        if known is None:
            return {"name": name, "holds": kind}
        holds = "the place of a level, from 0" if are_words(known) else "a level"
        return {"name": name, "holds": holds, "levels": known.tolist()}

    columns = [column(at) for at in range(num_columns or 0)]
    spec: Any = tf.TensorSpec([None, num_columns], kind)
    if text:
        spec = {
            each["name"]: tf.TensorSpec([None], tf.string if each["name"] in text else kind)
            for each in columns
        }

    def inputs(rows: Any) -> tf.Tensor:
        if not encoders and not text:
            return rows
        found = [rows[name] for name in names or ()] if text else tf.unstack(rows, num_columns, 1)
        for encoder in encoders:
            found = encoded(encoder, found)
        for at, known in words.items():
            found[at] = tf.cast(codes(found[at], known, of_x[at]), kind)
        return tf.stack(found, 1)

    return Table(spec, columns, inputs)


def encoded(encoder: Any, columns: Columns) -> Columns:
    """
    What a fitted encoder makes of columns.

    Scaling, medians in gaps and the steps of ``table_encoder`` are known, alone, in a ``Pipeline``
    and in a ``ColumnTransformer``. A word that is missing must be given as "missing".

    :raises NotImplementedError: for other encoders.
    """
    # Imported late, as models without an encoder do without it.
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import FunctionTransformer, RobustScaler, StandardScaler

    from ..sklearn.table import with_missing

    kind = type(encoder)  # a subclass may do anything
    if kind is str and encoder == "passthrough":
        return columns
    if kind is Pipeline:
        for _, step in encoder.steps:
            columns = encoded(step, columns)
        return columns
    if kind is ColumnTransformer and not encoder.transformer_weights:
        found: Columns = []
        for _, step, those in encoder.transformers_:
            if not (isinstance(step, str) and step == "drop"):
                found += encoded(step, [columns[at] for at in _places(encoder, those)])
        return found
    if kind is FunctionTransformer and encoder.func in (None, with_missing):
        return columns
    if kind is SimpleImputer and _fills_numbers(encoder):
        return _filled(encoder, columns)
    if kind is StandardScaler:
        return _scaled(columns, encoder.mean_ if encoder.with_mean else None, encoder.scale_)
    if kind is RobustScaler:
        return _scaled(columns, encoder.center_, encoder.scale_)
    raise NotImplementedError(f"{type(encoder).__name__} is not known in TensorFlow")


def center_and_scale(scaler: Any) -> tuple[AnyNDArray | float, AnyNDArray | float]:
    """
    What a fitted scaler of y subtracts, and then divides by, [P] each or one number.

    :raises ValueError: for other scalers.
    """
    from sklearn.preprocessing import RobustScaler, StandardScaler  # imported late, as above

    if not isinstance(scaler, StandardScaler | RobustScaler) or not hasattr(scaler, "scale_"):
        raise ValueError(
            "y_scaler must be a fitted StandardScaler or RobustScaler of scikit-learn. "
            f"Found: {shown(scaler)}."
        )
    has_center = scaler.with_mean if isinstance(scaler, StandardScaler) else scaler.with_centering
    center = scaler.mean_ if isinstance(scaler, StandardScaler) else scaler.center_
    return center if has_center else 0.0, 1.0 if scaler.scale_ is None else scaler.scale_


def codes(words: tf.Tensor, levels: AnyNDArray, name: str) -> tf.Tensor:
    """
    The place [N] of each word among the levels [G].

    :raises ValueError: for other words, unless one of the levels stands for words not seen.
    """
    is_level = tf.equal(words[:, None], tf.constant(levels.tolist())[None])  # [N, G]
    is_known = tf.reduce_any(is_level, 1, keepdims=True)
    place = tf.argmax(is_level, 1)
    if UNSEEN in levels:
        return tf.where(is_known[:, 0], place, levels.tolist().index(UNSEEN))
    message = f"column {name!r} must hold levels of the kernel: {meanings(levels)}."
    with tf.control_dependencies([require([check_rows(words[:, None], is_known, message)])]):
        return tf.identity(place)


def _places(encoder: Any, columns: Any) -> Sequence[int]:
    """The numbers of columns that a ``ColumnTransformer`` has by name or by number."""
    names = list(getattr(encoder, "feature_names_in_", []))
    if not isinstance(columns, list | np.ndarray) or np.asarray(columns).dtype == bool:
        raise NotImplementedError(
            "a step whose columns are no list of names or numbers is not known in TensorFlow"
        )
    return [names.index(name) if isinstance(name, str) else int(name) for name in columns]


def _fills_numbers(encoder: Any) -> bool:
    return encoder.statistics_.dtype.kind == "f" and bool(np.isnan(encoder.missing_values))


def _filled(encoder: Any, columns: Columns) -> Columns:
    """Columns with statistics in their gaps; then, if asked for, columns that say where."""
    gaps = [tf.math.is_nan(column) for column in columns]
    found = [
        tf.where(is_gap, tf.cast(value, column.dtype), column)
        for is_gap, value, column in zip(gaps, encoder.statistics_, columns, strict=True)
        if not np.isnan(value)
    ]
    if encoder.indicator_ is not None:
        found += [tf.cast(gaps[at], columns[at].dtype) for at in encoder.indicator_.features_]
    return found


def _scaled(columns: Columns, center: AnyNDArray | None, scale: AnyNDArray | None) -> Columns:
    center = np.zeros(len(columns)) if center is None else center
    scale = np.ones(len(columns)) if scale is None else scale
    return [
        (column - tf.cast(c, column.dtype)) / tf.cast(s, column.dtype)
        for column, c, s in zip(columns, center, scale, strict=True)
    ]
