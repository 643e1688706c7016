"""The tables of speed in kept runs follow from their traces by the rule that the page states."""

import re
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import convergence

REFERENCE = Path(__file__).parents[2] / "benchmarks" / "reference"
TABLE = re.compile(r"One yardstick: (.*?)\n\n((?:\|.*\n)+)")
RUNS = [
    summary.parent
    for summary in sorted(REFERENCE.glob("*/summary.md"))
    if TABLE.search(summary.read_text())
]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_the_yardstick_follows_from_the_traces(run: Path) -> None:
    found = TABLE.search((run / "summary.md").read_text())
    assert found is not None
    header, _, *rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in found[2].splitlines()
    ]
    (traces,) = run.glob("metrics.csv*")
    table = convergence.yardstick_table(pd.read_csv(traces, float_precision="round_trip"))
    assert header == list(table.columns)
    assert rows == [[str(cell).strip() for cell in row] for row in table.to_numpy()]


def test_there_are_runs_with_a_yardstick() -> None:
    assert {"time_to_nll", "small_data", "counts", "fig3_protein_laplace"} <= {r.name for r in RUNS}
