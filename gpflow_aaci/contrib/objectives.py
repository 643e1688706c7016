"""The objectives of samplers of u: what each datum adds to log p(u) given u."""

from typing import Literal, get_args

import gpflow
import tensorflow as tf
from gpflow.likelihoods import Likelihood

from .. import likelihoods
from ..likelihoods.derived import described
from ..validation import check_one_of

ObjectiveGivenU = Literal["predictive", "variational", "heteroscedastic"]


def check_objective(objective: ObjectiveGivenU) -> None:
    """
    :raises ValueError: for any other objective.
    """
    check_one_of("objective", objective, get_args(ObjectiveGivenU))


def check_likelihood(objective: ObjectiveGivenU, likelihood: Likelihood) -> None:
    """
    :raises ValueError: for ``"heteroscedastic"`` unless the noise is Gaussian.
    """
    is_gaussian = isinstance(likelihood, gpflow.likelihoods.Gaussian | likelihoods.Gaussian)
    if objective == "heteroscedastic" and not (
        is_gaussian and not getattr(likelihood, "given", ())
    ):
        raise ValueError(
            "likelihood must be Gaussian, without a variance of each datum, where objective is "
            f'"heteroscedastic". Found: {described(likelihood)}.'
        )


def of_each_given_u(
    objective: ObjectiveGivenU,
    likelihood: Likelihood,
    X: tf.Tensor,
    Fmu: tf.Tensor,
    Fvar: tf.Tensor,
    Y: tf.Tensor,
) -> tf.Tensor:
    """
    The term of every datum, [..., N], with f ~ N(Fmu, Fvar) given u.

    ``"predictive"`` is log E p(y|f), as in FITC, and ``"variational"`` E log p(y|f). For Gaussian
    noise ``"heteroscedastic"`` is E log p(y|f) under noise of variance σ² + Fvar, which is log
    E p(y|f) − ½ Fvar/(σ² + Fvar) (Rossi and others, AISTATS 2021, (14) and (15)).
    """
    if objective == "variational":
        return likelihood.variational_expectations(X, Fmu, Fvar, Y)
    log_p = likelihood.predict_log_density(X, Fmu, Fvar, Y)
    if objective == "predictive":
        return log_p
    noise = likelihood.conditional_variance(X, Fmu)
    return log_p - 0.5 * tf.reduce_sum(Fvar / (noise + Fvar), -1)
