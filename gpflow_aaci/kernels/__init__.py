"""
Kernels that GPflow does not have, and what a kernel is made of.

``difference``: a kernel on pairs of inputs. ``orthogonal``: an additive kernel whose parts the data
determine. ``basic``: the kernels in a kernel, and the columns that they depend on.
"""

from .basic import basic_kernels, columns_of, parts_of
from .difference import Difference, columns_of_f, columns_of_x
from .orthogonal import OrthogonalAdditive

__all__ = [
    "Difference",
    "OrthogonalAdditive",
    "basic_kernels",
    "columns_of",
    "columns_of_f",
    "columns_of_x",
    "parts_of",
]
