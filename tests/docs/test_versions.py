"""The lowest versions that .ci/versions installs are the lowest that pyproject.toml accepts."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOWEST = ROOT / ".ci" / "lowest.txt"


def test_the_constraints_are_the_floors() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    of_users = project[: project.index("\ndev = ")].split("[project]")[1]
    floors = dict(re.findall(r'"([\w-]+)>=([\d.]+)', of_users))
    assert {"tensorflow", "numpy", "pydantic", "pytest"} <= set(floors)
    constraints = dict(re.findall(r"^([\w-]+)==([\d.]+)$", LOWEST.read_text(), re.MULTILINE))
    assert set(constraints) == set(floors)
    for name, version in constraints.items():
        padded = floors[name] + ".0" * (2 - floors[name].count("."))
        assert version == padded, name
