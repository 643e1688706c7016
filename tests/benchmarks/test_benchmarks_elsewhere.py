"""Runs in other processes: what they return, and what becomes of one that takes too long."""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, special, stats

from benchmarks import elsewhere
from benchmarks.scripts.scores import NOISE, held_out

SCRIPTS = {
    "good": (
        "import sys, pathlib, numpy as np\n"
        "arrays = np.load(sys.argv[1])\n"
        "pathlib.Path(sys.argv[2]).write_text(f'nll,{arrays[\"X\"].sum()}\\nerror,0.5')\n"
    ),
    "endless": "while True: pass\n",
    "wrong": "raise KeyError('what it says')\n",
}


@pytest.fixture(params=SCRIPTS)
def peer(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "script.py").write_text(SCRIPTS[request.param])
    monkeypatch.setattr(elsewhere, "_SCRIPTS", tmp_path)
    monkeypatch.setattr(elsewhere, "PEERS", {request.param: ("script.py", ("package==1.0",))})
    monkeypatch.setattr(elsewhere, "_environment", lambda folder, packages: sys.executable)
    return request.param


@pytest.mark.briefly("wrong")
def test_a_peer_returns_its_scores_or_nothing_or_its_error(peer: str, tmp_path: Path) -> None:
    run = partial(elsewhere.of_peer, peer, tmp_path, 2, {"X": np.ones(3)})
    if peer == "wrong":
        with pytest.raises(RuntimeError, match="what it says"):
            run()
    else:
        assert run() == ({"nll": 3.0, "error": 0.5} if peer == "good" else None)


@pytest.mark.parametrize(
    ("noise", "y", "parameters"),
    [
        ("Gaussian", 0.7, {"variance": 0.1}),
        ("Student-t", 2.0, {"df": 3.0, "scale": 0.4}),
        ("logit", 1.0, {}),
        ("probit", 0.0, {}),
        ("Poisson", 3.0, {}),
        ("negative binomial", 4.0, {"shape": 1.5}),
    ],
)
def test_held_out_density_is_the_integral_over_f(
    noise: str, y: float, parameters: dict[str, float]
) -> None:
    m, v = 0.3, 0.5
    densities = {
        "Gaussian": lambda f: stats.norm.pdf(y, f, np.sqrt(0.1)),
        "Student-t": lambda f: stats.t.pdf((y - f) / 0.4, 3.0) / 0.4,
        "logit": special.expit,
        "probit": lambda f: 1.0 - special.ndtr(f),
        "Poisson": lambda f: np.exp(3.0 * f - np.exp(f)) / 6.0,
        # Of mean e^f and variance e^f + e^2f / 1.5.
        "negative binomial": lambda f: (
            special.binom(4.5, 4) * 1.5**1.5 * np.exp(4.0 * f) / (1.5 + np.exp(f)) ** 5.5
        ),
    }
    assert densities.keys() == NOISE.keys()
    ends = m - 9.0 * np.sqrt(v), m + 9.0 * np.sqrt(v)
    p = integrate.quad(lambda f: densities[noise](f) * stats.norm.pdf(f, m, np.sqrt(v)), *ends)[0]
    scores = held_out(np.array([y]), np.array([m]), np.array([v]), noise, **parameters)
    np.testing.assert_allclose(scores["nll"], -np.log(p), rtol=1e-5)


def test_held_out_density_of_noise_that_is_small_beside_f() -> None:
    """Of none at all, too: it is the density of f."""
    y, m, v = np.array([0.8]), np.array([0.3]), np.array([0.5])
    of_f = -stats.norm.logpdf(0.8, 0.3, np.sqrt(0.5))
    assert held_out(y, m, v, "Gaussian", variance=0.0)["nll"] == pytest.approx(of_f)
    scores = held_out(y, m, v, "Student-t", df=30.0, scale=0.01)
    assert scores["nll"] == pytest.approx(of_f, abs=2e-4)


@pytest.mark.replicate
def test_a_process_of_its_own_is_ended_after_its_seconds() -> None:
    """It has used some for importing TensorFlow before it is told the limit."""
    assert elsewhere.of_own_process(600, partial(dict, nll=1.0)) == {"nll": 1.0}
    assert elsewhere.of_own_process(1, partial(max, range(10**12))) is None
