"""GPflow's VGP and SVGP with the augmented bound in the place of the quadrature one."""

from .given_u import GivenU, of_objective
from .posteriors import refresh_posteriors
from .shared import WithData
from .stock import (
    Model,
    as_any_gp,
    as_augmented,
    converted_from,
    is_finite_in_gpflow,
    of_any_gp,
    of_any_model,
)
from .svgp import AugmentedSVGP
from .variables import hyperparameters
from .vgp import AugmentedVGP

AugmentedModel = AugmentedSVGP | AugmentedVGP

__all__ = [
    "AugmentedModel",
    "AugmentedSVGP",
    "AugmentedVGP",
    "GivenU",
    "Model",
    "WithData",
    "as_any_gp",
    "as_augmented",
    "converted_from",
    "hyperparameters",
    "is_finite_in_gpflow",
    "of_any_gp",
    "of_any_model",
    "of_objective",
    "refresh_posteriors",
]
