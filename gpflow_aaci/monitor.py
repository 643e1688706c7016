"""
TensorBoard tasks for ``gpflow.monitor``, which can be used together with GPflow's own tasks.

``data`` is (X [N, D], Y [N, P]) for ``AugmentedSVGP`` and None for ``AugmentedVGP``, which keeps
its data. A task checks its arguments when it is built, and compiles its computation once::

    tasks = standard_tasks("logs/run", model, data, test_data, period=10)
    monitor = gpflow.monitor.Monitor(tasks)
    for step in range(1000):
        natural_gradient.minimize(model, data)
        monitor(step)

``AugmentedNNGP`` has no bound and no q(ω): of it, :func:`standard_tasks` writes its objective, the
mean leave-one-out log density.
"""

import inspect
from collections.abc import Callable
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData, TensorType
from gpflow.monitor import (
    ImageToTensorBoard,
    ModelToTensorBoard,
    MonitorTask,
    MonitorTaskGroup,
    ScalarToTensorBoard,
    ToTensorBoard,
)

from .algebra.terms import augmented_bound, standard
from .augmentation import aux_posterior_c, aux_posterior_mean
from .data import as_arrays, as_data, check_pair, checked_rows
from .models import AugmentedModel, WithData, as_any_gp, as_augmented
from .nearest import AugmentedNNGP
from .plots import inducing_inputs, limits, plot_fit
from .runtime.graphs import compiled
from .validation import shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AnyModel = AugmentedModel | AugmentedNNGP

__all__ = [
    "AuxiliaryToTensorBoard",
    "BoundsToTensorBoard",
    "FitToTensorBoard",
    "HeldOutToTensorBoard",
    "StepSizeToTensorBoard",
    "standard_tasks",
]


class BoundsToTensorBoard(ToTensorBoard):
    """
    Scalars ``elbo/augmented``, ``elbo/standard`` and ``elbo/gap``, which is standard − augmented.

    If ``data`` is a part of the ``num_data`` rows, all three are scaled to all rows, like ``elbo``.
    """

    def __init__(
        self, log_dir: str, model: AugmentedModel, data: RegressionData | None = None
    ) -> None:
        """
        :param data: X [N, D], Y [N, P]; None for ``AugmentedVGP``.
        :raises ValueError: for another model, or bad data.
        """
        self.model = as_augmented(model)
        self.data = _checked(self.model, data)
        self._compiled = compiled(self._bounds)
        super().__init__(log_dir)

    def _bounds(self) -> dict[str, tf.Tensor]:
        rows = as_data(self.model.expected_data, self.data)
        elbo, bound = self.model.objectives(rows, standard, augmented_bound)
        return {"augmented": bound, "standard": elbo, "gap": elbo - bound}

    def run(self, **unused_kwargs: Any) -> None:
        for name, value in self._compiled().items():
            tf.summary.scalar(f"elbo/{name}", value, step=self.current_step)


class StepSizeToTensorBoard(ScalarToTensorBoard):
    """Scalar ``step_size``, at its value when the task runs."""

    def __init__(self, log_dir: str, step_size: TensorType | Callable[[], TensorType]) -> None:
        """
        :param step_size: a number, a ``tf.Variable`` [] or a callable without arguments.
        :raises ValueError: for anything else.
        """
        is_scalar = tf.is_tensor(step_size) and getattr(step_size, "shape", None) == []
        if not (_is_thunk(step_size) or isinstance(step_size, Real) or is_scalar):
            raise ValueError(
                "step_size must be one number, a scalar tf.Variable or a callable without "
                f"arguments. Found: {shown(step_size)}."
            )

        def latest(**unused_kwargs: Any) -> Any:
            return step_size() if callable(step_size) else step_size

        super().__init__(log_dir, latest, "step_size")


