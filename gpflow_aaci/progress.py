"""Progress bars: in terminals and notebooks, nothing in pipes and files."""

import sys
from typing import Any

_DELAY = 1.0  # seconds without a bar: what is quick says nothing


def progress_bar(shown: bool, **kwargs: Any) -> Any:
    """
    tqdm's bar of the place we run in, as a context manager.

    :param shown: False for none at all.
    :param kwargs: as of ``tqdm``, such as ``total`` and ``unit``.
    """
    from tqdm.auto import tqdm

    # disable=None is tqdm's «unless a terminal», and a notebook is none: its streams are no tty.
    disable = (False if _in_notebook() else None) if shown else True
    return tqdm(disable=disable, delay=_DELAY, **kwargs)


def _in_notebook() -> bool:
    """Whether a Jupyter kernel runs us."""
    if "ipykernel" not in sys.modules or "IPython" not in sys.modules:
        return False
    return type(sys.modules["IPython"].get_ipython()).__name__ == "ZMQInteractiveShell"
