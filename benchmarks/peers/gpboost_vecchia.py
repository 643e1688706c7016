"""GPBoost's Vecchia approximation of a GP, with what its documentation recommends."""

import sys
import time
from pathlib import Path

import gpboost
import numpy as np
from scipy.stats import norm
from scores import peak_megabytes, write

NEIGHBORS = 20  # its default


def main(data: Path, result: Path) -> None:
    """Fit the arrays in the file ``data``, and write scores on its test rows to ``result``."""
    arrays = np.load(data)
    X, y, X_test, y_test = (arrays[name] for name in ("X", "y", "X_test", "y_test"))
    is_binary = bool(arrays["is_binary"])
    varies = X.std(0) > 0.0  # it refuses constant columns
    X, X_test = X[:, varies], X_test[:, varies]
    began = time.process_time()
    model = gpboost.GPModel(
        gp_coords=X,
        cov_function="matern_ard",
        cov_fct_shape=float(arrays["smoothness"]),
        likelihood="bernoulli_logit" if is_binary else "gaussian",
        gp_approx="vecchia",
        num_neighbors=NEIGHBORS,
        num_parallel_threads=1,
        seed=int(arrays["seed"]),
    )
    model.fit(y=y)
    fitted = time.process_time()
    found = model.predict(gp_coords_pred=X_test, predict_var=True, predict_response=True)
    mean, sd = found["mu"], np.sqrt(found["var"])
    scores = {"cpu_seconds": fitted - began, "cpu_seconds_predicting": time.process_time() - fitted}
    if is_binary:
        p = np.clip(np.where(y_test > 0.5, mean, 1.0 - mean), 1e-12, 1.0)
        scores |= {"nll": -np.log(p).mean(), "error": np.mean((mean > 0.5) != (y_test > 0.5))}
    else:
        scores["nll"] = -norm.logpdf(y_test, mean, sd).mean()
        scores["error"] = np.sqrt(np.mean(np.square(mean - y_test)))
        scores["coverage"] = np.mean(np.abs(y_test - mean) <= norm.ppf(0.95) * sd)
    scores["megabytes"] = peak_megabytes()
    scores["neighbors"] = NEIGHBORS
    write(result, scores)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
