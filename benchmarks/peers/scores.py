"""What the scripts share; it needs no package."""

import resource
from collections.abc import Mapping
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_megabytes() -> float:
    """The largest memory of this process; getrusage counts what a parent had when it began."""
    if _STATUS.is_file():
        peaks = [line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM")]
        if peaks:
            return float(peaks[0].split()[1]) / 1024.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def write(path: Path, scores: Mapping[str, float]) -> None:
    """Write lines "name,value"."""
    path.write_text("\n".join(f"{name},{float(value)!r}" for name, value in scores.items()))
