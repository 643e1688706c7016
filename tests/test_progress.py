"""Progress bars appear in terminals and notebooks, but not in pipes or when switched off."""

import ast
import fcntl
import inspect
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from pathlib import Path

import nbclient
import nbformat
import pytest

import gpflow_aaci
from gpflow_aaci import predictions
from gpflow_aaci.inference import training

LONG = {  # functions that can take longer than two seconds
    "train": gpflow_aaci.train,
    "fit_collapsed": gpflow_aaci.fit_collapsed,
    "polish": gpflow_aaci.polish,
    "sample_posterior": gpflow_aaci.sample_posterior,
    "check_likelihood": gpflow_aaci.check_likelihood,
    "predict_f_samples": predictions.predict_f_samples,
    "predict_y": predictions.predict_y,
    "predict_log_density": predictions.predict_log_density,
}

SCRIPT = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import sys
import warnings
warnings.simplefilter("ignore")
import numpy as np, gpflow, gpflow_aaci
import gpflow_aaci.progress
gpflow_aaci.progress._DELAY = 0.0
for stream in (sys.stdout, sys.stderr):  # skip what TensorFlow says at import
    print("BEGIN", file=stream, flush=True)
X = np.linspace(-2.0, 2.0, 30)[:, None]
data = X, np.sin(X)
kernel, likelihood = gpflow.kernels.Matern32(), gpflow_aaci.likelihoods.Laplace()
model = gpflow_aaci.AugmentedSVGP(kernel, likelihood, X[::5].copy(), num_data=30)
shown = {} if SHOWN else {"progress": False}
gpflow_aaci.train(model, data, num_steps=20, evaluate_every=10, **shown)
gpflow_aaci.fit_collapsed(model, data, tolerance=1.0, **shown)
draws = gpflow_aaci.sample_posterior(
    model, data, num_samples=30, num_chains=1, num_burnin=0, **shown
)
mean, _ = gpflow_aaci.predictions.predict_y(model, X, samples=draws, **shown)
"""

# The end of each call's bar, with the number of its steps, evaluations or draws.
ENDS = [r"20/20 \[.*ELBO", r"\d+evaluation .*objective", r"30/30 \[.*draw/s"]


# A line of TensorFlow's C++ part, which in 2.18 warns in the middle of runs at any log level.
TENSORFLOW = re.compile(r"^[IWE]\d{4} .*\.cc:\d+\] .*\r?\n", re.MULTILINE)


def script(shown: bool) -> str:
    return SCRIPT.replace("SHOWN", str(shown))


def in_a_terminal(source: str) -> str:
    """The output of a process whose standard streams are a terminal."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))  # rows, columns
    process = subprocess.Popen([sys.executable, "-c", source], stdout=child, stderr=child)
    os.close(child)
    shown = b""
    while True:
        ready, _, _ = select.select([parent], [], [], 1.0)
        try:
            part = os.read(parent, 65536) if ready else b""
        except OSError:  # the process has closed its end
            break
        if ready and not part:
            break
        shown += part
    os.close(parent)
    assert process.wait() == 0, shown.decode()
    return TENSORFLOW.sub("", shown.decode().rpartition("BEGIN")[2].lstrip()).strip()


@pytest.mark.parametrize("name", LONG)
def test_everything_long_can_be_made_silent(name: str) -> None:
    defaults = {key: each.default for key, each in inspect.signature(LONG[name]).parameters.items()}
    if "options" in defaults:  # ``train`` has options
        defaults |= training._DEFAULTS
    assert defaults["progress"] is True


def test_no_module_has_a_bar_of_its_own() -> None:
    """Only one module knows whether we run in a terminal, a notebook or a pipe."""
    for path in Path(gpflow_aaci.__file__).parent.rglob("*.py"):
        imported = {
            name
            for node in ast.walk(ast.parse(path.read_text()))
            for name in (
                [node.module] if isinstance(node, ast.ImportFrom) else
                [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            )
        }  # fmt: skip
        if path.name != "progress.py":
            assert not any(name and name.startswith("tqdm") for name in imported), path


@pytest.mark.slow
def test_a_terminal_shows_bars() -> None:
    shown = in_a_terminal(script(True))
    for end in ENDS:
        assert re.search(end, shown), shown


@pytest.mark.slow
def test_a_pipe_stays_clean() -> None:
    """It does so even if bars are switched on."""
    command = [sys.executable, "-c", script(True)]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    for stream in (process.stdout, process.stderr):
        assert TENSORFLOW.sub("", stream.partition("BEGIN\n")[2]) == ""


@pytest.mark.replicate
@pytest.mark.slow
def test_a_terminal_shows_nothing_that_is_not_wanted() -> None:
    assert in_a_terminal(script(False)) == ""


@pytest.mark.slow
def test_a_notebook_shows_bars(tmp_path: Path) -> None:
    """They are widgets in the cell's outputs, and full at the end."""
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(script(shown)) for shown in (True, False)]
    nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    shown, silent = (
        [output.data for output in cell.outputs if output.output_type == "display_data"]
        for cell in notebook.cells
    )
    assert len(shown) == 4
    assert not silent
    states = notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    bars = [s["state"] for s in states.values() if "Progress" in s["model_name"]]
    full = {bar.get("max") for bar in bars if bar.get("value") == bar.get("max")}
    assert full >= {20.0, 30.0}
