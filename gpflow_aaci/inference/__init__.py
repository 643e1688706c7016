"""
Routes to q(u) and the hyperparameters.

On minibatches: ``optimizers``, ``alternating`` with its ``schedules``, and ``training``, which runs
them. On all rows: ``newton`` finds the best q, ``profile`` the ELBO there and its gradient,
``quasi_newton`` ascends it in ``coordinates``, ``hyperparameter_search`` does so on ever more
rows, and ``collapsed`` runs them. ``bound_gradient`` is the gradient in the hyperparameters that
all of them need. ``compiled`` shares compiled functions between models of one structure.
"""

from .collapsed import FitProgress, FitResult, PolishResult
from .fit import Fit
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
    "PolishResult",
    "RobbinsMonro",
    "TrainOptions",
    "UpdateResult",
]
