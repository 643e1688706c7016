"""
Figures of a model's predictions of y and of the parts of f, in Matplotlib.

Functions draw on the axes that they are given, and do not then change the state of ``pyplot``.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from gpflow.base import AnyNDArray, TensorType

from .criticism.calibration import AnyData, binomial_band, coverage, pit
from .data import as_data
from .kernels import columns_of, levels_of
from .levels import codes_of
from .models import AugmentedModel, WithData, of_any_gp, of_any_model
from .predictions import (
    mean_of_y,
    predict_component,
    predict_of_f,
    predict_y_cdf,
    predict_y_quantile,
)
from .predictions.f import checked_inputs, some_inputs
from .predictions.of_f import OfF
from .predictions.parts import summand, summands
from .validation import check_count, check_index, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_calibration", "plot_fit", "plot_parts"]

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_GREY = "#4d4d4d"
_MOST_DOTS = 2_000  # a larger data set is subsampled, as its dots would cover each other
_MOST_PANELS = 4  # side by side
_GROUPS = 20  # of rows, whose means are drawn
_POINTS = 300  # inputs along the slice at which y is predicted


@of_any_gp
def plot_fit(
    model: WithData,
    data: AnyData = None,
    *,
    ax: "Axes | None" = None,
    levels: Sequence[float] = (0.05, 0.5, 0.95),
    function: OfF | None = None,
    X: TensorType | None = None,
    scaler: Any = None,
    input_dim: int = 0,
    output: int = 0,
) -> "Axes":
    """
    Draw data, quantiles of y given x, and inducing inputs as ticks, along one column of X.

    :func:`~gpflow_aaci.predictions.predict_y_quantile` computes the quantiles, which include the
    noise. If y is a label, the lines are probabilities instead: of the larger of two labels, or of
    each of several labels. If a column of Y is the number of trials, the line is the probability of
    success, and the data are shares of successes. If it is an exposure, the lines are quantiles at
    an exposure of 1, and the data are counts divided by their exposures. Of an interval the middle
    is drawn, or its finite end. If X has several columns, the lines are for the medians of the
    other columns, or for the most frequent level where they have levels, but all data are drawn (a
    random 2,000 if there are more)::

        plot_fit(model, (X, Y), input_dim=2).figure.savefig("fit.png")

    Of rare events quantiles show little, as most counts are 0. What is known about their rates is
    ``plot_fit(model, (X, Y), function=mean_of_y)``, beside the means of groups of data.

    :param data: X [N, D], Y [N, P], training data or others, as arrays, as frames, whose column
        names become labels, or as a ``tf.data.Dataset`` of such batches. None draws the data that
        an ``AugmentedVGP`` keeps. Other models need no data if ``X`` is given.
    :param ax: the axes to draw on. Default: a new figure.
    :param levels: the levels of the quantiles, in (0, 1). The area between the first and the last
        quantile is shaded, then the area between the second and the last but one, and so on.
    :param function: of f, as for :func:`~gpflow_aaci.predictions.predict_of_f`, whose quantiles are
        drawn instead of those of y. Beside ``mean_of_y``, data that are not real are drawn as the
        means of 20 groups of neighbours, Σ y/Σ exposure; beside other functions none are drawn.
    :param X: [K, D], the inputs to predict at, instead of a line through the medians.
    :param scaler: what X was scaled by, such as a ``StandardScaler`` of scikit-learn. Its
        ``inverse_transform`` puts the horizontal axis in the unit of the column before; columns
        must not be mixed.
    :param input_dim: the column of X on the horizontal axis.
    :param output: the column of Y, or of the results of ``function``, on the vertical axis.
    :return: the axes.
    :raises ValueError: for bad arguments or data, and for a likelihood such as ``Switched``, in
        which a column of Y chooses the likelihood of each row.
    """
    if function is None:
        check_index("output", output, _num_y(model))
    rows: Any = None
    if X is None or data is not None or model.own_data is not None:
        drawn = as_data(model.expected_data, data, unscaled=data is not None).subset(
            _MOST_DOTS, seed=0
        )
        rows = [part.numpy() for part in drawn.only_chunk or ()]  # one chunk holds so few
    x = rows[0] if X is None else checked_inputs(model, X, "X").numpy()
    check_index("input_dim", input_dim, x.shape[1])
    x = _slice(model, x, input_dim) if X is None else x[np.argsort(x[:, input_dim], kind="stable")]
    at = partial(_unscaled, model, scaler, x.shape[1], input_dim)
    on_axis, labels = at(x[:, input_dim]), _labels(model) if function is None else None
    x_name, y_name = _names(data, x.shape[1], input_dim, output)
    is_discrete = model.likelihood.outcomes() is not None
    if function is not None:
        y = predict_of_f(model, x, function, np.sort(levels), progress=False).numpy()
        check_index("output", output, y.shape[-1])
        is_of_y = function is mean_of_y and y.shape[-1] == _num_y(model)  # not of each label
        y_name = f"mean of {y_name}" if is_of_y else "function of f"
        rows = rows if is_of_y else None
        y = y[..., output]
    elif labels is None:
        y = predict_y_quantile(model, x, np.sort(levels)).numpy()[..., output]
    else:
        y = _probabilities(model, x, labels, output)

    if X is None and x.shape[1] > 1:
        middles = "medians or most frequent levels" if levels_of(model.kernel) else "medians"
        x_name += f" (lines: the other columns at their {middles})"
    is_own = ax is None
    ax = ax or _new_axes(1)[0]
    if labels is None:
        how = (is_discrete, "y, ") if function is None else (False, "")
        _draw_quantiles(ax, on_axis, y, np.sort(levels), *how)
    else:
        _draw_probabilities(ax, on_axis, y, labels, y_name)
    if rows:
        draw = _draw_means if function is not None and is_discrete else _draw_data
        draw(ax, model, at(rows[0][:, input_dim]), rows[1], output)
    _draw_inducing_inputs(ax, model, input_dim, at)
    ax.set(xlabel=x_name, ylabel=y_name if labels is None else "probability")
    _name_levels(ax, model, input_dim)
    _finish(ax, is_own)
    return ax


def plot_calibration(
    model: WithData,
    data: AnyData = None,
    *,
    axes: "Sequence[Axes] | None" = None,
    num_bins: int = 10,
    seed: int = 0,
) -> "Sequence[Axes]":
    """
    Draw a PIT histogram and the coverage of central intervals, which show a model's calibration.

    On the left is the histogram of P(y' ≤ y) (:func:`~gpflow_aaci.criticism.calibration.pit`),
    which is flat if the model is right. A ∪ shows that predictions are too narrow, a ∩ that they
    are too wide, and a slope that they are biased. On the right is the share of y in the central
    interval of each probability. Both average over X: errors of opposite signs at different inputs
    may cancel, so look at parts of the data, too. If the model is right, 95 % of the bars lie in
    the grey band, and so does each point of the curve in 95 % of cases. Use held-out data if you
    can; on its training data, a model's predictions look a little too wide. Each column of Y counts
    as separate data.

    :param data: X [N, D], Y [N, P], training data or others, as arrays, frames or a
        ``tf.data.Dataset`` of such batches; None for the data that an
        ``AugmentedVGP`` or ``AugmentedNNGP`` stores.
    :param axes: the two axes to draw on. Default: a new figure.
    :param num_bins: the number of bins of the histogram.
    :param seed: the seed of the PIT of a discrete or censored y, which is random.
    :return: the two axes.
    :raises ValueError: for bad arguments or data.
    """
    check_count("num_bins", num_bins, 2)
    if axes is not None and len(axes) != 2:
        raise ValueError(f"axes must be two. Found: {len(axes)}.")
    values = pit(model, data, seed=seed).ravel()
    histogram, curve = _new_axes(2) if axes is None else axes

    low, high = binomial_band(len(values), 1.0 / num_bins) * num_bins
    band: Any = {"color": _GREY, "alpha": 0.18, "lw": 0.0, "zorder": 0}
    band["label"] = "95 % of right models"
    histogram.axhspan(low, high, **band)
    histogram.axhline(1.0, color=_GREY, lw=1.0, ls="--", zorder=3)
    histogram.hist(
        values,
        np.linspace(0.0, 1.0, num_bins + 1).tolist(),
        density=True,
        facecolor="none",  # so that the band is seen through it
        edgecolor=COLOURS[0],
        linewidth=1.5,
    )
    histogram.set(xlabel="P(y′ ≤ y)", ylabel="density", xlim=(0.0, 1.0))

    nominal = np.linspace(0.0, 1.0, 101)
    low, high = binomial_band(len(values), nominal)
    curve.fill_between(nominal, low, high, **band)
    curve.plot([0.0, 1.0], [0.0, 1.0], color=_GREY, lw=1.0, ls="--")
    curve.plot(nominal, coverage(values, nominal), color=COLOURS[0], lw=2.0, label="this model")
    curve.set(xlabel="probability of the central interval", ylabel="share of y in it")
    curve.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0), aspect="equal")
    for ax in (histogram, curve):
        _finish(ax, axes is None)
    return histogram, curve


@of_any_model
def plot_parts(
    model: AugmentedModel,
    X: TensorType,
    *,
    axes: "Sequence[Axes] | None" = None,
    output: int = 0,
) -> "list[Axes]":
    """
    Draw the parts of f that depend on one column of X: mean, 95 % band, and the data as ticks.

    This is what mgcv draws of an additive model, on one vertical scale, in the unit of f. With an
    :class:`~gpflow_aaci.kernels.OrthogonalAdditive` kernel each part has mean 0 over the data, as
    in mgcv. The summands of a sum of GPflow's kernels have a constant in common that the data do
    not assign to either, so that their bands are as wide as this constant is unknown::

        plot_parts(model, X)[0].figure.savefig("parts.png")

    :func:`~gpflow_aaci.predictions.predict_component` has the parts of several columns.

    :param model: its kernel is a sum, as for ``predict_component``.
    :param X: [N, D], such as the training data; the column names of a frame become labels.
    :param axes: as many axes to draw on as there are such parts. Default: a new figure.
    :param output: the column of f.
    :return: the axes, in the order of the parts.
    :raises ValueError: for bad arguments, kernels without parts, and if no part is of one column.
    """
    check_index("output", output, model.num_latent_gps)
    x = some_inputs(model, X)
    parts = [
        (part, columns[0])
        for part in summands(model.kernel)
        if len(columns := columns_of(summand(model.kernel, part), x.shape[1])) == 1
    ]
    if not parts:
        raise ValueError(
            "model must have a part of one column of X. Found: parts of other numbers of columns: "
            f"{len(summands(model.kernel))}."
        )
    if axes is not None and len(axes) != len(parts):
        raise ValueError(f"axes must be {len(parts)}. Found: {len(axes)}.")
    panels = _new_axes(len(parts)) if axes is None else list(axes)
    for ax, (part, column) in zip(panels, parts, strict=True):
        along = _slice(model, x, column)
        moments = predict_component(model, along, part)
        mean, variance = (moment.numpy()[:, output] for moment in moments)
        half, at = 1.96 * np.sqrt(variance), along[:, column]
        ax.fill_between(at, mean - half, mean + half, color=COLOURS[0], alpha=0.2, lw=0.0)
        ax.plot(at, mean, color=COLOURS[0], lw=2.0)
        ax.axhline(0.0, color=_GREY, lw=0.8, ls="--", zorder=0)
        rug, bottom = x[:, column], ax.get_xaxis_transform()
        ax.scatter(rug, 0.0 * rug, s=40, color="black", marker="|", lw=0.5, transform=bottom)
        ax.set(xlabel=_names((X, None), x.shape[1], column, output)[0], ylabel=f"part {part}")
        ax.spines[["top", "right"]].set_visible(False)
        _name_levels(ax, model, column)
    low, high = zip(*(ax.get_ylim() for ax in panels), strict=True)
    for ax in panels:
        ax.set_ylim(min(low), max(high))
    return panels


def _draw_quantiles(
    ax: "Axes", x: AnyNDArray, y: AnyNDArray, levels: AnyNDArray, steps: bool, of: str
) -> None:
    """Draw the quantiles y [Q, K] at the levels [Q], which are sorted."""
    step: Any = "mid" if steps else None
    for k in range(len(levels) // 2):
        low, high = levels[k], levels[-1 - k]
        name = f"{100 * low:.3g} % to {100 * high:.3g} %"
        if np.isclose(low + high, 1.0):
            name = f"central {100 * (high - low):.3g} %"
        ax.fill_between(
            x,
            y[k],
            y[-1 - k],
            color=COLOURS[0],
            alpha=0.15 + 0.12 * k,  # the legend tells them apart, too
            lw=0.0,
            step=step,
            label=of + name,
        )
    for level, quantile in zip(levels, y, strict=True):
        is_middle = level == levels[len(levels) // 2] and len(levels) % 2
        name = "median" if level == 0.5 else f"{100 * level:.3g} % quantile"
        ax.plot(
            x,
            quantile,
            color=COLOURS[0],
            lw=2.0 if is_middle else 0.6,
            drawstyle="steps-mid" if steps else "default",
            label=of + name if is_middle else None,
        )


def _draw_probabilities(
    ax: "Axes", x: AnyNDArray, p: AnyNDArray, labels: AnyNDArray, name: str
) -> None:
    """Draw the probabilities p [number of labels, K]; for two labels only the upper one's."""
    shown = range(len(labels)) if len(labels) > 2 else [1]
    for k, colour in zip(shown, itertools.cycle(COLOURS), strict=False):
        ax.plot(x, p[k], lw=2.0, color=colour, label=f"P({name} = {labels[k]:g})")
    ax.set_ylim(-0.06, 1.06)


def _draw_data(
    ax: "Axes",
    model: WithData,
    x: AnyNDArray,
    Y: AnyNDArray,
    output: int,
) -> None:
    """Draw data at y; of two labels at 0 or 1; of more labels at 1, in the colours of the lines."""
    y = _drawn(model, Y, output)
    labels = model.likelihood.labels  # None for trials
    colour: Any = "black"
    if labels is not None and len(labels) == 2:
        y = (y > 0.0).astype(float)
    elif labels is not None:
        colour = [COLOURS[int(label) % len(COLOURS)] for label in y]
        y = np.ones_like(y)
    alpha = float(np.clip(20.0 / np.sqrt(len(x)), 0.25, 0.8))
    ax.scatter(x, y, s=10, c=colour, alpha=alpha, lw=0.0, label="data", zorder=3)


def _draw_means(ax: "Axes", model: WithData, x: AnyNDArray, Y: AnyNDArray, output: int) -> None:
    """Draw Σ y/Σ exposure of neighbouring rows, or of the rows with one x where there are few x."""
    y, likelihood = _drawn(model, Y, output), model.likelihood
    if likelihood.labels is not None and len(likelihood.labels) == 2:
        y = (y > 0.0).astype(float)
    weights = np.prod(Y[:, Y.shape[1] - likelihood.num_given :], axis=1)  # 1 where there are none
    ranks = np.unique(x, return_inverse=True)[1]
    if ranks.max() >= _GROUPS:
        ranks = np.argsort(np.argsort(x, kind="stable")) * _GROUPS // len(x)
    total = np.bincount(ranks, weights)
    is_some = total > 0.0
    at, height = (
        np.bincount(ranks, weights * of_each)[is_some] / total[is_some] for of_each in (x, y)
    )
    ax.scatter(at, height, s=24, color="black", lw=0.0, label="means of data", zorder=3)


def _drawn(model: WithData, Y: AnyNDArray, output: int) -> AnyNDArray:
    """y at the height at which it is drawn, in the unit of the lines."""
    y, given = Y[:, output], model.likelihood.given
    for name, column in zip(given, Y[:, Y.shape[1] - len(given) :].T, strict=True):
        if name in ("trials", "exposure"):
            y = y / column
        elif name == "upper":  # of the two ends one may be infinite
            low, high = np.where(np.isinf(y), column, y), np.where(np.isinf(column), y, column)
            y = (low + high) / 2.0
    return y


def _draw_inducing_inputs(
    ax: "Axes", model: WithData, input_dim: int, at: Callable[[AnyNDArray], AnyNDArray]
) -> None:
    """Draw a tick on the horizontal axis for every inducing input."""
    Z = inducing_inputs(model)
    if Z is not None:
        z, bottom = at(Z[:, input_dim]), ax.get_xaxis_transform()
        ticks = ax.scatter(z, 0.0 * z, s=70, color="black", marker="|", lw=0.9, transform=bottom)
        ticks.set(label="inducing inputs", zorder=4)


def _labels(model: WithData) -> AnyNDArray | None:
    """The labels whose probabilities are drawn, sorted; None if quantiles are drawn."""
    labels = model.likelihood.labels
    if "trials" in model.likelihood.given:  # the outcomes of a single trial
        labels = (0.0, 1.0)
    return None if labels is None else np.sort(np.asarray(labels, float))


def _probabilities(model: WithData, X: AnyNDArray, labels: AnyNDArray, output: int) -> AnyNDArray:
    """P(y = label) of every label at every row of X [K, D], as [number of labels, K]."""
    up_to = []
    for label in labels:
        y = np.full((len(X), _num_y(model)), label, X.dtype)
        Y = model.likelihood.as_observed(y)
        up_to.append(predict_y_cdf(model, X, Y).numpy()[:, output])
    return np.diff(up_to, axis=0, prepend=0.0)


def _num_y(model: WithData) -> int:
    """The number of columns of y."""
    return model.num_observed - model.likelihood.num_given


def _unscaled(
    model: WithData, scaler: Any, num_inputs: int, column: int, x: AnyNDArray
) -> AnyNDArray:
    """Values x [K] of a column of X as they were before it was scaled; levels are not scaled."""
    if scaler is None or column in levels_of(model.kernel):
        return x
    if not hasattr(scaler, "inverse_transform"):
        raise ValueError(
            "scaler must have an inverse_transform, such as StandardScaler of scikit-learn. "
            f"Found: {shown(scaler)}."
        )
    table = np.zeros([len(x), num_inputs])
    table[:, column] = x
    return np.asarray(scaler.inverse_transform(table))[:, column]


def _slice(model: WithData, X: AnyNDArray, input_dim: int) -> AnyNDArray:
    """
    Inputs along one column of X, with the medians of the other columns.

    A column that has levels is at the most frequent of them, or at each of them in turn.
    """
    levels = levels_of(model.kernel)
    along = np.linspace(*limits(X[:, input_dim]), _POINTS)
    along = codes_of(levels[input_dim]) if input_dim in levels else along
    X_new = np.tile(np.median(X, 0), (len(along), 1)).astype(X.dtype)
    for column in levels:
        values, counts = np.unique(X[:, column], return_counts=True)
        X_new[:, column] = values[np.argmax(counts)]
    X_new[:, input_dim] = along
    return X_new


def _name_levels(ax: "Axes", model: WithData, column: int) -> None:
    """Name the levels of a column on the horizontal axis; let the lines fill the axis otherwise."""
    known = levels_of(model.kernel).get(column)
    if known is None:
        ax.margins(x=0.0)
    else:
        ax.set_xticks(codes_of(known), known.tolist())


def _names(data: Any, num_inputs: int, input_dim: int, output: int) -> tuple[str, str]:
    """The labels of the two axes: the column names of frames, or letters."""
    x, y = data if isinstance(data, tuple | list) else (None, None)
    x_name = str(x.columns[input_dim]) if hasattr(x, "columns") else "x"
    if x_name == "x" and num_inputs > 1:
        x_name = f"column {input_dim} of x"
    if hasattr(y, "columns"):
        return x_name, str(y.columns[output])
    return x_name, str(getattr(y, "name", None) or "y")


def _new_axes(number: int) -> "list[Axes]":
    import matplotlib.pyplot as plt  # here, as in GPflow: only those who draw need it

    across = min(number, _MOST_PANELS)
    down = -(-number // across)
    size = {1: (6.4, 4.0), 2: (9.0, 4.2)}.get(number, (3.0 * across, 2.8 * down))
    _, axes = plt.subplots(down, across, squeeze=False, figsize=size, layout="constrained")
    for ax in axes.flat[number:]:
        ax.set_visible(False)
    return list(axes.flat[:number])


def _finish(ax: "Axes", is_own: bool) -> None:
    """Remove part of the frame and add a legend, above the axes in a figure made by this module."""
    ax.spines[["top", "right"]].set_visible(False)
    above: Any = {"loc": "lower left", "bbox_to_anchor": (-0.02, 1.0), "ncols": 5, "frameon": False}
    where = above if is_own else {"loc": "best"}
    ax.legend(**where, fontsize="small", columnspacing=1.2, handletextpad=0.4)


def inducing_inputs(model: WithData) -> AnyNDArray | None:
    """The inducing inputs [M, D] of all latent GPs, or None if there are no such inputs to draw."""
    variable: Any = getattr(model, "inducing_variable", None)
    points = getattr(variable, "inducing_variables", (variable,))
    Zs = [point.Z.numpy() for point in points if hasattr(point, "Z")]
    return np.concatenate(Zs) if Zs else None


def limits(x: AnyNDArray) -> tuple[float, float]:
    """An interval that holds all x, with some margin."""
    margin = 0.05 * np.ptp(x) or 1.0  # any width will do where all x are equal
    return x.min() - margin, x.max() + margin
