"""The diagram of layers in docs/inside.md is the one that the imports make."""

import re
from pathlib import Path

from test_layering import IMPORTS

PAGE = Path(__file__).parents[2] / "docs" / "inside.md"


def dependencies() -> dict[str, set[str]]:
    """The top-level modules that each one imports anywhere."""
    found: dict[str, set[str]] = {}
    for module, imported in IMPORTS.items():
        name = module.split(".")[0]
        for target in imported:
            other = target.split(".")[0]
            if name and other and other != name:
                found.setdefault(name, set()).add(other)
        if name:
            found.setdefault(name, set())
    return found


def diagram(direct: dict[str, set[str]]) -> str:
    """A line for every module, the highest layer first, with its imports that no other brings."""

    def reach(name: str) -> set[str]:
        return direct[name].union(*map(reach, direct[name]))

    def layer(name: str) -> int:
        return max((1 + layer(other) for other in direct[name]), default=0)

    lines = []
    for name in sorted(direct, key=lambda name: (-layer(name), name)):
        indirect = set().union(*map(reach, direct[name]))
        shown = ", ".join(sorted(direct[name] - indirect))
        lines.append(f"{layer(name)}  {name:15} {shown}".rstrip())
    return "\n".join(lines)


def test_the_diagram_of_layers_is_that_of_the_imports() -> None:
    (shown,) = re.findall(r"```text\n(\d+  .*?)\n```", PAGE.read_text(), re.DOTALL)
    assert diagram(dependencies()) == shown


def test_what_is_imported_by_way_of_others_is_left_out() -> None:
    assert diagram({"a": set(), "b": {"a"}, "c": {"a", "b"}}).splitlines() == [
        "2  c               b",
        "1  b               a",
        "0  a",
    ]
