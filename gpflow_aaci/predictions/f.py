"""
f and y at new inputs, from the draws of :func:`~gpflow_aaci.sample_posterior`.

Given f at the data (or u), f(Xnew) is Gaussian and does not depend on y; predictions average over
the draws. Hyperparameters and inducing points that were sampled are taken from each draw. The
others have the values that they had while sampling, even if the model has others by now. Joint
draws for ``AugmentedSVGP`` have the full covariance given u.

Shapes: [C] chains, [S] draws, [N] new data, [L] latent GPs, [P] columns of y.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import AnyNDArray, MeanAndVariance, RegressionData, TensorType
from gpflow.config import default_float, default_jitter
from gpflow.utilities import to_default_float

from ..algebra.terms import mixed_marginals
from ..data import check_batches, check_inputs, over_batches
from ..kernels import levels_of
from ..likelihoods.integrals.quadrature import safe_sqrt
from ..models.predictions import WithPredictions
from ..models.shared import covariance_of_latents
from ..progress import progress_bar
from ..runtime.graphs import compiled
from ..sampling.latents import (
    AnyModel,
    DeepModel,
    FullGP,
    all_parameters,
    mixing_at,
    mixing_of,
    new_rows,
    prior_covariance,
    project_at,
)
from ..validation import as_default_float, check_finite, check_levels, require
from .given import Given, checked_given

if TYPE_CHECKING:
    import arviz

BlocksOfF: TypeAlias = Generator[tuple[tf.Tensor, tf.Tensor], None, None]

_DRAWS_AT_ONCE = 100  # the conditionals of so many draws, at all of Xnew, are in memory
VALUES_AT_ONCE = 20_000  # quadrature is over so many values of f, with hundreds of nodes for each


@runtime_checkable
class MixtureModel(Protocol):
    """A model whose q(f) is a mixture of Gaussians of equal weight, as ``contrib.MixtureVGP``."""

    def predict_f_components(self, Xnew: TensorType, full_cov: bool = False) -> MeanAndVariance:
        """Means [K, N, L] and variances, [K, N, L] or, where ``full_cov``, [K, L, N, N]."""


def predict_f_samples(
    model: AnyModel,
    Xnew: TensorType,
    *,
    samples: "arviz.InferenceData",
    full_cov: bool = True,
    seed: int = 0,
    progress: bool = True,
) -> AnyNDArray:
    """
    One draw of f(Xnew) for every draw of the posterior, [C, S, N, L].

    :param Xnew: [N, D].
    :param samples: draws of :func:`~gpflow_aaci.sample_posterior`.
    :param full_cov: whether f is drawn jointly at all of Xnew. Independent draws cost less.
    :param progress: whether to show a progress bar over the draws.
    :raises ValueError: for bad Xnew, or samples of another kind of model.
    """
    X = checked_inputs(model, Xnew)
    posterior = samples["posterior"]
    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    seeds = tfp.random.split_seed(tf.constant([seed, 1]), n=shape[0] * shape[1])
    parts = []
    with closing(conditionals(model, samples, X, full_cov, progress, seed)) as blocks:
        for number, (mean, variance) in enumerate(blocks):
            noise = tf.random.stateless_normal(tf.shape(mean), seeds[number], dtype=mean.dtype)
            drawn, mixing = mean + coloured(noise, variance, full_cov), mixing_at(model, X)
            parts.append((drawn if mixing is None else mixing.outputs(drawn)).numpy())
    return np.concatenate(parts).reshape(*shape, *parts[0].shape[1:])


def predict_y(
    model: AnyModel,
    Xnew: TensorType | tf.data.Dataset,
    *,
    given: Given | None = None,
    samples: "arviz.InferenceData | None" = None,
    progress: bool = True,
) -> MeanAndVariance:
    """
    Mean and variance of y at Xnew [N, D] under the posterior, both [N, P].

    :param Xnew: an array, a frame or, unless there is ``given``, a ``tf.data.Dataset`` of batches.
    :param given: the further columns of Y of the new rows, by the names that ``likelihood.given``
        has, each [N] or one number: ``{"exposure": 0.5}``, ``{"trials": trials}``,
        ``{"noise_variance": s**2}``. Default: an exposure of 1, one trial, no known noise.
    :param samples: draws of :func:`~gpflow_aaci.sample_posterior`, in the place of q.
    :param progress: whether to show a progress bar over the draws.
    :raises ValueError: for bad Xnew or ``given``, and for samples of another kind of model.
    """
    if samples is None and given is None:
        return _with_q(model).predict_y(Xnew)
    if isinstance(Xnew, tf.data.Dataset):
        if given is not None:
            raise ValueError("given must be None if Xnew is a dataset. Found: given.")
        check_inputs(Xnew)
        return over_batches(
            "Xnew", lambda X: predict_y(model, X, samples=samples, progress=progress), Xnew
        )
    X = checked_inputs(model, Xnew)
    of_rows = checked_given(model.likelihood, given, X)

    def moments(X: tf.Tensor, Fmu: tf.Tensor, Fvar: tf.Tensor, *given: tf.Tensor) -> Any:
        likelihood = model.likelihood.with_given(*given) if given else model.likelihood
        return likelihood.predict_mean_and_var(X, Fmu, Fvar)

    first = second = total = 0.0
    shift: Any = None  # near the mean, or the variance would cancel
    draws = (
        components(_with_q(model), X, False)
        if samples is None
        else conditionals(model, samples, X, False, progress)
    )
    with closing(draws) as blocks:
        for mean, variance in blocks:
            if samples is not None:
                mean, variance = moments_of_outputs(model, X, mean, variance)
            m, v = _in_pieces(moments, X, mean, variance, *of_rows)
            shift = tf.reduce_mean(m, 0) if shift is None else shift
            first += tf.reduce_sum(m - shift, 0)
            second += tf.reduce_sum(v + tf.square(m - shift), 0)
            total += mean.shape[0]
    first, second = first / total, second / total
    return shift + first, second - tf.square(first)


def predict_log_density(
    model: AnyModel,
    data: RegressionData | tf.data.Dataset,
    *,
    samples: "arviz.InferenceData | None" = None,
    progress: bool = True,
) -> tf.Tensor:
    """
    log p(y_new | y) at every new datum, [N]: the log of its mean density over the draws.

    Several outputs of a datum count as independent given a draw, as given q in GPflow's models;
    under a kernel that mixes latent GPs they are not, where u leaves some of these unexplained.

    :param data: Xnew [N, D], Ynew [N, P]; or a ``tf.data.Dataset`` of such batches.
    :param samples: draws of :func:`~gpflow_aaci.sample_posterior`, in the place of q.
    :param progress: whether to show a progress bar over the draws.
    :raises ValueError: as for training data.
    """
    if samples is None and isinstance(model, WithPredictions):
        return model.predict_log_density(data)
    if isinstance(data, tf.data.Dataset):
        check_batches(data)
        return over_batches(
            "data",
            lambda *batch: predict_log_density(model, batch, samples=samples, progress=progress),
            data,
        )
    if samples is None:
        if tf.executing_eagerly():
            new_rows(model, data)  # GPflow's own models do not check
        return _with_q(model).predict_log_density(data)
    X, Y = new_rows(model, data)
    of_each = model.likelihood.predict_log_density
    with closing(conditionals(model, samples, X, False, progress)) as blocks:
        of_outputs = (moments_of_outputs(model, X, *block) for block in blocks)
        log_p = tf.concat([_in_pieces(of_each, X, *block, Y) for block in of_outputs], 0)
    return tf.reduce_logsumexp(log_p, 0) - to_default_float(np.log(len(log_p)))


def components(model: gpflow.models.GPModel, X: tf.Tensor, full_cov: bool) -> BlocksOfF:
    """The Gaussian q or, where q is a mixture, its components, as ``conditionals`` has draws."""
    if isinstance(model, MixtureModel):
        Fmu, Fvar = model.predict_f_components(X, full_cov)
    else:
        Fmu, Fvar = (part[None] for part in model.predict_f(X, full_cov=full_cov))
    yield from zip(tf.unstack(Fmu[:, None]), tf.unstack(Fvar), strict=True)


def conditionals(
    model: AnyModel,
    samples: "arviz.InferenceData",
    X: tf.Tensor,
    full_cov: bool,
    progress: bool,
    seed: int = 0,
) -> BlocksOfF:
    """
    Mean and variance of the latent GPs at X given draws of f or u, for some draws at a time.

    The mean is [S, N, L]; the variance is [N, broadcast L] or, where ``full_cov``, [L, N, N].
    While a block is out, the model has the hyperparameters of its draws.

    :param seed: of hidden layers, which are drawn once for every draw of the inducing variables.
    """

    def conditional(values: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        inputs = model.draw_hidden(X, seed, full_cov) if isinstance(model, DeepModel) else X
        chol, A, unexplained, prior_mean = project_at(model, inputs)[:4]
        if isinstance(model, FullGP) and mixing_of(model) is None:
            values -= model.mean_function(model.data[0])
        columns = tf.transpose(values, [0, 2, 1])[..., None]  # [S, L, M, 1]
        white = tf.linalg.triangular_solve(chol, columns)[..., 0]
        of_latents = tf.broadcast_to(A, tf.concat([tf.shape(white)[1:2], tf.shape(A)[1:]], 0))
        mean = prior_mean + tf.einsum("lmn,slm->snl", of_latents, white)
        if full_cov:
            variance = covariance_of_latents(model.kernel, inputs)
            return mean, variance - tf.matmul(A, A, transpose_a=True)
        return mean, tf.transpose(unexplained)

    compiled_conditional = compiled(conditional, reduce_retracing=True)
    start, total = 0, num_draws(samples)
    with (
        closing(in_blocks(model, samples, np.arange(total), _DRAWS_AT_ONCE)) as blocks,
        progress_bar(progress, total=total, unit="draw") as bar,
    ):
        for values in blocks:
            own_seed = tf.constant([seed, start])
            yield compiled_conditional(tf.constant(values, default_float()), own_seed)
            start += len(values)
            bar.update(len(values))


def moments_of_outputs(
    model: AnyModel, X: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor
) -> MeanAndVariance:
    """Mean [S, N, P] and variance [N, P] of f at single inputs, given those of the latent GPs."""
    mixing = mixing_at(model, X)
    return (mean, variance) if mixing is None else mixed_marginals(*mixing, mean, variance)


def num_draws(samples: "arviz.InferenceData") -> int:
    """How many draws all chains have together."""
    posterior = samples["posterior"]
    return posterior.sizes["chain"] * posterior.sizes["draw"]


def in_blocks(
    model: AnyModel, samples: "arviz.InferenceData", chosen: AnyNDArray, at_once: int
) -> Generator[AnyNDArray, None, None]:
    """
    Draws [S, M, P] of f or u, while the model has the hyperparameters that belong to them.

    :param chosen: the numbers of the draws, counted over all chains.
    :param at_once: S, where no hyperparameters were sampled; otherwise S is 1.
    :raises ValueError: for samples of another kind of model.
    """
    known = all_parameters(model)
    latents, moving, fixed = _checked_draws(model, samples, known)
    at_once = 1 if moving else at_once
    with restored([known[key].unconstrained_variable for key in (*moving, *fixed)]):
        for key, value in fixed.items():
            known[key].assign(value)
        for start in range(0, len(chosen), at_once):
            block = chosen[start : start + at_once]
            for key, of_draws in moving.items():
                known[key].assign(of_draws[block[0]])
            yield latents[block]


def _with_q(model: AnyModel) -> gpflow.models.GPModel:
    if isinstance(model, DeepModel):
        raise ValueError(f"samples must be given for a {type(model).__name__}, which has no q.")
    return model


def _checked_draws(
    model: AnyModel, samples: "arviz.InferenceData", known: dict[str, Parameter]
) -> tuple[AnyNDArray, dict[str, AnyNDArray], dict[str, AnyNDArray]]:
    """
    Draws [S, M, P] of f or u, draws [S, ...] of hyperparameters, and those that were not sampled.

    :param known: the parameters of the model by name.
    :raises ValueError: for samples of another kind of model.
    """
    draws = {
        str(key): np.reshape(values.values, [-1, *values.shape[2:]])
        for key, values in samples["posterior"].items()
    }
    name = "f" if isinstance(model, FullGP) and mixing_of(model) is None else "u"
    if isinstance(model, DeepModel):
        M, P = prior_covariance(model).shape[-1], model.num_latent_gps
    else:
        M, P = (model.V if isinstance(model, gpflow.models.GPMC) else model.q_mu).numpy().shape
    if name not in draws or draws[name].shape[1:] != (M, P):
        raise ValueError(
            f'samples must hold "{name}" of {M} values and {P} '
            f"outputs, from sample_posterior(model). Found: "
            f"{ {key: list(values.shape[1:]) for key, values in draws.items()} }."
        )
    # Names of parameters have dots; f, u and auxiliary variables have none.
    moving = {key: values for key, values in draws.items() if "." in key}
    fixed = _constants(samples, known) if known else {}  # a frozen model has no parameters
    shapes = {key: values.shape[1:] for key, values in moving.items()}
    shapes |= {key: np.shape(value) for key, value in fixed.items()}
    unknown = [key for key in shapes if key not in known]
    if isinstance(model, DeepModel) and not model.hidden_v.keys() <= moving.keys():
        raise ValueError(
            f"samples must hold {', '.join(model.hidden_v)} of the hidden layers. "
            f"Found: {', '.join(moving) or 'none'}."
        )
    if unknown:
        raise ValueError(
            f"samples must hold parameters that the model has. Found: {', '.join(unknown)}."
        )
    for key, shape in shapes.items():
        if shape != known[key].shape:
            raise ValueError(
                f"samples must hold {key} of the model's shape, {list(known[key].shape)}. "
                f"Found: {list(shape)}."
            )
    return draws[name], moving, fixed


def _constants(
    samples: "arviz.InferenceData", known: dict[str, Parameter]
) -> dict[str, AnyNDArray]:
    """The values of the hyperparameters that were not sampled; their names have dots."""
    if "constant_data" not in samples.groups():
        return {}
    constants = samples["constant_data"].items()
    found = {str(key): value.values for key, value in constants if "." in str(key)}
    for key, value in found.items():  # ArviZ keeps a scalar as [1]
        if value.shape == (1,) and key in known and len(known[key].shape) == 0:
            found[key] = value[0]
    return found


def _in_pieces(
    function: Callable[..., Any],
    X: tf.Tensor,
    mean: tf.Tensor,
    variance: tf.Tensor,
    *of_data: tf.Tensor,
) -> Any:
    """``function(X, Fmu, Fvar, ...)`` of all draws [S, N, L], some data at a time, joined."""
    rows = max(1, VALUES_AT_ONCE // (mean.shape[0] * mean.shape[2]))
    variance = tf.broadcast_to(variance, tf.shape(mean)[1:])
    pieces = []
    for start in range(0, mean.shape[1] or 1, rows):
        # Compiled for any number of rows, it is one piece.
        piece = slice(None) if mean.shape[1] is None else slice(start, start + rows)
        lead = tf.shape(mean[:, piece])[:2]

        # Draws are laid end to end as rows, as some of GPflow's likelihoods take no batches.
        def flat(values: tf.Tensor, lead: tf.Tensor = lead) -> tf.Tensor:
            shape = tf.concat([lead, tf.shape(values)[-1:]], 0)
            return tf.reshape(tf.broadcast_to(values, shape), [-1, values.shape[-1]])

        def of_draws(part: tf.Tensor, lead: tf.Tensor = lead) -> tf.Tensor:
            return tf.reshape(part, tf.concat([lead, tf.shape(part)[1:]], 0))

        of_rows = (flat(values[piece]) for values in (variance, *of_data))
        parts = function(flat(X[piece]), flat(mean[:, piece]), *of_rows)
        pieces.append(tf.nest.map_structure(of_draws, parts))
    return tf.nest.map_structure(lambda *parts: tf.concat(parts, 1), *pieces)


def coloured(noise: tf.Tensor, variance: tf.Tensor, full_cov: bool) -> tf.Tensor:
    """Standard normal ``noise`` [S, N, L], scaled to have the given variance or covariance."""
    if not full_cov:
        return safe_sqrt(variance) * noise
    jitter = tf.cast(default_jitter(), variance.dtype)
    root = tf.linalg.cholesky(
        tf.linalg.set_diag(variance, tf.linalg.diag_part(variance) + jitter)
    )  # [L, N, N]
    return tf.transpose(tf.matmul(root, tf.transpose(noise, [2, 1, 0])), [2, 1, 0])


def checked_inputs(model: gpflow.models.GPModel, Xnew: TensorType, name: str = "Xnew") -> tf.Tensor:
    """
    Inputs [N, D] as a tensor of the float type that the model computes in.

    :raises ValueError: for another number of columns than the model's inputs have, and values that
        are not finite.
    """
    levels = levels_of(model.kernel) if hasattr(model, "kernel") else {}  # a deep GP has several
    X = as_default_float(Xnew, name, levels)
    input_dim = input_dim_of(model)
    if X.shape.rank != 2 or input_dim not in (None, X.shape[-1]):
        raise ValueError(f"{name} must be [N, {input_dim}]. Found: shape {list(X.shape)}.")
    checks = [check_finite(name, X), *check_levels(name, X, levels)]
    with tf.control_dependencies([require(checks)]):
        q_mu = getattr(model, "q_mu", X)  # float32 if the model is frozen as float32
        return tf.cast(tf.identity(X), q_mu.dtype)


def some_inputs(model: gpflow.models.GPModel, X: TensorType) -> AnyNDArray:
    """
    As :func:`checked_inputs`, as an array [N, D].

    :raises ValueError: also for X without rows.
    """
    x = checked_inputs(model, X, "X").numpy()
    if len(x) == 0:
        raise ValueError(f"X must be [N, D], of at least one row. Found: shape {list(x.shape)}.")
    return x


def input_dim_of(model: gpflow.models.GPModel) -> int | None:
    """The number of columns of X, or None where the model does not tell."""
    if hasattr(model, "input_dim"):
        return model.input_dim
    Z = getattr(getattr(model, "inducing_variable", None), "Z", None)
    X = Z if Z is not None else getattr(model, "data", [None])[0]
    return None if X is None else X.shape[-1]


@contextmanager
def restored(variables: list[tf.Variable]) -> Iterator[None]:
    """The variables have their values again afterwards."""
    before = [variable.numpy() for variable in variables]
    try:
        yield
    finally:
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
