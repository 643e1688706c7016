"""The third model: a GP whose every prediction comes from the nearest rows of data."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, MeanAndVariance, RegressionData, TensorType
from gpflow.kernels import Kernel, LinearCoregionalization, MultioutputKernel, SharedIndependent
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction
from gpflow.models.training_mixins import InternalDataTrainingLossMixin
from gpflow.models.util import data_input_to_tensor

from ..effects import check_offsets
from ..kernels import levels_of, parts_of
from ..likelihoods import AugmentedLikelihood, augmented
from ..likelihoods.law import as_float
from ..models.predictions import WithPredictions
from ..models.shared import check_latents
from ..runtime.compiled import Compiled
from ..runtime.graphs import reading_once
from ..runtime.workers import num_workers, together
from ..validation import as_default_float, as_pair, check_count, checked_data, column_names
from .conditional import LocalGP
from .neighbors import Neighbors
from .rows import StoredRows, location

Metric: TypeAlias = TensorType | Callable[[TensorType], TensorType] | None
"""What "near" means: a length [D] for each column of X, or a function of X [N, D] → [N, F]."""

_MOST_NUMBERS = 250_000  # in one matrix of all problems that are solved at once
_MOST_JOINT_ROWS = 2_000  # of the neighbours of all queries of a joint prediction
_IRRELEVANT = 1e4  # standard deviations: the length of a column that no lengthscale has
_ROWS_AT_ONCE = 5_000  # that are left out before the next ones are searched for
_FIRST_ROWS = 1_000  # of the objective, until ``fit`` takes more


class AugmentedNNGP(WithPredictions, InternalDataTrainingLossMixin):
    r"""
    A GP that predicts at each x from its k nearest rows of data, for every augmented likelihood.

    f at x is the posterior of the augmented GP of these rows on its own: ``num_steps`` closed-form
    updates of their sites, begun at the prior, and then the Gaussian conditional. So nothing is
    stored for a row, a prediction costs k³ whatever N is, and the sites of the neighbours of a row
    cannot know its y. With all rows as neighbours it is ``AugmentedVGP`` after ``num_steps`` + 1
    closed-form steps, and with Gaussian noise ``GPR``. Like ``VGP`` it stores its data::

        model = AugmentedNNGP((X, Y), gpflow.kernels.Matern32(lengthscales=[3.0] * D), StudentT())
        print(gpflow_aaci.fit(model))
        mean, variance = model.predict_y(Xnew)

    It has no q(u), and so no ELBO. What it maximises is the mean leave-one-out log density of some
    rows: a predictive density, not a bound, which cannot be compared with an ELBO, but with the
    result of :func:`~gpflow_aaci.loo`.

    Which rows are near depends on ``metric``, a state of its own that only ``fit`` moves: if it
    followed the lengthscales, an optimizer would not descend. The nearest-neighbour approximation
    is that of Vecchia (1988) and Datta et al. (2016), without an order of the rows.

    In the scope of a ``tf.distribute.MultiWorkerMirroredStrategy`` every worker gives rows of its
    own, and the neighbours of a row are among the rows of all. All workers must then make the same
    calls, with the same new rows.
    """

    likelihood: AugmentedLikelihood

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood,
        num_neighbors: int = 32,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        metric: Metric = None,
        num_steps: int = 2,
    ) -> None:
        """
        :param data: X [N, D] and Y [N, P], as arrays or frames; of several workers, the rows of
            this one, at least one.
        :param kernel: a single-output kernel, or a ``SharedIndependent`` or ``SeparateIndependent``
            of several latent GPs.
        :param likelihood: as in :class:`~gpflow_aaci.AugmentedSVGP`, but with an augmentation.
        :param num_neighbors: k, the number of neighbours that the objective and, until ``fit`` has
            chosen another number, predictions use.
        :param metric: the length [D] of a unit of distance in each column of X; or a function that
            maps X [N, D] to features [N, F], for kernels in which "near" is something else. The
            levels of :class:`~gpflow_aaci.kernels.Categorical` do not decide what is near.
            Default: the kernel's lengthscales, see :meth:`lengthscales`; if it has none, the
            standard deviations of the columns.
        :param num_steps: the number of closed-form updates of the sites.
        :raises ValueError: for bad data, a likelihood without augmentation, other multi-output
            kernels, and a ``metric`` that is not positive and finite.
        """
        likelihood = augmented(likelihood)
        check_augmented(likelihood)
        check_count("num_neighbors", num_neighbors, 1)
        check_count("num_steps", num_steps, 1)
        if isinstance(kernel, MultioutputKernel) and not hasattr(kernel, "latent_kernels"):
            raise ValueError(
                f"kernel must be a single-output kernel. Found: {type(kernel).__name__}."
            )
        if isinstance(kernel, LinearCoregionalization):
            raise ValueError(
                "kernel must be a single-output kernel, SharedIndependent or SeparateIndependent: "
                "under LinearCoregionalization a row has no site of its own in each latent GP, so "
                "that AugmentedSVGP is the model for it. Found: LinearCoregionalization."
            )
        X, Y = as_pair(data, levels_of(kernel))
        if num_latent_gps is None:
            num_latent_gps = likelihood.num_outputs(int(np.shape(Y)[-1]))
        check_latents(kernel, likelihood, num_latent_gps)
        super().__init__(kernel, likelihood, mean_function, num_latent_gps)
        self.column_names = column_names(data[0])
        self.num_neighbors, self.num_steps = int(num_neighbors), int(num_steps)
        # A variable, so that a checkpoint has it.
        self._of_predictions = tf.Variable([num_neighbors, num_steps], trainable=False)
        self._set_data(self._checked(X, Y))
        check_offsets(self)
        self._features = metric if callable(metric) else None
        lengths = self._default_metric() if metric is None or callable(metric) else metric
        self._metric = tf.Variable(self._checked_metric(lengths), trainable=False)

    @property
    def prediction_neighbors(self) -> int:
        """The number of neighbours that predictions use; ``fit`` chooses it."""
        return self._number_of_predictions(0)

    @prediction_neighbors.setter
    def prediction_neighbors(self, value: int) -> None:
        check_count("prediction_neighbors", value, 1)
        self._of_predictions.assign([value, self.prediction_steps])

    @property
    def prediction_steps(self) -> int:
        """The number of closed-form updates that predictions use; ``fit`` chooses it."""
        return self._number_of_predictions(1)

    @prediction_steps.setter
    def prediction_steps(self, value: int) -> None:
        check_count("prediction_steps", value, 1)
        self._of_predictions.assign([self.prediction_neighbors, value])

    def _number_of_predictions(self, index: int) -> int:
        with tf.init_scope():  # the graph of a compiled prediction depends on it
            return int(self._of_predictions[index].numpy())

    # ---- the data ----

    @property
    def own_data(self) -> RegressionData:
        """X [N, D] and Y [N, P]; of several workers, the rows of this one."""
        return self.data

    @property
    def input_dim(self) -> int:
        """Columns of X."""
        return int(self.data[0].shape[-1])

    @property
    def num_data(self) -> int:
        """N, of all workers together."""
        return self.stored.number

    @property
    def stored(self) -> StoredRows:
        """The rows of all workers."""
        with tf.init_scope():
            if self._derived.stored is None:
                self._derived.stored = StoredRows(self.data, self.strategy)
        return self._derived.stored

    def add(self, X: TensorType, Y: TensorType) -> None:
        """
        Add rows to the data. Nothing else changes: no row has a state.

        :param X: [n, D].
        :param Y: [n, P].
        :raises ValueError: for bad data.
        """
        new = self._checked(*as_pair((X, Y), levels_of(self.kernel)), input_dim=self.input_dim)
        self._set_data(tuple(tf.concat(pair, 0) for pair in zip(self.data, new, strict=True)))

    def remove(self, mask: TensorType) -> None:
        """
        Remove rows from the data.

        :param mask: [N], True for every row that is removed; of several workers, of its own rows.
        :raises ValueError: unless ``mask`` has a Boolean for each row and leaves a row.
        """
        is_removed, num_rows = np.asarray(mask), len(self.data[0])
        if is_removed.dtype != bool or is_removed.shape != (num_rows,) or is_removed.all():
            raise ValueError(
                f"mask must hold {num_rows} Booleans, not all True. "
                f"Found: {is_removed.dtype} of shape {list(is_removed.shape)}."
            )
        self._set_data(tuple(tf.boolean_mask(part, ~is_removed) for part in self.data))

    def _checked(
        self, X: TensorType, Y: TensorType, input_dim: int | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        return together(
            self.strategy,
            lambda: checked_data(
                X,
                Y,
                num_observed=self.num_observed,
                num_outputs=self.num_outputs,
                input_dim=input_dim,
                given=self.likelihood.given,
                labels=self.likelihood.labels,
                levels=levels_of(self.kernel),
                checks_of_Y=self.likelihood.checks,
            ),
        )

    def _set_data(self, data: RegressionData) -> None:
        self.data = data_input_to_tensor(data)
        self._forget_neighbors()

    # ---- what is near ----

    @property
    def metric(self) -> AnyNDArray | Callable[[TensorType], TensorType]:
        """The length [D] of a unit of distance in each column of X, or the function of X."""
        return self._metric.numpy() if self._features is None else self._features

    @metric.setter
    def metric(self, value: TensorType | Callable[[TensorType], TensorType]) -> None:
        if callable(value):
            self._features = value
        else:
            self._metric.assign(self._checked_metric(value))
            self._features = None
        self._derived.index = self._derived.frozen = None

    def features(self, X: TensorType) -> tf.Tensor:
        """X in the coordinates in which "near" is Euclidean, [N, F]."""
        if self._features is not None:
            return tf.convert_to_tensor(self._features(X))
        return X / tf.cast(self._metric, X.dtype)

    def lengthscales(self) -> AnyNDArray | None:
        """
        The shortest lengthscale of each column of X, [D]; None if no kernel has lengthscales.

        A column in which no kernel has one does not decide what is near: it gets a length of 10⁴
        standard deviations.
        """
        found = np.full(self.input_dim, np.inf)
        for kernel in _basic_kernels(self.kernel):
            if (own := getattr(kernel, "lengthscales", None)) is not None:
                columns = np.arange(self.input_dim)[kernel.active_dims]
                found[columns] = np.minimum(found[columns], own.numpy())
        if np.isinf(found).all():
            return None
        return np.where(np.isinf(found), _IRRELEVANT * self.spread(), found)

    def spread(self) -> AnyNDArray:
        """The standard deviation of each column of X, [D]; 1 for a constant column."""
        spread = np.std(self.stored.some[0], axis=0)
        return np.where(spread > 0.0, spread, 1.0)

    def _default_metric(self) -> AnyNDArray:
        found = self.lengthscales()
        return self.spread() if found is None else found

    def prior_variance(self) -> tf.Tensor:
        """k(x_i, x_i) of at most 100,000 rows of the data, [1 or L, n]."""
        kernels = self.local(1).kernels
        return tf.stack([kernel(self.stored.some[0], full_cov=False) for kernel in kernels])

    def _checked_metric(self, metric: TensorType) -> tf.Tensor:
        lengths = as_default_float(metric, "metric")
        is_good = lengths.shape == [self.input_dim] and bool(
            tf.reduce_all(tf.math.is_finite(lengths) & (lengths > 0.0))
        )
        if not is_good:
            raise ValueError(
                f"metric must be {self.input_dim} positive numbers, one for each column of X, or a "
                f"function of X. Found: {np.array2string(lengths.numpy(), threshold=8)}."
            )
        return lengths

    def _forget_neighbors(self) -> None:
        self._derived = _Derived()

    @property
    def index(self) -> Neighbors:
        """The search for neighbours, made when it is first needed."""
        lengths = self._metric.numpy()
        made = self._derived.index
        if made is None or not np.array_equal(made[0], lengths):  # a checkpoint was restored
            features, stored = self.features(self.data[0]).numpy(), self.stored
            search = Neighbors(features, self.strategy, stored.first, stored.number)
            made = self._derived.index = lengths, search
        return made[1]

    def neighbors_of_rows(
        self, rows: AnyNDArray, num_neighbors: int, leave_out_repeats: bool
    ) -> AnyNDArray:
        """
        The nearest rows [n, k] of some rows of the data, without the rows themselves.

        :param rows: the numbers [n] of the rows.
        :param leave_out_repeats: whether rows with the same x are no neighbours either.
        :raises ValueError: if nothing is left.
        """
        stored, most = self.stored, 1
        X, _ = stored.of(rows)
        labels = rows, stored.first + np.arange(len(self.data[0]))
        if leave_out_repeats:
            labels = location(X.numpy()), stored.own_locations
            most = int(stored.copies(labels[0]).max(initial=1))
        if most == stored.number:
            raise ValueError("X must have at least two different rows. Found: one.")
        return self.index.of(self.features(X).numpy(), num_neighbors, labels, most)

    # ---- the objective ----

    def refresh_neighbors(self, rows: AnyNDArray | int = _FIRST_ROWS, seed: int = 0) -> None:
        """
        Choose the rows of the objective, and their neighbours in the present metric.

        :param rows: the numbers of the rows; or how many random ones.
        """
        if isinstance(rows, int | np.integer):
            number = min(int(rows), self.num_data)
            rows = np.random.default_rng(seed).permutation(self.num_data)[:number]
        self.freeze(rows, self.neighbors_of_rows(rows, self.num_neighbors, True))

    def freeze(self, rows: AnyNDArray, near: AnyNDArray) -> None:
        """Set the rows [n] of the objective, and their neighbours [n, k]."""
        self._derived.frozen = self._metric.numpy(), rows, near

    @property
    def frozen(self) -> tuple[AnyNDArray, AnyNDArray]:
        """The rows [n] of the objective and their neighbours [n, k]."""
        made = self._derived.frozen
        with tf.init_scope():  # a compiled loss holds them as constants
            if made is None:
                self.refresh_neighbors()
            elif not np.array_equal(made[0], self._metric.numpy()):  # a checkpoint was restored
                self.refresh_neighbors(made[1])
        made = self._derived.frozen
        assert made is not None
        return made[1:]

    @check_shapes("return: []")
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """
        N times the mean leave-one-out log density of the objective's rows.

        The rows and their neighbours are frozen: see :meth:`refresh_neighbors`. Rows with the same
        x as a row are left out with it. It is a predictive density and not a bound on log p(Y).
        """
        return float(self.num_data) * self.mean_log_density()

    def mean_log_density(self) -> tf.Tensor:
        """The mean leave-one-out log density [nats a datum] of the objective's rows."""
        rows = self.gathered(*self.frozen)
        return tf.reduce_mean(leave_one_out(self.local(self.num_steps), *rows))

    def local(self, num_steps: int) -> LocalGP:
        """The GP of a few rows on its own."""
        kernel = self.kernel
        if isinstance(kernel, SharedIndependent):
            kernels = [kernel.kernel]
        else:
            kernels = kernel.kernels if isinstance(kernel, MultioutputKernel) else [kernel]
        return LocalGP(kernels, self.mean_function, self.likelihood, num_steps)

    def gathered(
        self, rows: AnyNDArray, near: AnyNDArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """X [n, 1, D] and Y [n, P] of some rows, and those of their neighbours [n, k, ...]."""
        X, Y = self._rows(rows)
        return X[:, None], Y, *self._rows(near)

    def leave_one_out(
        self,
        rows: AnyNDArray,
        num_neighbors: int,
        num_steps: int,
        leave_out_repeats: bool = True,
    ) -> AnyNDArray:
        """log p(y_i | the other rows) [n] of some rows, as the arguments say."""
        parts = [np.zeros(0)]
        left_out = self.left_out(rows, num_neighbors, num_steps, leave_out_repeats)
        for X, Y, mean, variance in left_out:
            parts.append(self.likelihood.predict_log_density(X, mean, variance, Y).numpy())
        return np.concatenate(parts)

    def left_out(
        self, rows: AnyNDArray, num_neighbors: int, num_steps: int, leave_out_repeats: bool = True
    ) -> Iterator[tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]]:
        """X, Y, and mean and variance of f given the other rows, for some of ``rows`` at a time."""
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            piece = rows[start : start + _ROWS_AT_ONCE]
            near = self.neighbors_of_rows(piece, num_neighbors, leave_out_repeats)
            X, Y = self._rows(piece)
            yield X, Y, *self.given_neighbors(X, near, num_steps)

    def given_neighbors(
        self, X: TensorType, near: AnyNDArray, num_steps: int
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of f [n, L] at X [n, D], each given the rows with numbers [n, k]."""
        predict = self._compiled(num_steps)
        at_once = rows_at_once(near.shape[1], self.num_latent_gps)
        parts = []
        for start in range(0, max(1, len(near)), at_once):
            piece = slice(start, start + at_once)
            parts.append(predict(X[piece, None], *self._rows(near[piece])))
        return tuple(tf.concat(part, 0)[:, 0] for part in zip(*parts, strict=True))

    def _compiled(self, num_steps: int) -> Any:
        X, Y = self.data
        specs = [
            tf.TensorSpec([None, None, part.shape[-1]], self._metric.dtype) for part in (X, X, Y)
        ]
        return Compiled(self.local(num_steps)).function(_marginals_of, signature=specs)

    # ---- predictions ----

    def predict_f(
        self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """
        Mean and variance of f, [N, L], or with ``full_cov`` the covariance [L, N, N].

        Every row is predicted from its own neighbours. A joint prediction uses the union of all
        neighbours for each row, so that its variances are a little smaller.

        :param full_output_cov: must be False.
        :raises ValueError: for ``full_output_cov``, and for ``full_cov`` where the union has more
            than 2,000 rows.
        """
        if full_output_cov:
            raise ValueError("full_output_cov must be False for AugmentedNNGP. Found: True.")
        predict = self._joint if full_cov else self._by_rows
        return self._predicted(predict, Xnew, full_cov)

    def _by_rows(self, Xnew: TensorType) -> MeanAndVariance:
        X = self._in_own_float(Xnew)
        if not tf.executing_eagerly():
            near = self._nearest_in_graph(X, self.prediction_neighbors)
            local = self.local(self.prediction_steps)
            mean, variance = local.marginals(X[:, None], *self._rows(near))
            return mean[:, 0], variance[:, 0]
        near = self.index.of(self.features(X).numpy(), self.prediction_neighbors)
        return self.given_neighbors(X, near, self.prediction_steps)

    def _joint(self, Xnew: TensorType) -> MeanAndVariance:
        X = self._in_own_float(Xnew)
        if not tf.executing_eagerly():
            raise ValueError("full_cov must be False inside a tf.function. Found: True.")
        near = np.unique(self.index.of(self.features(X).numpy(), self.prediction_neighbors))
        if len(near) > _MOST_JOINT_ROWS:
            raise ValueError(
                f"Xnew must have at most {_MOST_JOINT_ROWS:,} different neighbours if full_cov is "
                f"True: predict fewer rows at once, or full_cov=False. Found: {len(near):,}."
            )
        local = self.local(self.prediction_steps)
        mean, covariance = local.joint(X[None], *self._rows(near[None]))
        return mean[0], covariance[0]

    def _in_own_float(self, Xnew: TensorType) -> tf.Tensor:
        """Xnew in the float type of the parameters, which is float32 in a model frozen so."""
        return tf.cast(as_float(Xnew), self._metric.dtype)

    def _rows(self, near: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        return tuple(tf.cast(part, self._metric.dtype) for part in self.stored.of(near))

    def _nearest_in_graph(self, X: tf.Tensor, k: int) -> tf.Tensor:
        """The nearest rows [n, k] by all distances, for compiled functions and saved models."""
        if num_workers(self.strategy) > 1:
            raise ValueError(
                "a prediction of AugmentedNNGP on several workers must be outside of a tf.function."
            )
        rows, at = self.features(self.data[0]), self.features(X)
        centre = tf.reduce_mean(rows, 0)
        rows, at = tf.cast(rows - centre, at.dtype), at - tf.cast(centre, at.dtype)
        closeness = 2.0 * tf.matmul(at, rows, transpose_b=True) - tf.reduce_sum(tf.square(rows), -1)
        return tf.math.top_k(closeness, min(k, self.num_data), sorted=False).indices


class _Derived:
    """What follows from the data and the metric; made when it is needed and never saved."""

    index: tuple[AnyNDArray, Neighbors] | None = None  # after its metric
    stored: StoredRows | None = None
    frozen: tuple[AnyNDArray, AnyNDArray, AnyNDArray] | None = None  # metric, rows, neighbours

    def __getstate__(self) -> dict[str, Any]:
        return {}


def leave_one_out(
    local: LocalGP, X: TensorType, Y: TensorType, X_near: TensorType, Y_near: TensorType
) -> tf.Tensor:
    """log p(y | the neighbours' y) [n], for X [n, 1, D], Y [n, P] and their neighbours."""
    mean, variance = (part[:, 0] for part in local.marginals(X, X_near, Y_near))
    return local.likelihood.predict_log_density(X[:, 0], mean, variance, Y)


def rows_at_once(num_neighbors: int, num_latents: int) -> int:
    """So many problems are solved at once."""
    return max(8, _MOST_NUMBERS // (num_latents * num_neighbors**2))


def check_augmented(likelihood: AugmentedLikelihood) -> None:
    """
    :raises ValueError: for a likelihood without auxiliary variables.
    """
    if not likelihood.is_augmented:
        raise ValueError(
            "likelihood must have an augmentation, under which a closed-form step cannot go too "
            "far, for AugmentedNNGP; README lists an augmented likelihood beside most others. "
            f"Found: {type(likelihood).__name__}."
        )


def _basic_kernels(kernel: Kernel) -> list[Kernel]:
    if isinstance(kernel, gpflow.kernels.Periodic):  # its lengthscales apply to an angle
        return []
    parts = parts_of(kernel)
    return [each for part in parts for each in _basic_kernels(part)] if parts else [kernel]


def _marginals_of(local: LocalGP, variables: Any) -> Callable[..., Any]:
    return reading_once(local)(local.marginals)
