"""The caches of the posteriors that a model has returned: steps on q bring them up to date."""

import weakref
from typing import Any

import tensorflow as tf
from gpflow.posteriors import AbstractPosterior


class _HandedOut:
    """The posteriors of one model that are still in use."""

    def __init__(self) -> None:
        self._posteriors: weakref.WeakSet[AbstractPosterior] = weakref.WeakSet()
        # Read by compiled steps. Made with the model: a function that makes one is traced twice.
        with tf.init_scope():
            self.any = tf.Variable(False, trainable=False)

    def add(self, posterior: AbstractPosterior) -> None:
        self._posteriors.add(posterior)
        self.any.assign(True)

    def refresh(self) -> None:
        for posterior in list(self._posteriors):
            if posterior.cache is not None:
                posterior.update_cache()


# Outside the models, so that copying and saving them never meets a weak reference.
_HANDED_OUT: "weakref.WeakKeyDictionary[Any, _HandedOut]" = weakref.WeakKeyDictionary()


def handed_out(model: Any) -> _HandedOut:
    """The posteriors that ``model`` has handed out."""
    if model not in _HANDED_OUT:
        _HANDED_OUT[model] = _HandedOut()
    return _HANDED_OUT[model]


def share_posteriors(view: Any, model: Any) -> None:
    """Refresh those that ``model`` has handed out where those of ``view`` are, and vice versa."""
    _HANDED_OUT[view] = handed_out(model)


def refresh_posteriors(model: Any) -> None:
    """Update the caches of the posteriors that ``model.posterior()`` has handed out."""
    own = handed_out(model)
    if tf.executing_eagerly():  # GPflow computes its caches eagerly only
        own.refresh()
        return
    # The graph must not hold the model, which may hold the graph: neither would ever be freed.
    # Most models never hand out a posterior, and then Python is not called.
    reference = weakref.ref(own)

    def refresh() -> None:
        alive = reference()
        if alive is not None:
            alive.refresh()

    def call() -> tf.Tensor:
        with tf.control_dependencies([tf.py_function(refresh, [], [])]):
            return tf.constant(True)

    tf.cond(own.any, call, lambda: tf.constant(False))