class AuxiliaryToTensorBoard(ToTensorBoard):
    """
    Histograms ``auxiliary/c`` and ``auxiliary/omega_mean``, over data and outputs.

    They show c and ω̄(c) of the optimal q(ω) at the current q(f). With a heavy-tailed
    super-Gaussian likelihood, for which c = √(E_q h²), outliers have a large c and a small ω̄.
    """

    def __init__(
        self, log_dir: str, model: AugmentedModel, data: RegressionData | None = None
    ) -> None:
        """
        :param data: X [N, D], Y [N, P]; None for ``AugmentedVGP``.
        :raises ValueError: for another model, a likelihood of more than one ω per output, or bad
            data.
        """
        self.model = as_augmented(model)
        self.data = _checked(self.model, data)
        if model.likelihood.prior_c is None:
            raise ValueError(
                "model must have a likelihood of one ω per output. Found: "
                f"{type(model.likelihood).__name__}."
            )
        self._compiled = compiled(self._auxiliary)
        super().__init__(log_dir)

    def _auxiliary(self) -> dict[str, tf.Tensor]:
        X, Y = as_arrays(self.model.expected_data, self.data).rows
        Fmu, Fvar = self.model.predict_f(X)
        c = aux_posterior_c(self.model.likelihood, Fmu, Fvar, Y)
        return {"c": c, "omega_mean": aux_posterior_mean(self.model.likelihood, c, Y)}

    def run(self, **unused_kwargs: Any) -> None:
        for name, value in self._compiled().items():
            tf.summary.histogram(f"auxiliary/{name}", value, step=self.current_step)


class HeldOutToTensorBoard(ScalarToTensorBoard):
    """Scalar ``test/nll``, the mean of −log p(y*|x*, data) over held-out data."""

    def __init__(self, log_dir: str, model: AnyModel, test_data: RegressionData) -> None:
        """
        :param test_data: X [N*, D], Y [N*, P]; also for ``AugmentedVGP``.
        :raises ValueError: for another model, or bad data.
        """
        known: Any = as_any_gp(model)
        check_pair("test_data", test_data)
        rows = checked_rows(known.expected_data, test_data)

        def nll() -> tf.Tensor:
            return -tf.reduce_mean(known.predict_log_density(rows))

        if not isinstance(known, AugmentedNNGP):  # its search for neighbours is outside of graphs
            nll = compiled(nll)
        super().__init__(log_dir, lambda **unused_kwargs: nll(), "test/nll")


class FitToTensorBoard(ImageToTensorBoard):
    """
    Image ``fit`` of a model with one or two input dimensions, with a panel for every output.

    For one dimension, :func:`~gpflow_aaci.plots.plot_fit` draws the panels. For two, a panel has
    contours of the mean of y (or of f, if the likelihood defines no mean of y), the data in the
    same colours, and inducing inputs as crosses. The task only runs eagerly.
    """

    def __init__(self, log_dir: str, model: AnyModel, data: RegressionData | None = None) -> None:
        """
        :param data: X [N, D], Y [N, P], D being 1 or 2; None for a model that stores its data.
        :raises ValueError: for another model, bad data or another D.
        """
        self.model: Any = as_any_gp(model)
        self.data = _checked(self.model, data)
        D, P = _num_inputs(self.model, self.data), self.model.num_outputs
        if D not in (1, 2):
            raise ValueError(
                f"data must have 1 or 2 input dimensions, columns of X, to be drawn. Found: {D}."
            )
        # The colour bars have axes of their own, which are cleared with the rest at every run.
        bars = {"ncols": 2 * P, "width_ratios": [20, 1] * P}
        super().__init__(
            log_dir,
            self._plot_1d if D == 1 else self._plot_2d,
            "fit",
            fig_kw={"figsize": ((6.4 if D == 1 else 5.4) * P, 4.2), "layout": "constrained"},
            subplots_kw={"ncols": P} if D == 1 else bars,
        )

    def _plot_1d(self, figure: "Figure", axes: Any) -> None:
        for output, panel in enumerate(np.ravel(axes)):
            plot_fit(self.model, self.data, ax=panel, output=output)
            if isinstance(axes, np.ndarray):
                panel.set_title(f"output {output + 1}")

    def _plot_2d(self, figure: "Figure", axes: AnyNDArray) -> None:
        from matplotlib.ticker import MaxNLocator  # here, as in GPflow: only those who draw need it

        X, Y = (value.numpy() for value in as_arrays(self.model.expected_data, self.data).rows)
        grids = np.meshgrid(*(np.linspace(*limits(x), 50, dtype=x.dtype) for x in X.T))
        X_new, shape = np.stack([grid.ravel() for grid in grids], -1), grids[0].shape
        try:
            mean, of = self.model.predict_y(X_new)[0].numpy(), "y"
        except NotImplementedError:
            mean, of = self.model.predict_f(X_new)[0].numpy(), "f"
        Z, levels = inducing_inputs(self.model), MaxNLocator(12)
        for p, (panel, bar) in enumerate(zip(axes[::2], axes[1::2], strict=True)):
            name = f", output {p + 1}" * (len(mean[0]) > 1)
            # The range of colours includes most data, so that it changes little during training.
            shown = np.concatenate([mean[:, p], np.percentile(Y[:, p], [5, 95])])
            contours = panel.contourf(
                *grids,
                mean[:, p].reshape(shape),
                levels.tick_values(shown.min(), shown.max()),
                cmap="cividis",
            )
            figure.colorbar(contours, cax=bar, label=f"mean of {of}{name}")
            colours = {"c": Y[:, p], "cmap": contours.cmap, "norm": contours.norm}
            panel.scatter(*X.T, s=16, edgecolors="white", lw=0.5, label="data", **colours)
            if Z is not None:
                panel.scatter(*Z.T, marker="x", color="#D55E00", label="inducing inputs")
            panel.set(xlabel="x₁", ylabel="x₂")
            panel.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize="small")


