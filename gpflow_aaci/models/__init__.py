"""GPflow's VGP and SVGP with the augmented bound in the place of the quadrature one."""

from .posteriors import refresh_posteriors
from .shared import check_model
from .svgp import AugmentedSVGP
from .variables import hyperparameters
from .vgp import AugmentedVGP

AugmentedModel = AugmentedSVGP | AugmentedVGP

__all__ = [
    "AugmentedModel",
    "AugmentedSVGP",
    "AugmentedVGP",
    "check_model",
    "hyperparameters",
    "refresh_posteriors",
]
