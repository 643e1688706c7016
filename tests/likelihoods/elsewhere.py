"""
Models of lifelines and statsmodels, fitted by these to simulated data: oracles for our likelihoods.

Neither package is needed for the tests, which read ``elsewhere.json``. This program wrote that file
in an environment of its own, as statsmodels takes pandas back to 2.3::

    pip install lifelines==0.30.3 statsmodels==0.15.0
    python tests/likelihoods/elsewhere.py

Data are functions of uniform numbers, so that every version of NumPy makes the same.
"""

import json
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import scipy.special
import scipy.stats
from numpy.typing import NDArray

Array = NDArray[Any]
KEPT = Path(__file__).with_suffix(".json")
PACKAGES = "lifelines", "statsmodels", "numpy", "scipy", "pandas"
N = 300

_U = np.random.default_rng(29).random((4, N))
X: Array = scipy.special.ndtri(_U[:2]).T
LINE: Array = 0.5 + 0.8 * X[:, 0] - 0.4 * X[:, 1]


def _survival(quantiles: Callable[[Array], Array], scale: float) -> Array:
    """Rows (lower, upper) of times, of which some 30 % are right-censored."""
    time, end = np.exp(LINE + scale * quantiles(_U[2])), np.exp(1.2 + scipy.special.ndtri(_U[3]))
    return np.stack([np.minimum(time, end), np.where(time > end, np.inf, time)], -1)


def _between_visits(quantiles: Callable[[Array], Array], scale: float) -> Array:
    """Rows (lower, upper): exact times, and some that are left-, interval- or right-censored."""
    time = np.exp(LINE + scale * quantiles(_U[2]))
    visits = np.array([0.0, 0.8, 1.6, 3.2, np.inf])
    after = np.searchsorted(visits, time)
    ends = np.stack([visits[after - 1], visits[after]], -1)
    return np.where(_U[3][:, None] < 0.3, time[:, None], ends)


def _counts(log_mean: Array, dispersion: float) -> Array:
    """Negative binomial counts of variance m + dispersion · m²."""
    r = 1.0 / dispersion
    return scipy.stats.nbinom.ppf(_U[2], r, r / (r + np.exp(log_mean)))


LINKS = {"normal": "probit", "logistic": "logit"}
GATE: Array = scipy.special.expit(-1.0 + 0.7 * X[:, 0])
LAWS = {
    "normal": (scipy.special.ndtri, 0.7),
    "logistic": (scipy.special.logit, 0.5),
    "extreme value": (scipy.stats.gumbel_l.ppf, 0.6),
}
ENDS: dict[str, Array] = {
    **{f"{law}, right-censored": _survival(*LAWS[law]) for law in LAWS},
    **{f"{law}, between visits": _between_visits(*LAWS[law]) for law in LINKS},
}
GRADES: dict[str, Array] = {
    law: np.searchsorted([-1.0, 0.5, 2.0], LINE + LAWS[law][0](_U[2])) for law in LINKS
}
COUNTS: dict[str, Array] = {
    "Poisson, gate of x": scipy.stats.poisson.ppf(_U[2], np.exp(LINE)) * (_U[3] > GATE),
    "negative binomial, one gate": _counts(LINE, 0.4) * (_U[3] > 0.25),
    "negative binomial, zeros left out": _counts(LINE, 0.4),
}


def checksum(y: Array) -> float:
    """A number by which data are recognised."""
    return float(np.arange(1, N + 1) @ np.where(np.isfinite(y), y, 0.0).reshape(N, -1).sum(1))


def _survivals() -> dict[str, Any]:
    """Parameters: intercept, two slopes, and the log of sigma, beta or rho."""
    import lifelines
    import pandas as pd

    fitters = {
        "normal": (lifelines.LogNormalAFTFitter, "mu_", "sigma_"),
        "logistic": (lifelines.LogLogisticAFTFitter, "alpha_", "beta_"),
        "extreme value": (lifelines.WeibullAFTFitter, "lambda_", "rho_"),
    }
    options = {"fit_options": {"ftol": 1e-14, "maxiter": 1_000}}
    of = {}
    for name, ends in ENDS.items():
        frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "lower": ends[:, 0], "upper": ends[:, 1]})
        kind, location, other = fitters[name.split(",")[0]]
        fitter = kind()
        if name.endswith("right-censored"):
            frame["upper"] = np.isfinite(ends[:, 1])
            fitter.fit_right_censoring(frame, "lower", "upper", **options)
        else:
            if name.startswith("normal"):  # it fails at 0 and ∞; beyond these p is below 1e-16
                frame[["lower", "upper"]] = np.clip(ends, 1e-4, 1e6)
            fitter.fit_interval_censoring(frame, "lower", "upper", **options)
        order = [(location, "Intercept"), (location, "a"), (location, "b"), (other, "Intercept")]
        params, covariance = fitter.params_[order], fitter.variance_matrix_.loc[order, order]
        of[name] = params.to_numpy(), covariance.to_numpy(), fitter.log_likelihood_, ends
    return of


def _statsmodels() -> dict[str, Any]:
    """Parameters in the order of statsmodels."""
    from statsmodels.discrete.count_model import (
        ZeroInflatedNegativeBinomialP,
        ZeroInflatedPoisson,
    )
    from statsmodels.discrete.truncated_model import TruncatedLFNegativeBinomialP
    from statsmodels.miscmodels.ordinal_model import OrderedModel

    with_1 = np.insert(X, 0, 1.0, axis=1)
    gate, one, left_out = COUNTS
    positive = COUNTS[left_out] > 0
    models = {
        **{f"grades, {law}": OrderedModel(y, X, distr=LINKS[law]) for law, y in GRADES.items()},
        gate: ZeroInflatedPoisson(COUNTS[gate], with_1, exog_infl=with_1),
        one: ZeroInflatedNegativeBinomialP(COUNTS[one], with_1, exog_infl=np.ones((N, 1))),
        left_out: TruncatedLFNegativeBinomialP(COUNTS[left_out][positive], with_1[positive]),
    }
    of = {}
    for name, model in models.items():
        start = model.fit(method="bfgs", maxiter=2_000, disp=0).params
        result = model.fit(start, method="newton", maxiter=200, tol=1e-12, disp=0)
        y = COUNTS[name] if name in COUNTS else GRADES[name.split(", ")[1]]
        of[name] = (np.asarray(result.params), np.asarray(result.cov_params()), result.llf, y)
    return of


if __name__ == "__main__":
    kept: dict[str, Any] = {"versions": {name: metadata.version(name) for name in PACKAGES}}
    for name, (params, covariance, log_likelihood, y) in (_survivals() | _statsmodels()).items():
        kept[name] = {
            "params": params.tolist(),
            "covariance": covariance.tolist(),
            "log_likelihood": float(log_likelihood),
            "checksum": checksum(y),
        }
    KEPT.write_text(json.dumps(kept, indent=1) + "\n")
