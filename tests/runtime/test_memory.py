"""
Models that were fitted and dropped are freed, and many fits in one process need bounded memory.
"""

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_aaci import (
    AlternatingOptimizer,
    AugmentedNaturalGradient,
    AugmentedSVGP,
    fit_collapsed,
    likelihoods,
    train,
    update,
)

X = np.linspace(-2.0, 2.0, 24)[:, None]
DATA = X, np.sin(X)


def make() -> AugmentedSVGP:
    kernel = gpflow.kernels.Matern32()
    return AugmentedSVGP(kernel, likelihoods.Laplace(), X[::4].copy(), num_data=len(X))


def compiled(make_optimizer: Callable[[], Any]) -> Callable[[AugmentedSVGP], None]:
    def step(model: AugmentedSVGP) -> None:
        optimizer = make_optimizer()
        tf.function(lambda: optimizer.minimize(model, DATA), autograph=False)()

    return step


FITS: dict[str, Callable[[AugmentedSVGP], Any]] = {
    "train": lambda model: train(model, DATA, num_steps=2, progress=False),
    "AlternatingOptimizer": compiled(AlternatingOptimizer),
    "AugmentedNaturalGradient": compiled(AugmentedNaturalGradient),
    "fit_collapsed": lambda model: fit_collapsed(model, DATA, tolerance=1.0),
    "update": lambda model: update(model, DATA),
}


@pytest.mark.slow
@pytest.mark.by_default("-fit_collapsed", "-train")
@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("handed_out", [False, True], ids=["", "with a posterior"])
def test_a_fitted_model_that_is_dropped_is_freed(name: str, handed_out: bool) -> None:
    model = make()
    posterior = model.posterior() if handed_out else None
    FITS[name](model)
    reference = weakref.ref(model)
    del model, posterior
    gc.collect()
    assert reference() is None


LOOP = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import gc
import gpflow
import numpy as np
import tensorflow as tf
import gpflow_aaci

X = np.linspace(-2.0, 2.0, 24)[:, None]
DATA = X, np.sin(X)

def make(model_class):
    kernel, likelihood = gpflow.kernels.Matern32(), gpflow_aaci.likelihoods.Laplace()
    return model_class(kernel, likelihood, X[::4].copy(), num_data=len(X))

def stock():
    model = make(gpflow.models.SVGP)
    adam = gpflow.keras.tf_keras.optimizers.Adam(0.01)
    loss = model.training_loss_closure(DATA)
    step = tf.function(lambda: adam.minimize(loss, model.trainable_variables))
    for _ in range(3):
        step()

def train():
    gpflow_aaci.train(make(gpflow_aaci.AugmentedSVGP), DATA, num_steps=3, progress=False)

def fit_collapsed():
    gpflow_aaci.fit_collapsed(make(gpflow_aaci.AugmentedSVGP), DATA, tolerance=1.0, progress=False)

class OwnKernel(gpflow.kernels.Matern32):
    pass

def fit_collapsed_alone():  # by functions that no other model uses
    model = make(gpflow_aaci.AugmentedSVGP)
    model.kernel = OwnKernel()
    gpflow_aaci.fit_collapsed(model, DATA, tolerance=1.0, progress=False)

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

fit = globals()[sys.argv[1]]
fits = int(sys.argv[2])
for _ in range(3):
    fit()
gc.collect()
before = resident()
for _ in range(fits):
    fit()
gc.collect()
print((resident() - before) / fits)
"""


@pytest.mark.replicate
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_loop_of_fits_grows_no_faster_than_gpflows_own() -> None:
    """Resident memory per fit is compared; it does not grow if compiled functions are shared."""
    grown = {}
    for name in ("stock", "train", "fit_collapsed", "fit_collapsed_alone"):
        command = [sys.executable, "-c", LOOP, name, "5"]
        process = subprocess.run(command, capture_output=True, text=True, check=True)
        grown[name] = float(process.stdout.splitlines()[-1])
    assert grown["train"] < grown["stock"] + 5.0, grown
    assert grown["fit_collapsed_alone"] < grown["stock"] + 5.0, grown
    assert grown["fit_collapsed"] < 1.0, grown
