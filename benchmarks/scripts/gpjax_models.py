"""GPJax's exact GP by Scipy's L-BFGS, and its SVGP by Adam, as in its documentation."""

import sys
import time
from pathlib import Path

import jax
import numpy as np
import optax

jax.config.update("jax_enable_x64", True)

import gpjax  # noqa: E402
from scores import held_out, peak_megabytes, write  # noqa: E402

STEPS, BATCH = 3_000, 128  # of its documentation


def main(data: Path, result: Path) -> None:
    """Fit the arrays in the file ``data``, and write scores on its test rows to ``result``."""
    arrays = np.load(data)
    X, y, X_test, Z = (jax.numpy.asarray(arrays[name]) for name in ("X", "y", "X_test", "Z"))
    noise = str(arrays["noise"])
    rows = gpjax.Dataset(X=X, y=y[:, None])
    began = time.process_time()
    columns = X.shape[1]
    lengthscale = np.sqrt(columns) * jax.numpy.ones(columns)
    of_f, of_y = gpjax.mean_functions, gpjax.likelihoods
    prior = gpjax.gps.Prior(
        mean_function=of_f.Constant() if noise == "Poisson" else of_f.Zero(),
        kernel=gpjax.kernels.Matern52(lengthscale=lengthscale, n_dims=columns),
    )
    kinds = {
        "Gaussian": of_y.Gaussian,
        "Student-t": of_y.StudentT,
        "probit": of_y.Bernoulli,
        "Poisson": of_y.Poisson,
    }
    model = prior * kinds[noise]()
    if noise == "Gaussian":
        model, _ = gpjax.fit_scipy(
            model=model,
            objective=lambda p, d: -gpjax.objectives.conjugate_mll(p, d),
            train_data=rows,
            verbose=False,
        )
        jax.block_until_ready(jax.tree.leaves(model))
        likelihood = model.likelihood
    else:
        model = gpjax.variational_families.VariationalGaussian(model=model, inducing_inputs=Z)
        schedule = optax.warmup_cosine_decay_schedule(
            init_value=0.0, peak_value=0.02, warmup_steps=75, decay_steps=2_000, end_value=0.001
        )
        model, _ = gpjax.fit(
            model=model,
            objective=lambda p, d: -gpjax.objectives.elbo(p, d),
            train_data=rows,
            optim=optax.adam(schedule),
            num_iters=STEPS,
            batch_size=min(BATCH, len(X)),
            key=jax.random.key(int(arrays["seed"])),
            verbose=False,
        )
        jax.block_until_ready(jax.tree.leaves(model))
        likelihood = model.model.likelihood
    fitted = time.process_time()
    if noise == "Gaussian":
        of_test = model.predict(X_test, rows, covariance="diagonal")
    else:
        of_test = model.predict(X_test)
    Fmu, Fvar = np.ravel(of_test.mean), np.ravel(of_test.variance)
    predicted = time.process_time()
    value = gpjax.kernels.base.val
    parameters = {}
    if noise == "Gaussian":
        parameters = {"variance": float(value(likelihood.obs_stddev)) ** 2}
    elif noise == "Student-t":
        df, scale = value(likelihood.degrees_of_freedom), value(likelihood.scale)
        parameters = {"df": float(df), "scale": float(scale)}
    scores = held_out(arrays["y_test"], Fmu, Fvar, noise, **parameters)
    scores |= {"cpu_seconds": fitted - began, "cpu_seconds_predicting": predicted - fitted}
    write(result, scores | {"megabytes": peak_megabytes()})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
