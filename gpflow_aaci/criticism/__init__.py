"""
Model criticism: how well a model predicts unseen or left-out data.

``loo``: leave-one-out densities in closed form. ``elpd``: the ArviZ object that holds them.
``annealed_evidence``: log p(y) between two ends. ``calibration``: PIT values and coverage.
``choose``: inducing points or nearest neighbours.
"""

from .annealed_evidence import Evidence, evidence

__all__ = ["Evidence", "evidence"]
