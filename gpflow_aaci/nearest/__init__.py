"""
The third model: predictions from the nearest rows.

``model``: ``AugmentedNNGP``. ``conditional``: f given a few rows, the augmented GP of these on its
own. ``neighbors``: which rows are near. Its fit is ``inference.nearest_fit``.
"""

from .model import AugmentedNNGP

__all__ = ["AugmentedNNGP"]
