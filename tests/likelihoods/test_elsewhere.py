"""Regressions of lifelines and statsmodels, which ``elsewhere.py`` fitted, as GPs of lines."""

import json
from typing import Any

import elsewhere
import gpflow
import numpy as np
import pytest
import scipy.special
from gpflow.base import AnyNDArray

from gpflow_aaci import AugmentedSVGP, fit
from gpflow_aaci.likelihoods import (
    Interval,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Warped,
    Weibull,
    ZeroInflated,
    ZeroTruncated,
    warps,
)
from gpflow_aaci.likelihoods.base import AugmentedLikelihood

KEPT = json.loads(elsewhere.KEPT.read_text())
NAMES = [name for name in KEPT if name != "versions"]
MAX_RATE = 1e3
with_1 = np.insert(elsewhere.X, 0, 1.0, axis=1)
Made = tuple[AugmentedLikelihood, AnyNDArray, AnyNDArray]  # the likelihood, F and Y

each = pytest.mark.parametrize("name", NAMES)


def found(name: str) -> tuple[AnyNDArray, AnyNDArray]:
    """The parameters and their covariance."""
    return np.array(KEPT[name]["params"]), np.array(KEPT[name]["covariance"])


def data(name: str) -> AnyNDArray:
    return {**elsewhere.ENDS, **elsewhere.COUNTS, **elsewhere.GRADES}[name.removeprefix("grades, ")]


def bounded(rate: AnyNDArray) -> AnyNDArray:
    """The f of which λσ(f) is the rate."""
    return scipy.special.logit(rate / MAX_RATE)


def made(name: str, p: AnyNDArray) -> Made:
    """The likelihood, F and Y at the parameters elsewhere."""
    of = times if name in elsewhere.ENDS else counts if name in elsewhere.COUNTS else grades
    likelihood, F, Y = of(name, data(name), p)
    return likelihood, *(part.reshape(len(part), -1).astype(float) for part in (F, Y))


def times(name: str, ends: AnyNDArray, p: AnyNDArray) -> Made:
    """
    log T = line + scale · e. lifelines has log sigma, log beta = −log scale, and log rho.

    Its Weibull law has the cumulative hazard (t/e^line)^rho, and ours λσ(f) t^rho.
    """
    line, law = with_1 @ p[:3], name.split(",")[0]
    if law == "extreme value":
        rho = np.exp(p[3])
        Y = np.stack([ends[:, 0], np.isfinite(ends[:, 1])], -1)
        return Weibull(MAX_RATE, rho, with_censoring=True), bounded(np.exp(-rho * line)), Y
    scale = np.exp(p[3] if law == "normal" else -p[3])
    return Warped(Interval(elsewhere.LINKS[law], scale), warps.Log()), line, ends


def grades(name: str, y: AnyNDArray, p: AnyNDArray) -> Made:
    """statsmodels has the slopes, the first edge, and logs of the distances between edges."""
    edges = np.cumsum([p[2], *np.exp(p[3:])])
    return Ordinal(edges, link=elsewhere.LINKS[name.split(", ")[1]]), elsewhere.X @ p[:2], y


def counts(name: str, y: AnyNDArray, p: AnyNDArray) -> Made:
    """The mean is e^line; of our negative binomial it is r e^f, and r is 1/alpha, the last p."""
    if name.startswith("Poisson"):
        F = np.stack([bounded(np.exp(with_1 @ p[3:])), with_1 @ p[:3]], -1)
        return ZeroInflated(Poisson(MAX_RATE), "gp"), F, y
    count, f = NegativeBinomial(1.0 / p[-1]), with_1 @ p[-4:-1] + np.log(p[-1])
    if name.endswith("gate"):
        return ZeroInflated(count, scipy.special.expit(p[0])), f, y
    return ZeroTruncated(count), f[y > 0.0], y[y > 0.0]


def log_p(name: str, p: AnyNDArray) -> float:
    likelihood, F, Y = made(name, p)
    return float(np.sum(likelihood.log_prob(np.zeros((len(F), 0)), F, Y)))


