"""Checks that a likelihood has a valid augmentation, for your own likelihoods and built-in ones."""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.config import default_float
from gpflow.likelihoods import Likelihood

from ..likelihoods import AugmentedLikelihood, SuperGaussianLikelihood
from ..likelihoods import augmented as converted
from ..likelihoods.outputwise import OutputwiseLikelihood
from ..progress import progress_bar
from ..validation import as_default_float, require
from . import several
from .augmented import (
    bound_is_below,
    finite_law,
    integrates_to_one,
    obeys_bayes,
    pieces_agree,
    predicts_its_expectation,
)
from .phi import (
    analytic,
    completely_monotone,
    every_phi,
    finite_everywhere,
    h_squared_non_negative,
    starts_at_one,
)

Kind = Literal["super-Gaussian", "augmented", "without augmentation"]


@check_shapes("Y: [N, P]")
def check_likelihood(likelihood: Likelihood, Y: TensorType, *, progress: bool = True) -> Kind:
    """
    Check that a likelihood has the augmentation it states, so that inference with it is right.

    Instead of a GPflow likelihood, the likelihood that the models use for it is checked. If it has
    no augmentation, its log p(y|f) and E log p(y|f) are checked as below.

    For a likelihood with a single ω per output, the checks are that ∫ p(y|f) dy = 1 and that
    ``predictive_log_density`` is log E p(y|f), both only if ``is_density`` is true; that E[ω]
    and KL[q(ω) ‖ π(ω)] are finite; that these, ``expected_logtilt``, the bound and the sites belong
    to the same p(y, ω|f); that the augmented bound stays below E log p(y|f); and that ``tilted(c)``
    is the distribution of ω, by Bayes' rule.

    For a likelihood with several latent GPs or auxiliary variables, the checks are that the bound
    is log p(y|f) at Fvar = 0 and below E log p(y|f) elsewhere; that ``bound_slopes`` are the
    derivatives of the bound; that Σ_y p(y|f) = 1 if y is discrete; and Bayes' rule again.

    For a ``SuperGaussianLikelihood``, further checks are that φ(0) = 1 and φ ≤ 1; that φ is
    completely monotone, by the signs of four derivatives; that ``log_phi`` takes complex arguments
    and is analytic; and that β² ≤ 4αγ. All checks need float64::

        check_likelihood(Cauchy(), Y=np.linspace(-3.0, 3.0, 7)[:, None])

    :param Y: observations that suit the likelihood, e.g. some training data.
    :param progress: whether to show a progress bar.
    :return: the kind of likelihood. A likelihood ``"without augmentation"`` has closed-form steps
        on GPflow's ELBO, but no Gibbs sampler.
    :raises ValueError: if a check fails; the message says which check, at which values, and what
        the values are. Also for bad arguments, and if ``default_float`` is not float64.
    """
    likelihood = converted(likelihood)
    if default_float() is not np.float64:
        raise ValueError(f"default_float must be float64 here. Found: {default_float()}.")
    Y = as_default_float(Y)
    number = int(Y.shape[-1])
    expected = likelihood.num_observed(max(1, likelihood.num_outputs(number)))
    if number != expected:
        and_given = "".join(f", {name}" for name in likelihood.given)
        raise ValueError(
            f"Y must have {expected} columns (y{and_given}) for {type(likelihood).__name__}. "
            f"Found: {number}."
        )
    require(likelihood.checks(Y))
    if likelihood.prior_c is None or not isinstance(likelihood, OutputwiseLikelihood):
        _run(likelihood, [check(likelihood, Y) for check in _OF_SEVERAL], progress)
        return "augmented" if likelihood.is_augmented else "without augmentation"
    checks = [
        finite_law(likelihood, Y),
        pieces_agree(likelihood, Y),
        integrates_to_one(likelihood, Y),
        predicts_its_expectation(likelihood, Y),
        bound_is_below(likelihood, Y),
        obeys_bayes(likelihood, Y),
    ]
    if isinstance(likelihood, SuperGaussianLikelihood):
        of_phi = [
            check(phi)
            for phi in every_phi(likelihood, Y)
            for check in (starts_at_one, finite_everywhere, completely_monotone, analytic)
        ]
        checks = [*of_phi, h_squared_non_negative(likelihood, Y), *checks[1:]]
    _run(likelihood, checks, progress)
    return "super-Gaussian" if isinstance(likelihood, SuperGaussianLikelihood) else "augmented"


_OF_SEVERAL = (
    several.bound_touches,
    several.slopes_are_the_bounds,
    several.outcomes_sum_to_one,
    several.obeys_bayes_jointly,
)


def _run(likelihood: AugmentedLikelihood, checks: Sequence[Iterator[str]], progress: bool) -> None:
    """Run all checks, which yield messages about what is wrong, and raise these together."""
    failures: list[str] = []
    with progress_bar(progress, total=len(checks), unit="check") as bar:
        for check in checks:
            failures += check
            bar.update()
    if failures:
        name = type(likelihood).__name__
        raise ValueError(f"{name} is not a valid likelihood here: " + " ".join(failures))
