"""
Estimators for scikit-learn, which work in pipelines, grid searches and cross-validation.

``gpflow_aaci`` itself does not import this module, as scikit-learn is slow to import.
"""

from .classifier import AugmentedGPClassifier
from .regressor import AugmentedGPRegressor
from .table import table_encoder

__all__ = ["AugmentedGPClassifier", "AugmentedGPRegressor", "table_encoder"]
