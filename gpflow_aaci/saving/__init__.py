"""
A fitted model in one folder: for a process that has GPflow, and for one that has TensorFlow alone.

``folder``: :func:`save` and :func:`load`. ``served``: the functions that need TensorFlow alone.
``encoders``: what encoders of scikit-learn do, in TensorFlow.
"""

from .folder import Saved, load, save

__all__ = ["Saved", "load", "save"]
