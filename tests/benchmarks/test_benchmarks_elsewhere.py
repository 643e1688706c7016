"""Runs in other processes: what they return, and what becomes of one that takes too long."""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks import elsewhere

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
    monkeypatch.setattr(elsewhere, "PEERS", {request.param: ("script.py", ())})
    monkeypatch.setattr(elsewhere, "_environment", lambda folder, packages: sys.executable)
    return request.param


def test_a_peer_returns_its_scores_or_nothing_or_its_error(peer: str, tmp_path: Path) -> None:
    run = partial(elsewhere.of_peer, peer, tmp_path, 2, {"X": np.ones(3)})
    if peer == "wrong":
        with pytest.raises(RuntimeError, match="what it says"):
            run()
    else:
        assert run() == ({"nll": 3.0, "error": 0.5} if peer == "good" else None)


@pytest.mark.slow
def test_a_process_of_its_own_is_ended_after_its_seconds() -> None:
    """It has used some for importing TensorFlow before it is told the limit."""
    assert elsewhere.of_own_process(600, partial(dict, nll=1.0)) == {"nll": 1.0}
    assert elsewhere.of_own_process(1, partial(max, range(10**12))) is None
