"""
Folders that are complete or absent, and what is in them.

A folder is a SavedModel of TensorFlow with two more files: ``saved.json``, which says what it
holds, and ``assets.extra/python.pickle``, the Python objects.
"""

import json
import pickle
import platform
import shutil
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.config import default_float, default_jitter

from ..likelihoods import augmented
from ..likelihoods.observations import is_any_real
from ..runtime.checkpoints import flush
from ..validation import message_of, shown
from .encoders import center_and_scale
from .served import Parts, served

_WHAT = "a model saved by gpflow_aaci"
_ABOUT, _EXTRA, _PICKLE = "saved.json", "assets.extra", "python.pickle"  # TensorFlow's name for it
_PACKAGES = {"gpflow": gpflow, "tensorflow": tf, "tensorflow-probability": tfp, "numpy": np}


class Saved(NamedTuple):
    """What :func:`load` returns: what :func:`save` was given."""

    model: Any
    """A GPflow model, an estimator or a pipeline."""
    encoder: Any
    y_scaler: Any


def save(model: Any, folder: str | Path, *, encoder: Any = None, y_scaler: Any = None) -> None:
    """
    Write a fitted model, and what is between it and the user's rows, to a folder.

    A process that has this package continues with :func:`load`. One that has TensorFlow alone calls
    its predictions, for any number of rows::

        save(model, "folder", encoder=scaler_of_X, y_scaler=scaler_of_y)

        served = tf.saved_model.load("folder")  # neither GPflow nor this package is imported
        mean, variance = served.predict_y(rows)
        lower, upper = served.predict_y_quantile(rows, [0.05, 0.95])

    There are ``predict_f(X)``, ``predict_y(X)``, ``predict_y_quantile(X, levels)``,
    ``predict_log_density((X, Y))`` and, of a classifier, ``predict_proba(X)``. Where ``saved.json``
    names columns, all of them may be given, ``given={"exposure": [N]}``. X is a matrix [N, D] of
    the model's float type with columns as in the fit, before ``encoder``, and NaN in its gaps. If
    some hold text, it is a dictionary of columns, ``{"size": [N], "city": [N]}``, where "missing"
    stands for a word that is missing. The file ``saved.json`` in the folder lists columns,
    functions and versions, and what has been left out, which a warning says, too: functions that
    need Python, and encoders that are not known in TensorFlow. A folder of ``AugmentedVGP`` or
    ``AugmentedNNGP`` holds the rows of the fit, too.

    The folder appears when it is complete. An older one stays until then.

    :param model: a GP model with a q, such as ``AugmentedSVGP`` or GPflow's ``SVGP``; a fitted
        estimator of :mod:`gpflow_aaci.sklearn`; or a ``Pipeline`` that ends in one.
    :param folder: a new or empty folder, or one that ``save`` has written, which is replaced.
    :param encoder: what made X of rows: a fitted transformer of scikit-learn such as a
        ``StandardScaler`` or :func:`~gpflow_aaci.sklearn.table_encoder`. An estimator has its own.
    :param y_scaler: what made Y of y, a fitted ``StandardScaler`` or ``RobustScaler``; functions
        then return y, its quantiles and log densities in the unit of y. An estimator has its own.
    :raises ValueError: for another model, encoder or y_scaler, and for a folder that ``save`` has
        not written.
    """
    folder = Path(folder).resolve()
    _check_may_be_replaced(folder)
    parts = _parts(model, encoder, y_scaler)
    found = served(parts)
    left_out = dict(found.left_out)
    if getattr(_last_step(model), "left_out_pit_", None) is not None:
        left_out["calibrated intervals"] = (
            "predict_interval of what load returns has them; predict_y_quantile is not calibrated"
        )
    try:
        python = cloudpickle.dumps(Saved(model, encoder, y_scaler))
        pickle.loads(python)  # some objects fail only here
    except Exception as error:  # a kernel, a likelihood or an encoder may be anyone's
        python, left_out["python"] = b"", message_of(error)
    about = {
        "what": _WHAT,
        "model": type(parts.model).__name__,
        "likelihood": type(parts.model.likelihood).__name__,
        "num_latent_gps": int(parts.model.num_latent_gps),
        "functions": found.functions,
        "left_out": left_out,
        "columns_of_rows": found.columns,
        "further_columns_of_Y": list(getattr(parts.model.likelihood, "given", ())),
        "classes": None if parts.classes is None else parts.classes.tolist(),
        **_environment(),
    }

    def write(unfinished: Path) -> None:
        tf.saved_model.save(found.module, str(unfinished))
        if python:
            (unfinished / _EXTRA).mkdir()
            (unfinished / _EXTRA / _PICKLE).write_bytes(python)
        of_all = {**about, "files": sorted(_files(unfinished))}
        (unfinished / _ABOUT).write_text(json.dumps(of_all, indent=1), encoding="utf-8")

    _write(folder, write)
    for what, why in left_out.items():
        warnings.warn(f"{folder} is without {what}: {why}", UserWarning, stacklevel=2)


