"""
The unit of y.

Where y is large or small against a first guess of noise and signal, the noise soon explains all,
and the bound is flat in what the signal could: a fit would end there. y, the noise's scale and the
kernel's standard deviation change together with the unit, and along that line a good one is found.
"""

import gpflow
import numpy as np
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel

from ..models import AugmentedModel
from .coordinates import Coordinates

STEP = np.log(100.0)  # a factor that no careful guess is wrong by


def along_units(model: AugmentedModel, coordinates: Coordinates) -> AnyNDArray | None:
    """
    How each coordinate grows with the logarithm of the unit of y; None where y has no unit.

    It has none for the model where the noise's scale or the kernel's variance is not to be learnt.
    """
    of_noise = {"scale": 1.0, "variance": 2.0}
    exponents = [
        (getattr(model.likelihood, name), power)
        for name, power in of_noise.items()
        if isinstance(getattr(model.likelihood, name, None), gpflow.Parameter)
    ]
    of_signal = _of_variances(model.kernel, 2.0)
    if not exponents or not of_signal:
        return None
    return coordinates.of_logarithms([*exponents, *of_signal])


def _of_variances(kernel: Kernel, power: float) -> list[tuple[gpflow.Parameter, float]]:
    """Parameters by which the kernel is multiplied, and how each must grow for it to do so."""
    if isinstance(kernel, gpflow.kernels.Product):
        power /= len(kernel.kernels)
    parts = getattr(kernel, "kernels", None) or [
        part for name in ("kernel", "base_kernel") if (part := getattr(kernel, name, None))
    ]
    if parts:
        return [pair for part in parts for pair in _of_variances(part, power)]
    variance = getattr(kernel, "variance", None)
    return [(variance, power)] if isinstance(variance, gpflow.Parameter) else []
