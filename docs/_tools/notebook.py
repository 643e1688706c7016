"""The tutorial as a notebook, from its page: ``python docs/_tools/notebook.py``."""

import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
NOT_SHOWN = re.compile(r"^```text\n.*?^```\n|^!\[.*?\]\(.*?\)\n", re.MULTILINE | re.DOTALL)


def python_of(page: str) -> list[str]:
    """The blocks of Python on a page."""
    return BLOCK.findall(page)


def notebook_of(page: str) -> str:
    """The notebook, as JSON: its outputs and links within the documentation are left out."""
    page = NOT_SHOWN.sub("", page)
    page = re.sub(
        r"the\s+page is also a \{download\}`notebook <.*?>`", "run it from top to bottom", page
    )
    page = re.sub(r"\[([^]]+)\]\((?!http)[^)]*\)", r"\1", page)
    cells: list[dict[str, Any]] = []
    for number, text in enumerate(BLOCK.split(page)):
        if not text.strip():
            continue
        kind: dict[str, Any] = {"cell_type": "markdown"}
        if number % 2:
            kind = {"cell_type": "code", "execution_count": None, "outputs": []}
        source = text.strip().splitlines(keepends=True)
        cells.append({**kind, "id": f"cell-{len(cells)}", "metadata": {}, "source": source})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    page = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    (DOCS / "tutorial.ipynb").write_text(notebook_of(page), encoding="utf-8")