def load(folder: str | Path) -> Saved:
    """
    What :func:`save` was given: the model, the encoder and the scaler of y.

    They can be fitted further, sampled from and used as before. Load only what you trust: as with
    every pickle, whoever wrote the folder can run programs by it. (``tf.saved_model.load`` gives
    the predictions alone. Its graphs, too, can read and write files.)::

        model, encoder, y_scaler = load("folder")
        fit(model, (encoder.transform(rows), Y))

    A warning says which versions differ, and whether GPflow's jitter does.

    :raises ValueError: for another folder; if objects were left out, or cannot be made with the
        versions that are installed; and if GPflow's float type is another one.
    """
    folder = Path(folder).resolve()
    if not folder.exists():  # between two renames, or after a process that ended there
        _, folder = _beside(folder)
    about, here = _about(folder), _environment()
    if about is None:
        raise ValueError(f"folder must be one that save has written. Found: {folder}.")
    if about["float"] != here["float"]:
        raise ValueError(
            f"gpflow.default_float() must be {about['float']}, as when {folder} was saved. "
            f"Found: {here['float']}."
        )
    if "python" in about["left_out"]:
        raise ValueError(
            f"{folder} must have Python objects to be loaded here, but these were left out: "
            f"{about['left_out']['python']}. tf.saved_model.load gives the predictions."
        )
    differ = [
        f"{name} was {then} and is {here['versions'].get(name)}"
        for name, then in about["versions"].items()
        if here["versions"].get(name) != then
    ]
    if about["jitter"] != here["jitter"]:
        differ.append(f"gpflow.default_jitter() was {about['jitter']} and is {here['jitter']}")
    since = f"Since {folder} was saved, {', '.join(differ)}" if differ else ""
    try:
        saved: Saved = pickle.loads((folder / _EXTRA / _PICKLE).read_bytes())
    except Exception as error:  # whatever other versions of other packages raise
        raise ValueError(
            f"{folder} could not be loaded: {message_of(error)}. {since or 'It may be damaged'}. "
            "tf.saved_model.load gives the predictions."
        ) from error
    if differ:
        warnings.warn(f"{since}: results may differ.", UserWarning, stacklevel=2)
    return saved


