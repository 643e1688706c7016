"""What pages say about likelihoods, made from the classes: a new one is on each page by itself."""

import inspect
import re
from collections.abc import Sequence

from gpflow_aaci import likelihoods

HOME = likelihoods.__name__


def exported() -> list[type]:
    """The likelihoods, in the order of the alphabet; no bases."""
    values = [getattr(likelihoods, name) for name in likelihoods.__all__]
    return [value for value in values if inspect.isclass(value) and not inspect.isabstract(value)]


def defined_in(likelihood: type, modules: Sequence[str]) -> bool:
    place = likelihood.__module__.removeprefix(f"{HOME}.")
    return any(place == module or place.startswith(f"{module}.") for module in modules)


def said_of(likelihood: type) -> str:
    """The first paragraph of its docstring."""
    return " ".join((inspect.getdoc(likelihood) or "").split("\n\n")[0].split()).replace("|", r"\|")


ENTRIES = re.compile(r"^% (?:likelihoods of (.+)|other likelihoods)$", re.MULTILINE)


def with_entries(page: str) -> str:
    """
    Put the classes of the modules in place of a line "% likelihoods of noise, classes.binary".

    "% other likelihoods" becomes a section of the classes that no other line of the page has, if
    there are any.
    """
    named = [module for modules in ENTRIES.findall(page) for module in modules.split(", ")]

    def entries(line: re.Match[str]) -> str:
        if line[1]:
            classes = [each for each in exported() if defined_in(each, line[1].split(", "))]
        else:
            classes = [each for each in exported() if not defined_in(each, named)]
        directives = [f".. autoclass:: {each.__name__}\n" for each in classes]
        begin = "```{eval-rst}" if line[1] else "## Others\n\n```{eval-rst}"
        lines = [begin, f".. currentmodule:: {HOME}", "", *directives, "```"]
        return "\n".join(lines) if classes else ""

    return ENTRIES.sub(entries, page)


REST = "% likelihoods that are not named above"


def with_rest(page: str, included: str = "") -> str:
    """
    Put a table of the likelihoods that the text above it does not name in place of ``REST``.

    :param included: text of another file that the page includes above the table.
    """
    before, line, after = page.partition(REST)
    named = set(re.findall(r"`(\w+)", included + before))
    rest = [each for each in exported() if each.__name__ not in named]
    if not (line and rest):
        return before + after
    rows = [f"| `{each.__name__}` | {said_of(each)} |" for each in rest]
    return "\n".join(
        [before, "## Others", "", "| likelihood | what it is |", "|---|---|", *rows, after]
    )
