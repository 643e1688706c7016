"""
Estimators for scikit-learn: in pipelines, grid searches and cross-validation as any other.

Not imported by ``gpflow_aaci`` itself, as scikit-learn is slow to import.
"""

from .classifier import AugmentedGPClassifier
from .regressor import AugmentedGPRegressor

__all__ = ["AugmentedGPClassifier", "AugmentedGPRegressor"]
