"""
Estimators for scikit-learn, for pipelines, grid searches and cross-validation like any other.

``gpflow_aaci`` itself does not import them, as scikit-learn is slow to import.
"""

from .classifier import AugmentedGPClassifier
from .regressor import AugmentedGPRegressor

__all__ = ["AugmentedGPClassifier", "AugmentedGPRegressor"]
