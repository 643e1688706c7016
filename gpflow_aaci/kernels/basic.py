"""The kernels that a kernel is made of."""

from collections.abc import Iterator

import numpy as np
from gpflow.kernels import Kernel, Static


def parts_of(kernel: Kernel) -> list[Kernel]:
    """The kernels that a kernel combines; an empty list for a basic kernel."""
    return getattr(kernel, "kernels", None) or [
        part for name in ("kernel", "base_kernel") if (part := getattr(kernel, name, None))
    ]


def basic_kernels(kernel: Kernel) -> Iterator[Kernel]:
    """The basic kernels that a kernel combines, or the kernel itself if it is one."""
    parts = parts_of(kernel)
    if not parts:
        yield kernel
    for part in parts:
        yield from basic_kernels(part)


def columns_of(kernel: Kernel, num_columns: int) -> list[int]:
    """The columns of X that the kernel depends on; a constant and white noise have none."""
    columns = np.arange(num_columns)
    basic = [each for each in basic_kernels(kernel) if not isinstance(each, Static)]
    return sorted({int(d) for each in basic for d in columns[each.active_dims]})