def _parts(model: Any, encoder: Any, y_scaler: Any) -> Parts:
    """
    :raises ValueError: as :func:`save`.
    """
    estimator = _last_step(model)
    if hasattr(estimator, "model_"):
        for name, value in {"encoder": encoder, "y_scaler": y_scaler}.items():
            if value is not None:
                raise ValueError(
                    f"{name} must be None for {type(model).__name__}, which has its own. "
                    f"Found: {shown(value)}."
                )
        own = [] if estimator.encoder_ is None else [estimator.encoder_]
        return Parts(
            estimator.model_,
            [*(step for _, step in getattr(model, "steps", [])[:-1]), *own],
            _names(model),
            model.n_features_in_,
            getattr(estimator, "y_center_", 0.0),
            getattr(estimator, "y_scale_", 1.0),
            getattr(estimator, "classes_", None),
        )
    if not isinstance(model, gpflow.models.GPModel):
        raise ValueError(
            "model must be a GP model, or a fitted estimator of gpflow_aaci.sklearn or a Pipeline "
            f"that ends in one. Found: {shown(model)}."
        )
    parts = Parts(model)
    if encoder is not None:
        if not hasattr(encoder, "n_features_in_"):
            raise ValueError(
                "encoder must be a fitted transformer of scikit-learn, such as a StandardScaler or "
                f"table_encoder. Found: {shown(encoder)}."
            )
        parts = Parts(model, [encoder], _names(encoder), encoder.n_features_in_)
    if y_scaler is None:
        return parts
    if not is_any_real(augmented(model.likelihood)):
        raise ValueError(
            f"y_scaler must be None for {type(model.likelihood).__name__}, whose y may not be any "
            f"real number. Found: {shown(y_scaler)}."
        )
    center, scale = center_and_scale(y_scaler)
    return parts._replace(center=center, scale=scale)


def _last_step(model: Any) -> Any:
    """The estimator at the end of a pipeline, or the model itself."""
    return model.steps[-1][1] if hasattr(model, "steps") else model


def _names(fitted: Any) -> list[str] | None:
    """The columns that an object of scikit-learn was fitted to, if they had names."""
    names = getattr(fitted, "feature_names_in_", None)
    return None if names is None else list(names)


def _environment() -> dict[str, Any]:
    """What predictions depend on beside the model."""
    return {
        "float": np.dtype(default_float()).name,
        "jitter": default_jitter(),
        "versions": {
            "python": ".".join(platform.python_version_tuple()[:2]),
            "gpflow_aaci": version("gpflow_aaci"),
            **{name: package.__version__ for name, package in _PACKAGES.items()},
        },
    }


def _about(folder: Path) -> dict[str, Any] | None:
    """What ``saved.json`` says; None if the folder is not one of :func:`save`."""
    try:
        about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return about if isinstance(about, dict) and about.get("what") == _WHAT else None


def _check_may_be_replaced(folder: Path) -> None:
    """
    :raises ValueError: unless the folder is new, empty, or of :func:`save` and nothing else.
    """
    about, found = _about(folder), _files(folder) if folder.is_dir() else set()
    others = found - {_ABOUT, *about["files"]} if about is not None else found
    if others or (folder.exists() and not folder.is_dir()):
        which = f" with {', '.join(sorted(others)[:5])}" if others else ", a file"
        raise ValueError(
            "folder must be a new or empty folder, or one that save has written and nothing else "
            f"is in. Found: {folder}{which}."
        )


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def _write(folder: Path, write: Callable[[Path], None]) -> None:
    """Have ``write`` fill a folder; an older one remains until the new one is complete."""
    _finish(folder)
    unfinished, old = _beside(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        write(unfinished)
        for path in [*unfinished.rglob("*"), unfinished]:
            flush(path)
        if _about(folder) is not None:  # not an empty folder
            folder.rename(old)
        unfinished.rename(folder)
        flush(folder.parent)
    finally:
        _finish(folder)
        shutil.rmtree(unfinished, ignore_errors=True)


def _finish(folder: Path) -> None:
    """Remove the older folder; after a process that ended between two renames, rename it back."""
    unfinished, old = _beside(folder)
    if _about(old) is None:
        return
    if folder.exists():
        shutil.rmtree(unfinished, ignore_errors=True)
        old.rename(unfinished)  # which is removed, however little of it is left
        shutil.rmtree(unfinished, ignore_errors=True)
    else:
        old.rename(folder)


def _beside(folder: Path) -> tuple[Path, Path]:
    """Where a folder is written, and where the older one is until the new one has its name."""
    return folder.with_name(f".{folder.name}.unfinished"), folder.with_name(f".{folder.name}.old")
