"""``fit``: the choice of a route for a model and its data, and its result."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, overload

import tensorflow as tf
from gpflow.base import RegressionData

from ..algebra.terms import augmented_bound, standard
from ..data import Call, Data, as_data, check_batches, is_endless
from ..data.batches import WATCHED_ROWS
from ..data.expected import refuse_where_kept
from ..models import (
    AugmentedModel,
    GivenU,
    Model,
    as_augmented,
    of_objective,
)
from ..nearest.model import AugmentedNNGP
from ..validation import check_one_of, column_names
from .advice import advice
from .collapsed import FitProgress, FitResult, by_number, check_tolerance, fit_rows
from .minibatch_fit import (
    Part,
    Trained,
    for_dear_rows,
    for_endless_data,
    for_predictions,
    in_parts,
    is_for_minibatches,
)
from .nearest_fit import NearestFit, fit_nearest
from .objective import RowsUsed
from .outcome import Outcome
from .starting import value_at_start

if TYPE_CHECKING:
    import pandas as pd

_Objective = Literal["standard", "predictive", GivenU]
_COLUMNS = ["step", "seconds", "rows", "objective"]


@dataclass(frozen=True, kw_only=True)
class Fit(Outcome):
    """The result of :func:`fit`, which ``print`` shows as text."""

    #: ``"fit_collapsed"`` or ``"train"``: the function that ``fit`` has called.
    route: str
    #: GPflow's ELBO [nats] after the fit; NaN, with a warning, if it cannot be computed.
    elbo: float
    #: By how much the augmented bound is below ``elbo`` [nats]; 0 without augmentation.
    gap: float
    #: A row for each iteration or evaluation: step, seconds, rows, objective.
    history: "pd.DataFrame"
    #: Why the fit may be worse than it could be, a sentence for each reason.
    warnings: tuple[str, ...]
    #: The number of rows that there are, if it is known.
    num_data: int = 0

    def __str__(self) -> str:
        verdict = "converged" if self.converged else "has not converged"
        seconds = f"{self.fitting_seconds:.1f} s"
        if self.tracing_seconds:
            seconds += f" and {self.tracing_seconds:.1f} s of compiling"
        lines = [f"{self.route} {verdict} after {seconds}: {self.reason}."]
        if self.tolerance is not None:
            gain = "What further iterations would gain is not known"
            if self.expected_gain is not None:
                gain = f"Further iterations are expected to gain {self.expected_gain:.1g} nats"
            lines.append(f"{gain}; the tolerance is {self.tolerance:.1g}.")
        if self.worth is not None and self.rows < self.num_data:
            least = (self.tolerance or 0.0) / self.num_data
            lines.append(
                f"q and the hyperparameters were fitted to {self.rows:,} random rows of "
                f"{self.num_data:,}. Four times more rows are expected to gain "
                f"{self.worth:.1g} nats a datum on rows not used (standard error "
                f"{self.worth_error:.1g}), and less than {least:.1g} is "
                'not worth them; the ELBO is scaled from the rows used. rows="all" uses all.'
            )
        if self.restart_gain:
            lines.append(
                "The first search ended where f explained little or was nearly a polynomial. A "
                "second, from lengthscales of √D·sd(X), gained "
                f"{self.restart_gain:.3g} nats."
            )
        above = f", {self.gap:.2g} nats above the augmented bound" if self.gap else ""
        lines.append(f"ELBO {self.elbo:.6g}{above}.")
        return "\n".join([*lines, *self.warnings])


@overload
def fit(
    model: AugmentedNNGP,
    data: None = None,
    *,
    tolerance: float | None = None,
    seed: int = 0,
    progress: bool = True,
) -> NearestFit: ...


@overload
def fit(
    model: Model,
    data: RegressionData | tf.data.Dataset | None = None,
    *,
    objective: _Objective = "standard",
    tolerance: float | None = None,
    rows: RowsUsed | None = None,
    seed: int = 0,
    checkpoint_dir: str | Path | None = None,
    progress: bool = True,
) -> Fit: ...


def fit(
    model: Model | AugmentedNNGP,
    data: RegressionData | tf.data.Dataset | None = None,
    *,
    objective: _Objective = "standard",
    tolerance: float | None = None,
    rows: RowsUsed | None = None,
    seed: int = 0,
    checkpoint_dir: str | Path | None = None,
    progress: bool = True,
) -> Fit | NearestFit:
    """
    Fit q(u) and every trainable parameter of ``model``, and report the result.

    ``fit`` maximises the same objective whatever the data are. It calls
    :func:`~gpflow_aaci.fit_collapsed` for arrays and for datasets that end. It calls
    :func:`~gpflow_aaci.train` in three cases:

    - An endless dataset: closed-form steps until the augmented bound has not risen for 2,000 steps,
      then 2,000 steps of Adam on GPflow's ELBO.
    - ``LogisticSoftmax`` or ``Softmax`` on arrays whose number of rows times classes exceeds
      30,000: 1,000 closed-form steps, then 500 steps of Adam. The fit does not count as converged
      after that. Call ``fit_collapsed`` to fit until convergence, or use ``LogisticTree``.
    - The predictive objective: Adam until the objective has not risen for 2,000 steps.

    GPflow's own ``SVGP`` and ``VGP`` are accepted and changed in place. Print the result::

        result = gpflow_aaci.fit(model, (X, Y))
        print(result)

    For an ``AugmentedNNGP``, which has no ELBO, ``fit`` maximises the leave-one-out log density of
    random rows, see :class:`~gpflow_aaci.inference.NearestFit`. Its tolerance is in nats a datum
    (default: 1e-4), and it takes no ``rows`` and no ``checkpoint_dir``: it uses 1,000 to 3,000
    random rows, and four times more if other rows have a lower density.

    :param model: an ``AugmentedSVGP``, an ``AugmentedVGP``, an ``AugmentedNNGP``, or GPflow's own
        ``SVGP`` or ``VGP``.
    :param data: X [N, D] and Y [N, P] as arrays or frames; or a ``tf.data.Dataset`` of such
        batches, which is one pass over the rows or endless; None for ``AugmentedVGP`` and
        ``AugmentedNNGP``.
    :param objective: ``"standard"``, GPflow's ELBO; ``"predictive"``, the model's
        ``predictive_objective``, which is not a bound; or, for inducing variables and Gaussian
        noise, ``"fitc"`` or ``"heteroscedastic"``, the model's ``fitc_objective`` and
        ``heteroscedastic_objective``.
    :param tolerance: the fit has converged when further iterations are expected to gain less than
        this, in nats. Default: 1e-3 nats or 1e-5 nats a datum, whichever is larger; with
        ``rows="enough"`` 1e-3 nats a datum. ``train`` does not use it.
    :param rows: ``"all"`` fits q and the hyperparameters to all rows. ``"enough"`` fits random
        subsets, each four times larger than the last. It leaves a subset when further iterations no
        longer raise log p(y) of unused rows by the tolerance, and ends when four times more rows
        are expected to raise it by less than the tolerance, too; its time does not grow with the
        number of rows. Default: ``"all"`` up to 100,000 rows, ``"enough"`` beyond.
    :param seed: the seed for random subsets and minibatches.
    :param checkpoint_dir: the folder for checkpoints. After a crash the same call resumes from the
        latest one.
    :param progress: whether to show progress bars.
    :raises ValueError: before anything is changed: for a model of another class, for
        bad data, for ``"predictive"`` with a dataset that ends, and where the objective is not
        finite at the start. For other errors see :func:`~gpflow_aaci.fit_collapsed`.
    :return: which function was called, whether it has converged and why it ended, GPflow's ELBO,
        and warnings.
    """
    check_one_of("objective", objective, get_args(_Objective))
    if rows is not None:
        check_one_of("rows", rows, get_args(RowsUsed))
    check_tolerance(tolerance)
    if isinstance(model, AugmentedNNGP):
        refuse_where_kept(model.expected_data, data)
        if objective != "standard":
            raise ValueError(
                "objective must not be given for AugmentedNNGP, which has one of its own. "
                f"Found: {objective!r}."
            )
        for name, value in (("rows", rows), ("checkpoint_dir", checkpoint_dir)):
            if value is not None:
                raise ValueError(f"{name} must be None for AugmentedNNGP. Found: {value!r}.")
        return fit_nearest(model, tolerance, seed, progress)
    model = as_augmented(model)
    # The same model, unless its noise depends on the inducing variables.
    fitted = of_objective(model, objective)
    has_no_end = isinstance(data, tf.data.Dataset) and is_endless(data)
    one_pass = _some_rows(model, data) if has_no_end else data
    given = {"objective": objective, "tolerance": tolerance, "rows": rows, "seed": seed}
    call = Call("fit", {**given, "checkpoint_dir": checkpoint_dir is not None})
    checked = as_data(model.expected_data, one_pass, progress, call=call)
    parts = _parts(model, data, objective, has_no_end)
    names = getattr(model, "column_names", ())
    if isinstance(data, tuple | list):
        names = column_names(data[0])
    began = time.perf_counter()
    if parts:
        # Without it ``train`` refuses an endless dataset.
        known = model.expected_data.known_num_data
        num_data = known or (0 if has_no_end else int(checked.num_rows))
        try:
            trained = in_parts(fitted, data, parts, num_data, seed, checkpoint_dir, progress)
        except RuntimeError as error:
            _check_start(fitted, checked, error)
            raise
        history = trained.history.assign(rows=num_data)[_COLUMNS]
        return _result(model, fitted, checked, names, began, "train", trained, history=history)
    history = _History(began)
    found = fit_rows(
        fitted,
        checked,
        tolerance,
        rows or by_number(checked, seed),
        seed=seed,
        record=history.record,
        checkpoint_dir=checkpoint_dir,
        progress=progress,
    )
    used = checked if found.rows == checked.num_rows else checked.subset(found.rows, seed)
    details = {"history": history.table(), "num_data": checked.num_rows}
    return _result(model, fitted, used, names, began, "fit_collapsed", found, **details)


class _History:
    """The iterations of ``fit_collapsed``."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._points: list[tuple[int, float, int, float]] = []

    def record(self, at: FitProgress) -> None:
        seconds = time.perf_counter() - self._began
        self._points.append((at.evaluations, seconds, at.rows, at.objective))

    def table(self) -> "pd.DataFrame":
        import pandas as pd  # imported late, as a fit does without it

        return pd.DataFrame(self._points, columns=_COLUMNS)


