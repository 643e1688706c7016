"""GPflow's SVGP and GPR, trained by its Scipy()."""

import sys
import time
from pathlib import Path

import gpflow
import numpy as np
from scores import held_out, peak_megabytes, write


def main(data: Path, result: Path) -> None:
    """Fit the arrays in the file ``data``, and write scores on its test rows to ``result``."""
    arrays = np.load(data)
    X, y, X_test, y_test, Z = (arrays[name] for name in ("X", "y", "X_test", "y_test", "Z"))
    noise, steps = str(arrays["noise"]), int(arrays["steps"])
    began = time.process_time()
    columns = X.shape[1]
    kernel = gpflow.kernels.Matern52(lengthscales=[np.sqrt(columns)] * columns)
    of_y = gpflow.likelihoods
    if noise == "Gaussian":
        model = gpflow.models.GPR((X, y[:, None]), kernel)
        loss = model.training_loss
    else:
        kinds = {"Student-t": of_y.StudentT, "probit": of_y.Bernoulli, "Poisson": of_y.Poisson}
        mean = gpflow.functions.Constant() if noise == "Poisson" else None
        model = gpflow.models.SVGP(kernel, kinds[noise](), Z, mean_function=mean, num_data=len(X))
        loss = model.training_loss_closure((X, y[:, None]))
    gpflow.optimizers.Scipy().minimize(
        loss, model.trainable_variables, options={"maxiter": steps, "maxfun": 2 * steps}
    )
    fitted = time.process_time()
    Fmu, Fvar = (moment.numpy()[:, 0] for moment in model.predict_f(X_test))
    predicted = time.process_time()
    parameters = {}
    if noise == "Gaussian":
        parameters = {"variance": float(model.likelihood.variance.numpy())}
    elif noise == "Student-t":
        scale = float(model.likelihood.scale.numpy())
        parameters = {"df": float(model.likelihood.df), "scale": scale}
    scores = held_out(y_test, Fmu, Fvar, noise, **parameters)
    scores |= {"cpu_seconds": fitted - began, "cpu_seconds_predicting": predicted - fitted}
    write(result, scores | {"megabytes": peak_megabytes()})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
