"""The collapsed bound with its gradient, beside the products it cannot do without."""

from pathlib import Path

import numpy as np
import pandas as pd
import tensorflow as tf

import gpflow_aaci
from gpflow_aaci.collapsed import collapsed_bound

from .config import CollapsedCost, LikelihoodConfig
from .data import synthetic
from .methods import make_model, make_start
from .step_time import interleaved


def run(config: CollapsedCost, folder: Path, quiet: bool = False) -> pd.DataFrame:
    """Median milliseconds of both, K_ZZ and K_ZX given, and their ratio."""
    split = synthetic(config.num_data, config.input_dim)
    start = make_start(split, LikelihoodConfig(name="StudentT"), config.num_inducing, seed=0)
    model = make_model(start, gpflow_aaci.AugmentedSVGP)
    K_ZZ = tf.constant(model.prior_covariance())
    K_ZX, k_diag = (tf.constant(K) for K in model.cross_covariance(tf.constant(split.X)))
    Y, c = tf.constant(split.Y), tf.ones_like(tf.constant(split.Y))
    mean, scale = tf.zeros_like(Y), tf.ones([], Y.dtype)

    def evaluation() -> list[tf.Tensor]:
        sources = [K_ZZ, K_ZX, k_diag, c]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            args = (model.likelihood, K_ZZ, K_ZX, k_diag, mean, Y, c, scale)
            bound = collapsed_bound(*args)
        return tape.gradient(bound, sources)

    L = tf.linalg.cholesky(K_ZZ)
    small, A = tf.ones_like(L), tf.constant(tf.linalg.triangular_solve(L, K_ZX))

    def products() -> list[tf.Tensor]:
        return [
            tf.linalg.triangular_solve(L, K_ZX),
            tf.matmul(A, A, transpose_b=True),  # A diag(precision) Aᵀ
            tf.matmul(small, A),  # L⁻ᵀW A
        ]

    name = "collapsed bound and gradient"
    steps = {name: evaluation, "its N·M² products and triangular solve": products}
    times = interleaved(steps, config.rounds, 1, quiet)
    medians = {key: float(np.median(values)) for key, values in times.items()}
    least = list(medians.values())[1]
    return pd.DataFrame(
        {"what": key, "milliseconds": value, "ratio": value / least}
        for key, value in medians.items()
    )