def _result(
    model: AugmentedModel,
    fitted: AugmentedModel,
    used: Data,
    names: Sequence[str],
    began: float,
    route: str,
    found: Trained | FitResult,
    **details: Any,
) -> Fit:
    """
    The result of a fit that has just ended.

    :param fitted: the model itself, or the one with its Parameters whose ELBO was maximised.
    :param used: the rows that the model was fitted to.
    :param names: of the columns of X, if they have any.
    """
    shared: dict[str, Any] = {"converged": found.converged, "reason": found.reason}
    if isinstance(found, Outcome):
        shared = {each.name: getattr(found, each.name) for each in fields(Outcome)}
    shared["fitting_seconds"] = time.perf_counter() - began - shared.get("tracing_seconds", 0.0)
    known = getattr(found, "objective", None) if fitted is model else None
    elbo, bound, said = _at_the_end(model, used, names, known)
    return Fit(route=route, elbo=elbo, gap=elbo - bound, warnings=tuple(said), **shared, **details)


def _parts(model: AugmentedModel, data: Any, objective: _Objective, has_no_end: bool) -> list[Part]:
    """
    The calls of ``train`` that make the fit; none where ``fit_collapsed`` makes it.

    :raises ValueError: for the predictive objective and a dataset that ends.
    """
    if objective == "predictive":
        if isinstance(data, tf.data.Dataset) and not has_no_end:
            raise ValueError(
                "data must be arrays or a dataset without end, "
                "dataset.shuffle(N, seed=0).repeat().batch(100), "
                f"where objective is {objective!r}. Found: a dataset that ends."
            )
        return for_predictions()
    if has_no_end:
        return for_endless_data()
    return for_dear_rows() if is_for_minibatches(model, data) else []


