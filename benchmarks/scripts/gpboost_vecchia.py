"""GPBoost's Vecchia approximation of a GP, with what its documentation recommends."""

import sys
import time
from pathlib import Path

import gpboost
import numpy as np
from scipy.stats import norm
from scores import held_out, peak_megabytes, write

NEIGHBORS = 20  # its default
# Rows up to which non-Gaussian noise has "cholesky": its default, conjugate gradients, does not
# converge where noise is small, and takes minutes on 300 rows.
MOST_ROWS_OF_CHOLESKY = 2_000
LIKELIHOODS = {
    "Gaussian": "gaussian",
    "Student-t": "t",
    "logit": "bernoulli_logit",
    "negative binomial": "negative_binomial",
}


def main(data: Path, result: Path) -> None:
    """Fit the arrays in the file ``data``, and write scores on its test rows to ``result``."""
    arrays = np.load(data)
    X, y, X_test, y_test = (arrays[name] for name in ("X", "y", "X_test", "y_test"))
    noise = str(arrays["noise"])
    varies = X.std(0) > 0.0  # it refuses constant columns
    X, X_test = X[:, varies], X_test[:, varies]
    # Of counts, whose unit is unknown, the mean of f is learnt.
    ones, ones_test = (
        np.ones((len(rows), 1)) if noise == "negative binomial" else None for rows in (X, X_test)
    )
    is_small = noise != "Gaussian" and len(X) <= MOST_ROWS_OF_CHOLESKY
    began = time.process_time()
    model = gpboost.GPModel(
        gp_coords=X,
        cov_function="matern_ard",
        cov_fct_shape=float(arrays["smoothness"]),
        likelihood=LIKELIHOODS[noise],
        gp_approx="vecchia",
        num_neighbors=NEIGHBORS,
        matrix_inversion_method="cholesky" if is_small else "default",
        num_parallel_threads=1,
        seed=int(arrays["seed"]),
    )
    model.fit(y=y, X=ones)
    fitted = time.process_time()
    found = model.predict(
        gp_coords_pred=X_test, X_pred=ones_test, predict_var=True, predict_response=False
    )
    Fmu, Fvar = found["mu"], found["var"]
    scores = {"cpu_seconds": fitted - began, "cpu_seconds_predicting": time.process_time() - fitted}
    parameters = {}
    if noise == "Gaussian":
        parameters = {"variance": float(np.ravel(model.get_cov_pars())[0])}
        inside = np.abs(y_test - Fmu) <= norm.ppf(0.95) * np.sqrt(Fvar + parameters["variance"])
        scores["coverage"] = inside.mean()
    elif noise != "logit":
        parameters = model.get_aux_pars().iloc[0].to_dict()
    scores |= held_out(y_test, Fmu, Fvar, noise, **parameters)
    scores["megabytes"] = peak_megabytes()
    scores["neighbors"] = NEIGHBORS
    write(result, scores)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
