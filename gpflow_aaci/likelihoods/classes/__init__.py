"""Likelihoods of labels: two classes, or several."""

from .binary import BayesianSVM, BinaryLikelihood, Logistic, Probit, signs
from .softmax import LogisticSoftmax

__all__ = [
    "BayesianSVM",
    "BinaryLikelihood",
    "Logistic",
    "LogisticSoftmax",
    "Probit",
    "signs",
]
