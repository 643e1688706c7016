"""Progress bars in terminals and notebooks; no output to pipes and files."""

import sys
from typing import Any

_DELAY = 1.0  # seconds before a bar appears, so that quick calls show none


def progress_bar(shown: bool, **kwargs: Any) -> Any:
    """
    Return tqdm's bar for a terminal or a notebook, as a context manager.

    :param shown: whether there is a bar at all.
    :param kwargs: arguments of ``tqdm``, such as ``total`` and ``unit``.
    """
    from tqdm.auto import tqdm

    # disable=None shows a bar in terminals only, and tqdm does not take a notebook for one.
    disable = (False if _in_notebook() else None) if shown else True
    return tqdm(disable=disable, delay=_DELAY, **kwargs)


def _in_notebook() -> bool:
    """Whether a Jupyter kernel runs this process."""
    if "ipykernel" not in sys.modules or "IPython" not in sys.modules:
        return False
    return type(sys.modules["IPython"].get_ipython()).__name__ == "ZMQInteractiveShell"
