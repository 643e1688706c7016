"""The predictions of a model as compiled functions that need TensorFlow alone."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, MeanAndVariance
from gpflow.config import default_float

from ..kernels import levels_of
from ..likelihoods import augmented
from ..likelihoods.observations import COLUMNS
from ..predictions import predict_log_density, predict_y, predict_y_quantile
from ..predictions.f import input_dim_of
from ..runtime.graphs import compiled
from ..validation import message_of
from .encoders import Table, table

Rows: TypeAlias = Any
"""X [N, D]; or a dictionary of columns [N] by name, where some hold text."""
Given: TypeAlias = dict[str, tf.Tensor]


class Parts(NamedTuple):
    """What predictions need: a model, and what is between it and the user's rows."""

    model: gpflow.models.GPModel
    encoders: Sequence[Any] = ()
    """Fitted encoders, which make X of rows, one after the other."""
    names: Sequence[str] | None = None
    """The columns of rows, where they have names."""
    num_columns: int | None = None
    """How many columns rows have, where an encoder knows it."""
    center: AnyNDArray | float = 0.0
    scale: AnyNDArray | float = 1.0
    """The model is for (y − center)/scale, of every column of y or of each."""
    classes: AnyNDArray | None = None
    """The labels [K] of a classifier, whose numbers the model has."""

    @property
    def is_scaled(self) -> bool:
        return bool(np.any(self.center != 0.0) or np.any(self.scale != 1.0))


class Served(NamedTuple):
    """What TensorFlow is to save."""

    module: tf.Module
    functions: dict[str, str]
    """How each function is called."""
    columns: list[dict[str, Any]]
    """The columns of rows, as in :class:`~gpflow_aaci.saving.encoders.Table`."""
    left_out: dict[str, str]
    """What is not there, and why."""


def served(parts: Parts) -> Served:
    """
    Functions of any number of rows, whose y is in the user's unit; what fails is left out.

    They are ``predict_f``, ``predict_y``, ``predict_y_quantile``, ``predict_log_density`` and, of a
    classifier, ``predict_proba``.
    """
    model, dtype = parts.model, default_float()
    left_out: dict[str, str] = {}
    rows = _table(parts, left_out)
    center, scale = tf.constant(parts.center, dtype), tf.constant(parts.scale, dtype)
    likelihood = augmented(model.likelihood)
    given = list(likelihood.given)
    asked = [name for name in given if name in COLUMNS and COLUMNS[name].may_be_asked]

    def in_unit_of_model(given: Given | None) -> Given | None:
        if not given or "noise_variance" not in given:
            return given
        if scale.shape.num_elements() > 1:
            raise NotImplementedError("error variances of several y, each in a unit of its own")
        return {**given, "noise_variance": given["noise_variance"] / scale**2}

    def of_f(X: Rows) -> MeanAndVariance:
        return model.predict_f(rows.inputs(X))

    def of_y(X: Rows, given: Given | None = None) -> MeanAndVariance:
        mean, variance = predict_y(model, rows.inputs(X), given=in_unit_of_model(given))
        if scale.shape.num_elements() not in (1, mean.shape[1]):
            raise ValueError(f"y_scaler has {scale.shape[0]} columns, and y {mean.shape[1]}")
        return center + scale * mean, scale**2 * variance

    def quantile(X: Rows, levels: tf.Tensor, given: Given | None = None) -> tf.Tensor:
        y = predict_y_quantile(model, rows.inputs(X), levels, given=in_unit_of_model(given))
        return center + scale * y

    def log_density(data: tuple[Rows, tf.Tensor]) -> tf.Tensor:
        X, Y = data
        if parts.is_scaled and likelihood.is_interval:
            raise NotImplementedError("densities of y have another unit than those of intervals")
        y = Y[:, :num_y]
        others = {name: Y[:, at : at + 1] for at, name in enumerate(given, num_y)}
        Y = tf.concat([(y - center) / scale, *(in_unit_of_model(others) or {}).values()], 1)
        unit = tf.where(tf.math.is_nan(y), tf.zeros_like(y), tf.math.log(scale))
        weight = others["weight"][:, 0] if "weight" in others else 1.0
        log_p = predict_log_density(model, (rows.inputs(X), Y))
        return log_p - weight * tf.reduce_sum(unit, 1)

    def proba(X: Rows) -> tf.Tensor:
        p = model.predict_y(rows.inputs(X))[0]
        return tf.concat([1.0 - p, p], 1) if p.shape[1] == 1 else p

    module, functions = tf.Module(), dict[str, str]()
    module.variables_of_model = list(model.variables)  # TensorFlow must find those that it reads

    def export(function: Callable[..., Any], call: str, *signatures: list[Any]) -> Any:
        """Add a function; return what it returns, as specifications, or None if it fails."""
        name, made = call.partition("(")[0], compiled(function)
        try:
            for signature in signatures:
                traced = made.get_concrete_function(*signature)
        except Exception as error:  # of a likelihood, a kernel or an encoder of anyone
            left_out[name] = message_of(error)
            return None
        setattr(module, name, made)
        functions[name] = call
        return traced.structured_outputs

    number = tf.TensorSpec([None], dtype)
    with_given: list[list[Any]] = [[], [dict.fromkeys(asked, number)]] if asked else [[]]
    columns = ", ".join(f"'{name}': [N]" for name in asked)
    more = f", given={{{columns}}}" if asked else ""
    found = export(of_f, "predict_f(X)", [rows.spec])
    export(of_y, f"predict_y(X{more})", *([rows.spec, *each] for each in with_given))
    of_levels = ([rows.spec, number, *each] for each in with_given)
    export(quantile, f"predict_y_quantile(X, levels{more})", *of_levels)
    if found is not None:
        num_observed = likelihood.num_observed(found[0].shape[1])
        num_y = num_observed - likelihood.num_given
        of_Y = tf.TensorSpec([None, num_observed], dtype)
        export(log_density, "predict_log_density((X, Y))", [(rows.spec, of_Y)])
    if parts.classes is not None:
        export(proba, "predict_proba(X)", [rows.spec])
    return Served(module, functions, rows.columns, left_out)


def _table(parts: Parts, left_out: dict[str, str]) -> Table:
    """The rows of the user; those that the encoders return, if they are not known here."""
    levels, num_inputs = levels_of(parts.model.kernel), input_dim_of(parts.model)
    num_columns = num_inputs if parts.num_columns is None else parts.num_columns
    try:
        found = table(parts.encoders, parts.names, num_columns, levels)
        compiled(found.inputs).get_concrete_function(found.spec)
    except Exception as error:  # an encoder may be anyone's
        left_out["encoder"] = f"{message_of(error)}; functions take the X that it returns"
        return table((), None, num_inputs, levels)
    return found
