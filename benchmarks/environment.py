"""What results depend on besides config and data; no names of hosts or folders."""

import functools
import hashlib
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gpflow_aaci

_PACKAGES = ("gpflow_aaci", "gpflow", "tensorflow", "tensorflow-probability", "numpy")


@functools.cache
def environment() -> dict[str, Any]:
    """Versions, machine, and a digest of the code that is run."""
    return {
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
        "machine": {"architecture": platform.machine(), "cpus": os.cpu_count()},
        "code SHA-256": _code_sha256(),
    }


def _code_sha256() -> str:
    """Of all modules of the package and of the benchmarks."""
    digest = hashlib.sha256()
    for folder in (Path(gpflow_aaci.__file__).parent, Path(__file__).parent):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
            digest.update(path.read_bytes())
    return digest.hexdigest()
