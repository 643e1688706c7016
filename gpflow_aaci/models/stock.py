"""GPflow's own SVGP and VGP, taken as augmented models that share their Parameters."""

import copy
import functools
import weakref
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar, cast

import gpflow
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import MultioutputKernel
from gpflow.likelihoods import Likelihood

from ..algebra.terms import by_tape
from ..data import Data
from ..kernels import levels_of
from ..likelihoods import augmented
from ..validation import checked_data
from .posteriors import handed_out
from .shared import Augmented, WithData, check_latents, check_single_output
from .svgp import AugmentedSVGP, check_diagonal, check_inducing_variable, of_independent_gps
from .vgp import AugmentedVGP

Model: TypeAlias = gpflow.models.SVGP | gpflow.models.VGP
"""GPflow's own models, and the augmented ones, which are subclasses."""

P = ParamSpec("P")
R = TypeVar("R")
_EXACT = (gpflow.models.GPR, gpflow.models.SGPR)

# Outside the models, as a likelihood of GPflow is no part of what is compiled and stored.
_CONVERTED: "weakref.WeakKeyDictionary[Any, Likelihood]" = weakref.WeakKeyDictionary()


def as_augmented(model: gpflow.models.GPModel) -> AugmentedSVGP | AugmentedVGP:
    """
    ``model`` itself; or, of GPflow's ``SVGP`` or ``VGP``, an augmented model of its Parameters.

    What is assigned to a Parameter of the one, ``q_mu`` and ``q_sqrt`` among them, is assigned to
    the other. The likelihood is as :func:`~gpflow_aaci.likelihoods.augmented` returns it.

    :raises ValueError: for any other model, and for one that the augmented class would refuse.
    """
    if isinstance(model, Augmented):
        return cast(AugmentedSVGP | AugmentedVGP, model)
    if type(model) is gpflow.models.SVGP:
        twin = _twin(model, AugmentedSVGP)
        is_joint = isinstance(model.kernel, MultioutputKernel)
        if is_joint and type(model.inducing_variable) is InducingPoints:
            raise ValueError(
                "inducing_variable must be a SharedIndependentInducingVariables or a "
                f"SeparateIndependentInducingVariables with a {type(model.kernel).__name__} "
                "kernel. Found: InducingPoints."
            )
        twin.inducing_variable = of_independent_gps(model.inducing_variable)
        check_inducing_variable(model.kernel, twin.inducing_variable)
        check_diagonal(twin.is_diagonal, model.whiten)
    elif type(model) is gpflow.models.VGP:
        twin = _twin(model, AugmentedVGP)
        check_single_output(model.kernel, "VGP")
        likelihood = twin.likelihood
        checked_data(
            *model.data,
            num_observed=likelihood.num_observed(model.num_latent_gps),
            num_outputs=model.num_latent_gps,
            given=likelihood.given,
            labels=likelihood.labels,
            levels=levels_of(model.kernel),
            checks_of_Y=likelihood.checks,
        )
    else:
        hint = " It has no q(u)." if isinstance(model, WithData) else ""
        if isinstance(model, _EXACT):
            hint = (
                " Its posterior is known in closed form, so that "
                "gpflow.optimizers.Scipy().minimize(model.training_loss, "
                "model.trainable_variables) fits it."
            )
        raise ValueError(
            "model must be an AugmentedSVGP or AugmentedVGP, or GPflow's own SVGP or VGP. "
            f"Found: {type(model).__name__}.{hint}"
        )
    check_latents(twin.kernel, twin.likelihood, twin.num_latent_gps)
    return twin


def _twin(
    model: gpflow.models.GPModel, kind: type[AugmentedSVGP | AugmentedVGP]
) -> AugmentedSVGP | AugmentedVGP:
    twin = copy.copy(model)
    twin.__class__ = kind
    twin.likelihood = augmented(model.likelihood)
    if not isinstance(twin.likelihood, type(model.likelihood)):
        _CONVERTED[twin] = model.likelihood
    handed_out(twin)
    return cast(AugmentedSVGP | AugmentedVGP, twin)


def converted_from(model: AugmentedSVGP | AugmentedVGP) -> Likelihood | None:
    """GPflow's likelihood, if :func:`as_augmented` has replaced it by another class."""
    return _CONVERTED.get(model)


def is_finite_in_gpflow(model: AugmentedSVGP | AugmentedVGP, data: Data) -> bool:
    """
    Whether GPflow's ELBO is finite as the class of the user's likelihood evaluates it.

    GPflow's logarithm of a probability that is rounded to 0, for example, is −∞.
    """
    own = converted_from(model)
    if own is None:
        return True
    [elbo] = model.objectives(data, lambda _: by_tape(own.variational_expectations))
    return bool(tf.math.is_finite(elbo))


def of_any_model(
    function: Callable[Concatenate[AugmentedSVGP | AugmentedVGP, P], R],
) -> Callable[Concatenate[Model, P], R]:
    """``function`` of an augmented model, as one that also takes GPflow's ``SVGP`` and ``VGP``."""

    @functools.wraps(function)
    def called(model: Model, *args: Any, **kwargs: Any) -> R:
        return function(as_augmented(model), *args, **kwargs)

    return cast(Callable[Concatenate[Model, P], R], called)


def as_any_gp(model: gpflow.models.GPModel) -> WithData:
    """As :func:`as_augmented`, but a model without q is taken, too."""
    return model if isinstance(model, WithData) else as_augmented(model)


def of_any_gp(
    function: Callable[Concatenate[WithData, P], R],
) -> Callable[Concatenate[gpflow.models.GPModel, P], R]:
    """As :func:`of_any_model`, for a function that needs no q: it takes models without one, too."""

    @functools.wraps(function)
    def called(model: gpflow.models.GPModel, *args: Any, **kwargs: Any) -> R:
        return function(as_any_gp(model), *args, **kwargs)

    return cast(Callable[Concatenate[gpflow.models.GPModel, P], R], called)
