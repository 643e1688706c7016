"""The kernels that a kernel is made of."""

import itertools
from collections.abc import Callable, Iterator

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.kernels import Coregion, Kernel, Product, Static, Sum

from ..levels import Levels, are_words, listed
from .difference import Difference


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


def sum_of_products(
    kernel: Kernel, of_other: Callable[[Kernel], list[list[Kernel]]] = lambda kernel: [[kernel]]
) -> list[list[Kernel]]:
    """
    The kernel as a sum of products: the factors of each.

    :param of_other: the same of a kernel that is neither a ``Sum`` nor a ``Product``.
    """
    if type(kernel) is Sum:
        return [product for part in kernel.kernels for product in sum_of_products(part, of_other)]
    if type(kernel) is Product:
        choices = itertools.product(*(sum_of_products(part, of_other) for part in kernel.kernels))
        return [list(itertools.chain(*choice)) for choice in choices]
    return of_other(kernel)


def columns_of(kernel: Kernel, num_columns: int) -> list[int]:
    """The columns of X that the kernel depends on; a constant and white noise have none."""
    columns = np.arange(num_columns)
    basic = [each for each in basic_kernels(kernel) if not isinstance(each, Static)]
    return sorted({int(d) for each in basic for d in columns[each.active_dims]})


def levels_of(kernel: Kernel) -> Levels:
    """
    The levels of the columns of X outside which a part of the kernel knows no value.

    :raises ValueError: if parts of the kernel know other levels of the same column, and if a part
        takes the numbers of words as they are.
    """
    if isinstance(kernel, Difference):
        of_x = levels_of(kernel.kernel)
        return {**of_x, **{column + kernel.input_dim: known for column, known in of_x.items()}}
    found: dict[int, AnyNDArray] = {}
    others = []
    for part in basic_kernels(kernel):
        levels = getattr(part, "fixed_levels", None)
        if levels is None:
            others.append(part)
            continue
        (column,) = map(int, part.active_dims)
        if not np.array_equal(found.setdefault(column, levels), levels):
            raise ValueError(
                f"levels of column {column} must be the same in all parts of the kernel. "
                f"Found: {listed(found[column])}, and {listed(levels)}."
            )
    words = {column for column, levels in found.items() if are_words(levels)}
    for part in others:
        dims = part.active_dims
        own = range(max(words, default=-1) + 1)[dims] if isinstance(dims, slice) else map(int, dims)
        if words.intersection(own) and not isinstance(part, Static | Coregion):
            raise ValueError(
                "kernel must act on other columns than those of words, such as "
                f"{type(part).__name__}(active_dims=[0]). Found: active_dims={dims}, and words in "
                f"columns {sorted(words)}."
            )
    return found
