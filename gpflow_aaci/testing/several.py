"""
Checks of a likelihood with several latent GPs or auxiliary variables.

Each check yields a message if the likelihood fails it, and nothing otherwise.
"""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from ..augmentation import aug_loglik, aux_full_conditional
from ..likelihoods import AugmentedLikelihood

_SPREADS = (0.1, 1.0, 3.0)  # standard deviations of f


def _marginals(likelihood: AugmentedLikelihood, Y: tf.Tensor, sd: float) -> list[tf.Tensor]:
    """X, Fmu and Fvar, with another mean in ±1 for every latent GP and datum, and variance sd²."""
    L = likelihood.num_outputs(int(Y.shape[-1]))
    waves = np.sin(np.arange(Y.shape[0] * L).reshape(-1, L) + 0.3)
    Fmu = tf.constant(waves, Y.dtype)
    return [tf.zeros_like(Y[:, :1]), Fmu, sd**2 * tf.ones_like(Fmu)]


def _equal_or_below(
    statement: str, found: tf.Tensor, expected: tf.Tensor, *, below: bool = False
) -> Iterator[str]:
    """Check that ``found`` is ``expected`` up to rounding or, if ``below``, at most that."""
    difference = (found - expected).numpy()
    wrong = ~((difference if below else np.abs(difference)) <= 1e-6 * (1.0 + np.abs(expected)))
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        yield f"{statement}; for datum {at[-1]} {found.numpy()[at]:.8g} differs from "
        yield f"{expected.numpy()[at]:.8g}."


def bound_touches(likelihood: AugmentedLikelihood, Y: tf.Tensor) -> Iterator[str]:
    """The bound is log p(y|f) at Fvar = 0, and below E log p(y|f) elsewhere."""
    X, F, variance = _marginals(likelihood, Y, 1.0)
    at_point = likelihood.bound(X, F, tf.zeros_like(variance), Y)
    statement = "bound must be log p(y|f) where Fvar = 0"
    yield from _equal_or_below(statement, at_point, likelihood.log_prob(X, F, Y))
    for sd in _SPREADS:
        X, Fmu, Fvar = _marginals(likelihood, Y, sd)
        exact = likelihood.variational_expectations(X, Fmu, Fvar, Y)
        bound = likelihood.bound(X, Fmu, Fvar, Y)
        statement = f"bound must stay below E log p(y|f), at Fvar = {sd**2:.3g}"
        yield from _equal_or_below(statement, bound, exact, below=True)


def slopes_are_the_bounds(likelihood: AugmentedLikelihood, Y: tf.Tensor) -> Iterator[str]:
    """``bound_slopes`` are the derivatives of the bound in Fmu and Fvar."""
    if not likelihood.is_augmented:
        return  # they are taken by automatic differentiation, and made safe where not concave
    X, Fmu, Fvar = _marginals(likelihood, Y, 1.0)
    with tf.GradientTape() as tape:
        tape.watch([Fmu, Fvar])
        bound = likelihood.bound(X, Fmu, Fvar, Y)
    by_tape = tape.gradient(bound, [Fmu, Fvar])
    for name, stated, expected in zip(
        ("Fmu", "Fvar"), likelihood.bound_slopes(X, Fmu, Fvar, Y), by_tape, strict=True
    ):
        yield from _equal_or_below(f"bound_slopes must be ∂bound/∂{name}", stated, expected)


def outcomes_sum_to_one(likelihood: AugmentedLikelihood, Y: tf.Tensor) -> Iterator[str]:
    """Σ_y p(y|f) = 1 if y is discrete."""
    outcomes = likelihood.outcomes()
    if outcomes is None or not likelihood.is_density:
        return
    X, F, _ = _marginals(likelihood, Y, 1.0)
    for f in F[:3]:
        shape = [len(outcomes), f.shape[-1]]
        log_p = likelihood.log_prob(X[:1], tf.broadcast_to(f, shape), tf.constant(outcomes))
        total = float(tf.reduce_sum(tf.exp(log_p)))
        if not abs(total - 1.0) < 1e-6:
            yield f"p(y|f) must sum to 1 over y; at f = {f.numpy()} it sums to {total:.8g}."
            return


def obeys_bayes_jointly(likelihood: AugmentedLikelihood, Y: tf.Tensor) -> Iterator[str]:
    """log p(y, auxiliary|f) − log p(auxiliary|f, y) = log p(y|f), whatever the auxiliary is."""
    X, F, _ = _marginals(likelihood, Y, 1.0)
    try:
        law = aux_full_conditional(likelihood, F, Y, X)
    except NotImplementedError:
        return  # the likelihood has no Gibbs sampler
    draws = law.sample(5, seed=[0, 1])
    try:
        joint = aug_loglik(likelihood, draws, F, Y, X)
    except NotImplementedError:
        yield "log_joint must be defined, as auxiliary_law is."
        return
    difference = joint - law.log_prob(draws)
    if difference.shape.rank > 2:  # one value for every output
        difference = tf.reduce_sum(difference, -1)
    expected = tf.broadcast_to(likelihood.log_prob(X, F, Y), tf.shape(difference))
    statement = "log_joint − log of full_conditional must be log p(y|f) whatever its draws are"
    yield from _equal_or_below(statement, difference, expected)
