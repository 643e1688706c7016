"""
The third model: predictions from the nearest rows.

``model``: ``AugmentedNNGP``. ``conditional``: f given a few rows, the augmented GP of these on its
own. ``neighbors``: which rows are near. ``search``: how ``fit`` finds its hyperparameters.
"""

from .model import AugmentedNNGP

__all__ = ["AugmentedNNGP"]
