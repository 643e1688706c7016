"""Classification: a logistic likelihood for two classes; for more, a tree of these or a softmax."""

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float
from gpflow.kernels import Kernel
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from ..levels import indicators
from ..likelihoods import Logistic, LogisticSoftmax, LogisticTree, ward_tree
from ..predictions import predict_of_f, probabilities
from ..predictions.intervals import central_levels
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
    or, as ``method`` says, other models. :func:`~gpflow_aaci.fit` fits all parameters;
    scikit-learn's ``ConvergenceWarning`` says what it prints if it has not converged::

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
    times classes exceed 30,000, a fit on all rows would take many minutes, so the softmax is
    trained on minibatches: 1,000 closed-form steps on the augmented bound, then 500 steps of Adam
    on GPflow's ELBO.

    A kernel given by name begins with a lengthscale of √D standard deviations for each column, so
    that the units of X do not matter. (But centre a column whose mean is 10⁵ standard deviations or
    more, as its distances lose digits.) A kernel object is copied, and the copy is fitted from
    the object's values; the object itself is never changed.

    Fitted attributes: ``classes_`` [K], sorted; ``model_``, the GPflow model, in which the
    labels are numbered 0 … K − 1; ``fit_result_``, the result of the fit, which ``print`` shows as
    text; ``n_features_in_``, ``feature_names_in_``; ``encoder_``, which fills the gaps of a frame,
    or None; ``levels_``, the levels of columns of words, by their number in ``model_``.
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
        :param X: [N, D], an array or a frame. In a frame, text and categories become factors
            ``kernels.Categorical``, and gaps are encoded by
            :func:`~gpflow_aaci.sklearn.table_encoder`, unless ``kernel`` is an object: it must then
            know the words, and there may be no gaps.
        :param y: labels of any kind [N].
        :param sample_weight: [N], not negative: how many times each datum counts. Default:
            once. See :class:`~gpflow_aaci.likelihoods.Weighted`.
        :raises ValueError: for bad data or parameters, and a single class.
        """
        X, y = self._learn_table(X, y)
        check_classification_targets(y)
        X, y, weight = weighted_rows(sample_weight, X, y)
        classes, labels = np.unique(y, return_inverse=True)
        K = len(classes)
        if K < 2:
            raise ValueError(f"y must have more than one class. Found: {classes.tolist()}.")
        check_one_of("multiclass", self.multiclass, ["tree", "softmax"])
        Y = labels[:, None].astype(default_float())
        if K == 2:
            self._fit(X, Y, Logistic(), _UNIT, weight)
        elif self.multiclass == "tree":
            tree = ward_tree(indicators(X, self.levels_), labels[:, None])
            self._fit(X, Y, LogisticTree(K, tree), _UNIT, weight)
        else:
            mean_function = gpflow.functions.Constant(-np.log(K))  # see LogisticSoftmax
            self._fit(X, Y, LogisticSoftmax(K), _UNIT, weight, mean_function)
        self.classes_ = classes
        return self

    def predict_proba(self, X: Any, *, return_interval: float | None = None) -> Any:
        """
        P(y = k) of every class, [N, K], in the order of ``classes_``.

        :param X: [N, D].
        :param return_interval: a level, to return the central interval [N, K, 2] of every
            P(y = k|f) over the posterior of f, too: how well the probability is known.
        :raises ValueError: for bad X or level.
        """
        X = self._inputs(X)
        p, _ = in_batches(self.model_.predict_y, X)
        p = np.hstack([1.0 - p, p]) if len(self.classes_) == 2 else p
        if return_interval is None:
            return p
        levels = central_levels(return_interval)

        def interval(rows: AnyNDArray) -> tf.Tensor:
            ends = predict_of_f(self.model_, rows, probabilities, levels, progress=False)
            return tf.transpose(ends, [1, 2, 0])

        return p, in_batches(interval, X)

    def predict(self, X: Any) -> AnyNDArray:
        """
        The most probable class, [N].

        :param X: [N, D].
        """
        p = self.predict_proba(X)
        return self.classes_[np.argmax(p, axis=1)]
