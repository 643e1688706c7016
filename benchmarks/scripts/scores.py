"""What the scripts share: held-out scores by one rule, and how they are handed over."""

import resource
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy import special, stats

_STATUS = Path("/proc/self/status")
# Of a standard normal. A noise whose scale is a hundredth of f's deviation needs nodes as dense.
_NODES = np.linspace(-8.0, 8.0, 4_001)
_WEIGHTS = stats.norm.pdf(_NODES) / stats.norm.pdf(_NODES).sum()

# log p(y|f) and E(y|f), by the name of the noise.
NOISE = {
    "Gaussian": (lambda y, f, variance: stats.norm.logpdf(y, f, np.sqrt(variance)), lambda f: f),
    "Student-t": (lambda y, f, df, scale: stats.t.logpdf(y, df, f, scale), lambda f: f),
    "logit": (lambda y, f: special.log_expit((2.0 * y - 1.0) * f), special.expit),
    "probit": (lambda y, f: special.log_ndtr((2.0 * y - 1.0) * f), special.ndtr),
    "Poisson": (lambda y, f: stats.poisson.logpmf(y, np.exp(f)), np.exp),
    "negative binomial": (
        lambda y, f, shape: stats.nbinom.logpmf(y, shape, special.expit(np.log(shape) - f)),
        np.exp,
    ),
}


def held_out(
    y: np.ndarray, Fmu: np.ndarray, Fvar: np.ndarray, noise: str, **parameters: float
) -> dict[str, float]:
    """
    NLL and error (RMSE, or the share of wrong labels) at test rows, by quadrature of q(f).

    :param y: [N], as the moments of f there, Fmu and Fvar [N].
    :param noise: one of ``NOISE``; ``parameters`` are its own.
    """
    Fvar = np.maximum(Fvar, 0.0)  # it may be negative by rounding
    log_p, mean_of_y = NOISE[noise]
    if noise == "Gaussian":  # a sum of two; the fitted noise may be 0
        log_density, mean = log_p(y, Fmu, Fvar + parameters["variance"]), Fmu
    else:
        f = Fmu[:, None] + np.sqrt(Fvar)[:, None] * _NODES
        log_density = special.logsumexp(log_p(y[:, None], f, **parameters), axis=1, b=_WEIGHTS)
        mean = mean_of_y(f) @ _WEIGHTS
    is_wrong = (mean > 0.5) != (y > 0.5)
    is_binary = noise in ("logit", "probit")
    error = is_wrong.mean() if is_binary else np.sqrt(np.mean(np.square(mean - y)))
    return {"nll": -float(log_density.mean()), "error": float(error)}


def peak_megabytes() -> float:
    """The largest memory of this process; getrusage counts what a parent had when it began."""
    if _STATUS.is_file():
        peaks = [line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM")]
        if peaks:
            return float(peaks[0].split()[1]) / 1024.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def write(path: Path, scores: Mapping[str, float]) -> None:
    """Write lines "name,value"."""
    path.write_text("\n".join(f"{name},{float(value)!r}" for name, value in scores.items()))
