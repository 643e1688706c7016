"""scikit-learn's exact GPs, with the kernel of its documentation for noisy data."""

import sys
import time
from pathlib import Path

import numpy as np
from scores import held_out, peak_megabytes, write
from sklearn import gaussian_process
from sklearn.gaussian_process import kernels


def main(data: Path, result: Path) -> None:
    """Fit the arrays in the file ``data``, and write scores on its test rows to ``result``."""
    arrays = np.load(data)
    X, y, X_test, y_test = (arrays[name] for name in ("X", "y", "X_test", "y_test"))
    is_binary = str(arrays["noise"]) == "logit"
    began = time.process_time()
    columns = X.shape[1]
    matern = kernels.Matern([np.sqrt(columns)] * columns, nu=float(arrays["smoothness"]))
    kernel = kernels.ConstantKernel() * matern
    if is_binary:
        model = gaussian_process.GaussianProcessClassifier(kernel).fit(X, y)
        fitted = time.process_time()
        p = np.clip(model.predict_proba(X_test)[:, 1], 1e-12, 1.0 - 1e-12)
        nll = -np.log(np.where(y_test > 0.5, p, 1.0 - p)).mean()
        scores = {"nll": nll, "error": np.mean((p > 0.5) != (y_test > 0.5))}
        predicted = time.process_time()
    else:
        model = gaussian_process.GaussianProcessRegressor(kernel + kernels.WhiteKernel()).fit(X, y)
        fitted = time.process_time()
        mean, sd = model.predict(X_test, return_std=True)  # of y: the noise is in the kernel
        predicted = time.process_time()
        variance = model.kernel_.k2.noise_level
        Fvar = np.maximum(np.square(sd) - variance, 0.0)
        scores = held_out(y_test, mean, Fvar, "Gaussian", variance=variance)
    scores |= {"cpu_seconds": fitted - began, "cpu_seconds_predicting": predicted - fitted}
    write(result, scores | {"megabytes": peak_megabytes()})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
