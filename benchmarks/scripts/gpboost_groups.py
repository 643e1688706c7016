"""GPBoost's effects of groups beside linear effects, with Gaussian noise."""

import sys
import time
from pathlib import Path

import gpboost
import numpy as np
from scores import held_out, peak_megabytes, write


def main(data: Path, result: Path) -> None:
    """Fit the arrays in the file ``data``, and write scores on its test rows to ``result``."""
    arrays = np.load(data)
    groups, X, y, groups_test, X_test, y_test = (
        arrays[name] for name in ("groups", "X", "y", "groups_test", "X_test", "y_test")
    )
    X, X_test = (np.column_stack([np.ones(len(rows)), rows]) for rows in (X, X_test))
    began = time.process_time()
    model = gpboost.GPModel(group_data=groups, likelihood="gaussian", num_parallel_threads=1)
    model.fit(y=y, X=X)
    fitted = time.process_time()
    found = model.predict(
        group_data_pred=groups_test, X_pred=X_test, predict_var=True, predict_response=False
    )
    predicted = time.process_time()
    variance, *of_groups = np.ravel(model.get_cov_pars())[: 1 + groups.shape[1]]
    scores = held_out(y_test, found["mu"], found["var"], "Gaussian", variance=variance)
    scores |= {f"sd_{number}": np.sqrt(value) for number, value in enumerate(of_groups)}
    scores |= {
        "sd_noise": np.sqrt(variance),
        "cpu_seconds": fitted - began,
        "cpu_seconds_predicting": predicted - fitted,
        "megabytes": peak_megabytes(),
    }
    write(result, scores)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
