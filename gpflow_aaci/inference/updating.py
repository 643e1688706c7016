r"""
``update``: learning from new rows without the old ones.

At fixed hyperparameters old data act on u only through q(u)/p(u). With q(u) in the place of the
prior nothing but the new rows is needed: the best q' maximises Σ E_q' log p(y|f) − KL[q' ‖ q]. In
the variable w with u = E u + chol(Cov u) w under q, this is the usual problem with w ~ N(0, I).
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.config import default_float, default_jitter
from gpflow.models.util import InducingVariablesLike
from gpflow.utilities import parameter_dict

from ..algebra.gaussian import Gaussian, unwhiten
from ..data import as_data, refuse_if_distributed
from ..models import AugmentedSVGP, as_augmented, refresh_posteriors
from ..models.shared import prior_q
from ..models.variables import undone_on_failure
from ..runtime.compiled import Compiled
from ..runtime.structure import facts
from ..validation import check_count
from .inducing_moves import move, new_points
from .profile import Profile
from .starting import narrow_q, why_not_finite

_LEAST_GAIN = 1e-9  # nats per new row that one more step must gain


class UpdateResult(NamedTuple):
    """The result of ``update``."""

    #: The number of new rows.
    rows: int
    #: The bound [nats] on log p(Y_new | old rows) after the steps, ``moving`` included.
    bound: float
    #: The same bound before the steps.
    start: float
    #: The number of steps on q.
    steps: int
    #: What q loses by the move to new inducing points [nats], 0 or negative.
    moving: float = 0.0

    @property
    def gain(self) -> float:
        """By how much the bound has risen [nats], never negative."""
        return self.bound - self.start


def update(
    model: AugmentedSVGP,
    data: RegressionData | tf.data.Dataset,
    *,
    inducing_variable: InducingVariablesLike | None = None,
    max_steps: int = 100,
    progress: bool = True,
) -> UpdateResult:
    """
    Update q(u) by new rows, without the old ones. Hyperparameters do not change.

    This is streaming variational inference (Bui, Nguyen and Turner, *Streaming Sparse Gaussian
    Process Approximations*, NIPS 2017). All that it needs to know about old rows is in q(u). A
    model that has been fitted by any method can be saved, loaded and updated, any number of times
    and in any order of the rows::

        fit_collapsed(model, (X, Y))
        for X_new, Y_new in arriving:
            update(model, (X_new, Y_new))

    With Gaussian noise the result is the same as from all rows at once. With other likelihoods the
    old rows keep the Gaussian terms that they had when they were learnt, and the new rows are
    fitted by safeguarded Newton steps on GPflow's ELBO, as in ``polish``. If the first of several
    updates starts from a new model, their bounds add up to a bound on log p(Y) of all rows.

    If q is still as the constructor makes it (mean zero, root I), it counts as the prior. If the
    model has ``num_data``, ``update`` sets it to the number of rows that q has seen, but does not
    scale any sum to it. ``fit_collapsed``, ``polish``, ``train`` and the optimizers start from the
    prior instead of q, so they need all rows again.

    An update is compiled once for any number of rows, and for all models of one structure.

    :param data: X [N, D], Y [N, P] of the new rows, as arrays or frames; or a ``tf.data.Dataset``
        of such batches, which is one pass over the rows.
    :param inducing_variable: new inducing points, as many as before: Z [M, D], or a GPflow inducing
        variable. Default: the points stay. q loses the information on old rows that it cannot
        represent at the new points; ``moving`` is this loss in nats.
    :param max_steps: the largest number of steps on q. Each step is a pass over all new rows.
    :param progress: whether to show a progress bar for a long pass over a dataset.
    :raises ValueError: for bad data, a model other than ``AugmentedSVGP``, and if no finite q is
        found; the model is then unchanged.
    :raises RuntimeError: if data cannot be read; the model is then unchanged.
    :return: the bound before and after, and the number of steps.
    """
    _check_model(model)
    check_count("max_steps", max_steps, 1)
    refuse_if_distributed(model.expected_data, "update")
    rows = as_data(model.expected_data, data, progress, unscaled=True)
    Z = None if inducing_variable is None else new_points(model, inducing_variable)
    has_learnt = not _is_untouched(model)
    moving = 0.0
    variables = list(model.variables)
    with undone_on_failure(variables):
        if not has_learnt:
            model.assign_whitened_q(prior_q(*model.q_mu.shape))
        if Z is not None:
            moving = float(move(model, Z))
        compiled, nothing_new = _compiled(model, variables), prior_q(*model.q_mu.shape)
        limits = _LEAST_GAIN * rows.num_rows, max_steps
        found = compiled.profile.maximise(rows, nothing_new, *limits)
        narrow = None  # q that has learnt is where the search should begin
        if not has_learnt:  # q is the prior, and w = v
            narrow = narrow_q(model, rows, found.q, float(found.elbo))
        if narrow is not None:
            other = compiled.profile.maximise(rows, narrow, *limits)._replace(start=found.start)
            found = max(found, other, key=lambda end: np.nan_to_num(end.elbo, nan=-np.inf))
        q = compiled.of_u(found.q)
        if not np.isfinite(found.elbo) or not all(np.all(np.isfinite(part)) for part in q):
            raise ValueError(
                f"the bound on the new rows must be finite.{why_not_finite(model, rows)} "
                f"Found: {float(found.elbo)}."
            )
        model.q_mu.assign(q.mu)
        model.q_sqrt.assign(q.sqrt)
        _count(model, rows.num_rows, has_learnt)
    refresh_posteriors(model)
    bound, start = float(found.elbo) + moving, float(found.start) + moving
    return UpdateResult(rows.num_rows, bound, start, int(found.steps), moving)


def _check_model(model: Any) -> None:
    as_augmented(model)  # which raises for what is no such model at all
    if not isinstance(model, AugmentedSVGP):
        raise ValueError(
            "model must be an AugmentedSVGP, whose inducing variables summarise the old rows. "
            f"Found: {type(model).__name__}, which stores all of its data."
        )


def _is_untouched(model: AugmentedSVGP) -> bool:
    """Whether q is as the constructor makes it unless told otherwise."""
    root = 1.0 if model.is_diagonal else np.eye(model.q_mu.shape[0])
    return not model.q_mu.numpy().any() and np.array_equal(
        model.q_sqrt.numpy(), np.broadcast_to(root, model.q_sqrt.shape)
    )


def _count(model: AugmentedSVGP, rows: int, has_learnt: bool) -> None:
    """Set ``num_data``, where the model has one, to the number of rows that q has seen."""
    known = model.expected_data.known_num_data
    if known is None:
        return
    seen = rows + (known if has_learnt else 0)
    if hasattr(model.num_data, "assign"):
        model.num_data.assign(tf.cast(seen, model.num_data.dtype))
    else:
        model.num_data = seen


# ---- compiled functions ----


class _Functions(NamedTuple):
    """Compiled functions of a model, as it was when they were compiled."""

    profile: Profile
    of_u: Callable[[Gaussian], Gaussian]  # q(w) → the q(u) that it makes of the model's
    settings: dict[str, str]  # of the model, all that is a constant to the graphs
    variables: list[tf.Variable]  # that they read


# For models that share no functions. The functions hold their model by a weak reference, or neither
# of the two would ever be freed.
_UNSHARED: "weakref.WeakKeyDictionary[AugmentedSVGP, _Functions]" = weakref.WeakKeyDictionary()


def _compiled(model: AugmentedSVGP, variables: list[tf.Variable]) -> _Functions:
    """The functions of all models of this structure; or of this one, as long as it is the same."""
    if Compiled(model).is_shared:
        return _functions(model, {}, variables)
    learnt = [path.removeprefix(".") for path in parameter_dict(model)]
    settings = facts(model, state=[*learnt, "num_data"])
    settings |= {"default": f"{default_float()} {default_jitter()!r}"}
    known = _UNSHARED.get(model)
    is_same = known is not None and known.settings == settings
    if known is None or not is_same or [*map(id, known.variables)] != [*map(id, variables)]:
        known = _functions(cast(AugmentedSVGP, weakref.proxy(model)), settings, variables)
        _UNSHARED[model] = known
    return known


def _functions(
    model: AugmentedSVGP, settings: dict[str, str], variables: list[tf.Variable]
) -> _Functions:
    profile = Profile(model, [], from_q=True)
    of_u = Compiled(model).function(_of_u, signature=[profile.q_spec])
    return _Functions(profile, of_u, settings, variables)


def _of_u(model: AugmentedSVGP, variables: Sequence[tf.Variable]) -> Callable[[Gaussian], Gaussian]:
    def of_u(q: Gaussian) -> Gaussian:
        chol = model.whitening()
        past = model.whitened_q(chol)
        mu, sqrt = unwhiten(*q, past.sqrt)
        return model.stored_q(Gaussian(past.mu + mu, sqrt), chol)

    return of_u
