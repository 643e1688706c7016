"""Classification: the logistic likelihood for two classes, the logistic-softmax one for more."""

from typing import Any

import gpflow
import numpy as np
from gpflow.base import AnyNDArray
from gpflow.config import default_float
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from ..likelihoods import Logistic, LogisticSoftmax
from .shared import AugmentedGP, in_batches

_UNIT = 2.0  # the first standard deviation of f: most classes are neither sure nor a toss-up


class AugmentedGPClassifier(ClassifierMixin, AugmentedGP):
    """
    Gaussian process classification for scikit-learn.

    For two classes P(y = 1) = σ(f). For K classes P(y = k) = σ(f_k)/Σσ(f_j), where the K latent GPs
    share a kernel and a constant mean that begins at −log K. They are sparse GPs on
    ``num_inducing`` points, and all is fitted by ``fit_collapsed``::

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

    With three classes or more, a fit takes a quarter of a minute to compile on one core. Above
    30,000 rows times classes ``fit_collapsed`` would take many minutes (its expectations are
    integrals over all latent GPs at once), so that all is trained on minibatches: by 1,000
    closed-form steps on the augmented bound, and 500 steps of Adam on GPflow's ELBO.

    A kernel given by name begins with a lengthscale of √D standard deviations for each column, so
    that the units of X do not matter. (But centre a column whose mean is 10⁵ standard deviations or
    more, as its distances lose digits.) A kernel object begins as it is, and is never changed: a
    copy is fitted.

    Fitted attributes: ``classes_`` [K], sorted; ``model_``, the ``AugmentedSVGP`` whose labels are
    their numbers 0 … K − 1; ``fit_result_``, what ``fit_collapsed`` returned, or the like for
    minibatches; ``n_features_in_``, ``feature_names_in_``.
    """

    classes_: AnyNDArray

    def fit(self, X: Any, y: Any) -> "AugmentedGPClassifier":
        """
        :param X: [N, D].
        :param y: labels of any kind [N].
        :raises ValueError: for bad data or parameters, and a single class.
        """
        X, y = validate_data(self, X, y, dtype=default_float())
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
        K = len(classes)
        if K < 2:
            raise ValueError(f"y must have more than one class. Found: {classes.tolist()}.")
        likelihood = Logistic() if K == 2 else LogisticSoftmax(K)
        mean_function = None if K == 2 else gpflow.functions.Constant(-np.log(K))
        self._fit(X, labels, likelihood, _UNIT, mean_function)
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
