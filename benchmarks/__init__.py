"""Head-to-head measurements: ``python -m benchmarks run CONFIG``."""

import os
import sys
import warnings

# While TensorFlow is imported, its C++ part writes to stderr whatever the variable says
# (tensorflow/tensorflow#100442). Later it obeys the variable; keep_tensorflow_quiet has exceptions.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
_stderr = os.dup(2)
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
try:
    import tensorflow as tf
finally:
    os.dup2(_stderr, 2)
    os.close(_stderr)

warnings.filterwarnings("ignore", category=FutureWarning, module="arviz")  # ArviZ warns at import
tf.get_logger().setLevel("ERROR")  # TensorFlow warns of retracing, which many models need


def keep_tensorflow_quiet() -> None:
    """
    Discard what the C++ part of an older TensorFlow writes to stderr, for the whole process.

    TensorFlow 2.18 writes warnings of its graph optimizer in the middle of runs, whatever the
    variable says; 2.21 does not. Python's own ``sys.stderr`` still works.
    """
    major, minor = (int(number) for number in tf.__version__.split(".")[:2])
    if (major, minor) < (2, 21):
        sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