def _at_the_end(
    model: AugmentedModel, rows: Data, names: Sequence[str], objective: float | None
) -> tuple[float, float, list[str]]:
    """
    The ELBO and the augmented bound (the ELBO, if there is none) after a fit, and warnings.

    No failure here may cost what the fit has found.

    :param objective: the ELBO of these rows plus the log prior, if it is known.
    """
    elbo = bound = math.nan
    said: list[str] = []
    terms = [standard] if objective is None else []
    terms += [augmented_bound] if model.likelihood.is_augmented else []
    try:
        values = [*map(float, model.objectives(rows, *terms))] if terms else []
        known = None if objective is None else objective - float(model.log_prior_density())
        elbo = values.pop(0) if known is None else known
        bound = values[0] if values else elbo
    except Exception as error:
        said.append(_failed("The ELBO of the fitted model", error))
    try:
        X, _ = next(rows.chunks())
        said += advice(model, X.numpy(), names) if len(X) else []  # other processes have rows
    except Exception as error:
        said.append(_failed("Advice on the fitted model", error))
    return elbo, bound, said


def _failed(what: str, error: Exception) -> str:
    return f"{what} could not be computed: {type(error).__name__}: {error}"


def _check_start(model: AugmentedModel, rows: Data, error: RuntimeError) -> None:
    """
    :raises ValueError: where the objective is not finite before the first step, so that no step is
        to blame.
    """
    try:
        value_at_start(model, rows, lambda: model.objectives(rows, standard)[0])
    except ValueError as why:
        raise why from error


def _some_rows(model: AugmentedModel, data: tf.data.Dataset) -> tf.data.Dataset:
    """A few rows of data that have no end."""
    check_batches(data)
    rows = min(WATCHED_ROWS, model.expected_data.known_num_data or 1)
    return data.unbatch().take(rows).batch(rows)
