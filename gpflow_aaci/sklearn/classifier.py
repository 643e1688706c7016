"""Classification: a logistic likelihood for two classes; for more, a tree of these or a softmax."""

from typing import Any

import gpflow
import numpy as np
from gpflow.base import AnyNDArray
from gpflow.config import default_float
from gpflow.kernels import Kernel
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from ..levels import indicators
from ..likelihoods import Logistic, LogisticSoftmax, LogisticTree, ward_tree
from ..validation import check_one_of
from .shared import AugmentedGP, in_batches, weighted_rows

_UNIT = 2.0  # the first standard deviation of f: most classes are neither sure nor a toss-up


class AugmentedGPClassifier(ClassifierMixin, AugmentedGP):
    """
    Gaussian process classification for scikit-learn.

    For two classes P(y = 1) = σ(f). For K classes P(y = k) is a product of σ(±f_j), one factor for
    each split on the way to k in a binary tree of the classes, which separates similar classes last
    (:func:`~gpflow_aaci.likelihoods.ward_tree`). With ``multiclass="softmax"`` it is
    σ(f_k)/Σσ(f_j). The latent GPs share a kernel; they are sparse GPs with ``num_inducing`` points
    or, as ``method`` says, other models. ``fit_collapsed`` fits all parameters::

        from sklearn.datasets import load_breast_cancer
        from sklearn.model_selection import train_test_split
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        from gpflow_aaci.sklearn import AugmentedGPClassifier

        X, y = load_breast_cancer(return_X_y=True)
        X, X_test, y, y_test = train_test_split(X, y, random_state=0)
        classifier = AugmentedGPClassifier(num_inducing=50, random_state=0)
        pipeline = make_pipeline(StandardScaler(), classifier).fit(X, y)
        probabilities = pipeline.predict_proba(X_test)
        accuracy = pipeline.score(X_test, y_test)

    A softmax costs more, as its expectations are integrals over all latent GPs at once. If rows
    times classes exceed 30,000, ``fit_collapsed`` would take many minutes, so the softmax is
    trained on minibatches: 1,000 closed-form steps on the augmented bound, then 500 steps of Adam
    on GPflow's ELBO.

    A kernel given by name begins with a lengthscale of √D standard deviations for each column, so
    that the units of X do not matter. (But centre a column whose mean is 10⁵ standard deviations or
    more, as its distances lose digits.) A kernel object is copied, and the copy is fitted from
    the object's values; the object itself is never changed.

    Fitted attributes: ``classes_`` [K], sorted; ``model_``, the GPflow model, in which the
    labels are numbered 0 … K − 1; ``fit_result_``, the result of the fit; ``n_features_in_``,
    ``feature_names_in_``; ``levels_``, the levels of columns of words, by column number.
    """

    classes_: AnyNDArray

    def __init__(
        self,
        *,
        kernel: str | Kernel = "squared-exponential",
        method: str = "sparse",
        num_inducing: int = 100,
        num_neighbors: int = 32,
        multiclass: str = "tree",
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        """
        :param method: "sparse", inducing points; "nearest", nearest neighbours; "full", the GP
            itself; or "auto", which takes "full" up to 1,000 rows and beyond them what
            :func:`~gpflow_aaci.choose` finds to be better.
        :param multiclass: "tree" or "softmax", for three classes or more.
        """
        super().__init__(
            kernel=kernel,
            method=method,
            num_inducing=num_inducing,
            num_neighbors=num_neighbors,
            random_state=random_state,
            progress=progress,
        )
        self.multiclass = multiclass

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "AugmentedGPClassifier":
        """
        :param X: [N, D], an array or a frame. Its columns of text and of categories become factors
            ``kernels.Categorical``, unless ``kernel`` is an object, which must then know them.
        :param y: labels of any kind [N].
        :param sample_weight: [N], not negative: how many times each datum counts. Default:
            once. See :class:`~gpflow_aaci.likelihoods.Weighted`.
        :raises ValueError: for bad data or parameters, and a single class.
        """
        X, y = validate_data(self, self._learn_levels(X), y, dtype=default_float())
        check_classification_targets(y)
        X, y, weight = weighted_rows(sample_weight, X, y)
        classes, labels = np.unique(y, return_inverse=True)
        K = len(classes)
        if K < 2:
            raise ValueError(f"y must have more than one class. Found: {classes.tolist()}.")
        check_one_of("multiclass", self.multiclass, ["tree", "softmax"])
        if K == 2:
            self._fit(X, labels, Logistic(), _UNIT, weight)
        elif self.multiclass == "tree":
            tree = ward_tree(indicators(X, self.levels_), labels[:, None])
            self._fit(X, labels, LogisticTree(K, tree), _UNIT, weight)
        else:
            mean_function = gpflow.functions.Constant(-np.log(K))  # see LogisticSoftmax
            self._fit(X, labels, LogisticSoftmax(K), _UNIT, weight, mean_function)
        self.classes_ = classes
        return self

    def predict_proba(self, X: Any) -> AnyNDArray:
        """
        P(y = k) of every class, [N, K], in the order of ``classes_``.

        :param X: [N, D].
        """
        X = self._inputs(X)
        p, _ = in_batches(self.model_.predict_y, X)
        return np.hstack([1.0 - p, p]) if len(self.classes_) == 2 else p

    def predict(self, X: Any) -> AnyNDArray:
        """
        The most probable class, [N].

        :param X: [N, D].
        """
        p = self.predict_proba(X)
        return self.classes_[np.argmax(p, axis=1)]