def standard_tasks(
    log_dir: str,
    model: AnyModel,
    data: RegressionData | None = None,
    test_data: RegressionData | None = None,
    step_size: TensorType | Callable[[], TensorType] | None = None,
    *,
    period: int = 1,
) -> MonitorTaskGroup:
    """
    Return tasks for hyperparameters, bounds, auxiliary variables and the image of the fit.

    GPflow's ``ModelToTensorBoard`` writes the hyperparameters. Held-out NLL and step size are
    added if ``test_data`` and ``step_size`` are given. The image of the fit is left out unless D is
    1 or 2. Every run passes over all of ``data``; a larger ``period`` or fewer rows save time.

    :param data: X [N, D], Y [N, P]; None for a model that stores its data.
    :param test_data: X [N*, D], Y [N*, P].
    :param step_size: as for :class:`StepSizeToTensorBoard`.
    :param period: run at every ``period``-th step.
    :raises ValueError: for bad arguments.
    """
    known: Any = as_any_gp(model)
    data = _checked(known, data)
    tasks: list[MonitorTask] = [ModelToTensorBoard(log_dir, known)]
    if isinstance(known, AugmentedNNGP):
        tasks.append(ScalarToTensorBoard(log_dir, known.mean_log_density, "leave_one_out"))
    else:
        tasks.append(BoundsToTensorBoard(log_dir, known, data))
        if known.likelihood.prior_c is not None:
            tasks.append(AuxiliaryToTensorBoard(log_dir, known, data))
    if test_data is not None:
        tasks.append(HeldOutToTensorBoard(log_dir, known, test_data))
    if step_size is not None:
        tasks.append(StepSizeToTensorBoard(log_dir, step_size))
    if _num_inputs(known, data) in (1, 2) and known.num_observed == known.num_outputs:
        tasks.append(FitToTensorBoard(log_dir, known, data))
    return MonitorTaskGroup(tasks, period)


def _is_thunk(value: Any) -> bool:
    """Whether ``value`` can be called without arguments, unlike a learning-rate schedule."""
    try:
        inspect.signature(value).bind()
    except TypeError:
        return False
    return True


def _checked(model: WithData, data: RegressionData | None) -> RegressionData | None:
    """Check the data; return (X, Y) as tensors, or None if the model keeps them."""
    rows = as_arrays(model.expected_data, data).rows
    return None if data is None else rows


def _num_inputs(model: WithData, data: RegressionData | None) -> int:
    return int(as_arrays(model.expected_data, data).X.shape[-1])
