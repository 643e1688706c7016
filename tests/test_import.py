"""``import gpflow_aaci`` costs little more than ``import gpflow``."""

import subprocess
import sys

import pytest

import gpflow_aaci

# This runs in a new process. Keras imports some of these packages if they are installed, so only
# imports after GPflow's count.
IMPORT = """
import builtins
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import gpflow
import tensorflow as tf

heavy = {"arviz", "xarray", "sklearn", "pandas", "matplotlib", "tensorboard"}
before = set(sys.modules)
asked = set()
original = builtins.__import__


def spying(name, *args, **kwargs):
    asked.add(name.split(".")[0])
    return original(name, *args, **kwargs)


builtins.__import__ = spying
import gpflow_aaci

builtins.__import__ = original
added = {name.split(".")[0] for name in set(sys.modules) - before}
assert "gpflow_aaci" in asked and "gpflow_aaci" in added
assert not heavy & (asked | added), sorted(heavy & (asked | added))
# TensorFlow refuses this once a tensor has been made.
tf.config.threading.set_intra_op_parallelism_threads(1)
print(gpflow_aaci.monitor.standard_tasks.__name__)
"""


@pytest.mark.slow
def test_packages_that_few_functions_need_are_not_loaded_nor_tensorflow_started() -> None:
    arguments = [sys.executable, "-c", IMPORT]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "standard_tasks\n"


def test_the_top_level_has_what_most_programs_need_and_no_more() -> None:
    """There are at most 20 names, and submodules with more names need no further import."""
    names = gpflow_aaci.__all__
    assert len(set(names)) == len(names) <= 20
    for name in names:
        assert getattr(gpflow_aaci, name) is not None
    assert callable(gpflow_aaci.plots.plot_fit)
    assert callable(gpflow_aaci.diagnostics.psis_khat)
    assert callable(gpflow_aaci.inference.EarlyStopping)
    assert callable(gpflow_aaci.sampling.Gibbs)
    assert callable(gpflow_aaci.distributions.PolyaGamma)
    assert callable(gpflow_aaci.data.from_parquet)
