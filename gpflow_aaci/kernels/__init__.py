"""
Kernels that GPflow does not have, and what a kernel is made of.

``difference``: a kernel on pairs of inputs. ``derivatives``: of f with its slopes and curvatures.
``linear_in_f``: what these two share. ``orthogonal``: an additive kernel whose parts the data
determine. ``categorical``: a kernel on a column of words. ``gamma_exponential`` and ``arc_sine``:
two basic kernels. ``starting``: where a fit can begin. ``basic``: the kernels in a kernel, the
columns that they depend on, and the levels of these.
"""

from .arc_sine import ArcSine
from .basic import basic_kernels as basic_kernels
from .basic import columns_of as columns_of
from .basic import levels_of as levels_of
from .basic import parts_of as parts_of
from .basic import sum_of_products as sum_of_products
from .categorical import Categorical
from .derivatives import WithDerivatives
from .difference import Difference
from .gamma_exponential import GammaExponential
from .linear_in_f import columns_of_f as columns_of_f
from .linear_in_f import columns_of_x as columns_of_x
from .orthogonal import OrthogonalAdditive
from .starting import start

__all__ = [
    "ArcSine",
    "Categorical",
    "Difference",
    "GammaExponential",
    "OrthogonalAdditive",
    "WithDerivatives",
    "start",
]
