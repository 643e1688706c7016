"""
Methods that fit q(u) and the hyperparameters.

On minibatches, ``training`` runs the steps of ``alternating`` (with its ``schedules``) and
``joint_adam``; ``optimizers`` has natural-gradient steps alone. On all rows, ``newton`` finds the
best q, and ``profile`` computes the ELBO at this q and its gradient. ``quasi_newton`` maximises the
ELBO in ``coordinates``, ``hyperparameter_search`` does so on more and more rows, and ``collapsed``
runs the search. ``bound_gradient`` is the gradient in the hyperparameters, which all of them need.
``compiled`` shares compiled functions between models of one structure.
"""

from .collapsed import FitProgress, FitResult, PolishResult
from .fit import Fit
from .nearest_fit import NearestFit
from .schedules import AdaptiveStepSize, RobbinsMonro
from .stopping import EarlyStopping
from .training import TrainOptions
from .updating import UpdateResult

__all__ = [
    "AdaptiveStepSize",
    "EarlyStopping",
    "Fit",
    "FitProgress",
    "FitResult",
    "NearestFit",
    "PolishResult",
    "RobbinsMonro",
    "TrainOptions",
    "UpdateResult",
]