@each
def test_log_p_at_their_parameters_is_theirs(name: str) -> None:
    """The models are the same, also those of a rate: λσ(f) takes every value below λ."""
    assert elsewhere.checksum(data(name)) == pytest.approx(KEPT[name]["checksum"], rel=1e-12)
    at_theirs = log_p(name, found(name)[0])
    assert at_theirs == pytest.approx(KEPT[name]["log_likelihood"], rel=1e-10)


@pytest.mark.slow
@each
def test_log_p_is_greatest_at_their_parameters_and_curved_as_theirs(name: str) -> None:
    """
    By differences of our log p with respect to all parameters, those of the noise among them.

    Newton's step is below 2e-4 standard errors, and the curvature in every parameter is that of
    their observed information.
    """
    p, covariance = found(name)
    h = 1e-3 * np.sqrt(np.diag(covariance))
    at = log_p(name, p)
    up, down = (
        np.array([log_p(name, p + sign * step) for step in np.diag(h)]) for sign in (1.0, -1.0)
    )
    step = covariance @ ((up - down) / (2.0 * h))
    assert np.all(np.abs(step) < 0.2 * h)
    information = np.diag(np.linalg.inv(covariance))
    np.testing.assert_allclose((2.0 * at - up - down) / h**2, information, rtol=1e-5)


def as_theirs(likelihood: Any, line: AnyNDArray) -> AnyNDArray:
    """The parameters elsewhere of a fitted likelihood and of the line that f is."""
    if isinstance(likelihood, Ordinal):
        edges = likelihood.bin_edges.numpy()
        return np.array([*line, edges[0], *np.log(np.diff(edges))])
    if isinstance(likelihood, Warped):
        log_scale = np.log(likelihood.base.scale.numpy())
        return np.array([*line, log_scale if likelihood.base.link == "probit" else -log_scale])
    has_gate = isinstance(likelihood, ZeroInflated)
    alpha = 1.0 / (likelihood.count if has_gate else likelihood.base).total_count.numpy()
    of_gate = [scipy.special.logit(likelihood.gate.numpy())] if has_gate else []
    return np.array([*of_gate, line[0] - np.log(alpha), *line[1:], alpha])


@pytest.mark.slow
@pytest.mark.by_default("logistic, right-censored")
@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith(("extreme", "Poisson"))])
def test_a_gp_of_lines_has_their_coefficients_and_standard_errors(name: str) -> None:
    """
    Under a flat prior the posterior of a line is that of maximum likelihood but for O(1/N).

    The parameters of the likelihood are learnt, and begin two standard errors off. The standard
    errors of the line are those at known ones. Rates are left out, as λσ(f) is no e^line.
    """
    p, covariance = found(name)
    sd = np.sqrt(np.diag(covariance))
    first = 1 if name.endswith("gate") else 0
    of_line = slice(2) if name.startswith("grades") else slice(first, first + 3)
    likelihood, F, Y = made(name, p + 2.0 * sd)
    X = elsewhere.X[data(name) > 0.0] if name.endswith("left out") else elsewhere.X
    kernel: gpflow.kernels.Kernel = gpflow.kernels.Linear(variance=[1e4, 1e4])
    Z, to_line = np.eye(2), np.eye(2)
    if not name.startswith("grades"):  # f at 0 is the intercept
        kernel += gpflow.kernels.Constant(1e4)
        Z = np.vstack([np.zeros(2), Z])
        to_line = np.array([[1.0, 0.0, 0.0], [-1.0, 1.0, 0.0], [-1.0, 0.0, 1.0]])
    model = AugmentedSVGP(kernel, likelihood, Z, num_data=len(F))
    gpflow.set_trainable(kernel, False)
    gpflow.set_trainable(model.inducing_variable, False)
    fit(model, (X, Y), progress=False)
    mean, of_f = (part.numpy() for part in model.predict_f(Z, full_cov=True))
    ours = as_theirs(likelihood, to_line @ mean[:, 0])
    assert np.all(np.abs(ours - p) < 0.3 * sd)
    assert np.all(np.abs(ours - p)[of_line] < 0.2 * sd[of_line])
    expected = np.linalg.inv(np.linalg.inv(covariance)[of_line, of_line])
    of_f = to_line @ of_f[0] @ to_line.T
    np.testing.assert_allclose(np.sqrt(np.diag(of_f)), np.sqrt(np.diag(expected)), rtol=0.03)
