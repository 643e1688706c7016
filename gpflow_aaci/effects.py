r"""
Effects of groups and linear effects beside a GP: f(x) + Σ_k b_k[level of x] + xᵀβ.

Each is a kernel that is added to the kernel of the GP, and has features of its own: the b of each
level, or β. In a sparse model these features stand beside the inducing variables u, with
K_uu = blockdiag(K_ZZ, σ_b² I, σ_β² I), so that q(u, b, β) is joint and the effects are exact. An
offset, a column of X whose coefficient is known, is a mean function.

A row has one level of each factor, so that b of one factor are independent under q given u and β.
``fit``, ``polish`` and ``loo`` use it: a step costs O(N M² + G M² + M³) for a factor with G levels,
where M counts u and β, and with further factors their levels. ``q_sqrt`` is stored in full, which
takes 8 (M + G)² bytes: some thousands of levels. Samplers take all of K_uf, of N (M + G) numbers.
"""

import abc
from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import covariances
from gpflow.base import AnyNDArray, TensorType
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.kernels import Kernel, MultioutputKernel, Sum
from gpflow.mean_functions import MeanFunction
from gpflow.utilities import positive

from .algebra.arrow import BlockDiagonal, dense
from .algebra.one_hot import OneHot
from .kernels import basic_kernels, columns_of
from .levels import are_codes, are_words, as_levels, codes_of, index_of

__all__ = ["Effect", "Grouped", "Linear", "Offset"]


class Effect(Kernel, abc.ABC):
    """A kernel of finite rank, φ(x)ᵀ diag(prior variances) φ(x′), over some columns of X."""

    @property
    @abc.abstractmethod
    def prior_variances(self) -> tf.Tensor:
        """Of the coefficients, [G]."""

    @abc.abstractmethod
    def features(self, X: TensorType) -> tf.Tensor:
        """φ(x) [N, G] at the effect's own columns of X [N, D]."""


class Grouped(Effect):
    """
    An effect b of each level of a column of X, b ~ N(0, variance) independently.

    It is the random intercept of mixed models: rows of the same person, school or device share it.
    The variance is learnt. A new number has the prior's b in predictions; ``fit`` warns of rows of
    the data whose number is not among ``levels``, from which nothing is learnt about groups. If the
    levels are words, a frame holds words in this column, and no others than the levels; see
    :class:`~gpflow_aaci.kernels.Categorical`::

        model = AugmentedVGP((X, Y), kernel, likelihood, effects=[effects.Grouped(column=1)])
    """

    def __init__(
        self, column: int, variance: float = 1.0, levels: TensorType | None = None
    ) -> None:
        """
        :param column: the number of the column of X that has the levels.
        :param variance: σ_b², positive, in units of f².
        :param levels: all levels, numbers or words, repeated or not, such as ``X[:, 1]`` or
            ``frame["school"]``; for words, and for ``AugmentedSVGP``, which does not know the data
            when it is made.
        :raises ValueError: unless the column is a whole number from 0 up, for levels that are
            neither words nor finite numbers, or not in one dimension, and for numbers that the
            float type cannot tell apart.
        """
        super().__init__(active_dims=_columns("Grouped", "column", [column]))
        self.variance = gpflow.Parameter(variance, transform=positive())
        self.levels = None if levels is None else as_levels(levels, "effects.Grouped")

    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        if X2 is None:
            is_same = tf.equal(X, tf.linalg.matrix_transpose(X))
        else:
            x, x2 = X[..., 0], tf.convert_to_tensor(X2)[..., 0]
            beside_x2 = tf.concat([tf.shape(x), tf.ones_like(tf.shape(x2))], 0)
            is_same = tf.equal(tf.reshape(x, beside_x2), x2)
        return self.variance * tf.cast(is_same, self.variance.dtype)

    def K_diag(self, X: TensorType) -> tf.Tensor:
        return self.variance * tf.ones_like(X[..., 0])

    @property
    def fixed_levels(self) -> AnyNDArray | None:
        """The levels [G], if they are words: its column must then not hold others."""
        return None if self.levels is None or not are_words(self.levels) else self.levels

    @property
    def prior_variances(self) -> tf.Tensor:
        return self.variance * tf.ones(len(self._known_levels()), self.variance.dtype)

    def features(self, X: TensorType) -> tf.Tensor:
        own = tf.convert_to_tensor(self.slice(X)[0])
        codes = tf.constant(codes_of(self._known_levels()), own.dtype)
        return tf.cast(tf.equal(own, codes), own.dtype)

    def _known_levels(self) -> AnyNDArray:
        """The levels [G]."""
        if self.levels is None:
            raise ValueError(
                "levels of effects.Grouped must be given for AugmentedSVGP, such as "
                "levels=X[:, 1]. Found: None."
            )
        return self.levels


class Linear(Effect):
    """
    The linear effect xᵀβ of some columns of X, β ~ N(0, variance I).

    Give the columns a standard deviation of about 1. A large variance that is held fixed makes β
    what mixed models call a fixed effect::

        linear = effects.Linear(columns=[2, 3], variance=100.0)
        gpflow.set_trainable(linear, False)
    """

    def __init__(self, columns: Sequence[int], variance: float = 1.0) -> None:
        """
        :param columns: the numbers of the columns of X.
        :param variance: σ_β², positive, in units of f² over x².
        :raises ValueError: unless the columns are distinct whole numbers from 0 up.
        """
        super().__init__(active_dims=_columns("Linear", "columns", columns))
        self.variance = gpflow.Parameter(variance, transform=positive())

    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        if X2 is None:
            return self.variance * tf.matmul(X, X, transpose_b=True)
        return self.variance * tf.tensordot(X, X2, [[-1], [-1]])

    def K_diag(self, X: TensorType) -> tf.Tensor:
        return self.variance * tf.reduce_sum(tf.square(X), -1)

    @property
    def prior_variances(self) -> tf.Tensor:
        return self.variance * tf.ones(len(self.active_dims), self.variance.dtype)

    def features(self, X: TensorType) -> tf.Tensor:
        return self.slice(X)[0]


class Offset(MeanFunction):
    """
    A column of X that is added to f as it is: the offset of generalised linear models.

    With log E in the column, a mean r e^f of counts becomes r e^f E, as in regressions with
    exposures E (R's ``offset(log(E))``; McCullagh and Nelder 1989, *Generalized Linear Models*,
    chapter 6). It suits ``NegativeBinomial`` and GPflow's ``Poisson``, but not a bounded rate
    λσ(f), whose exposure is a column of Y. Xnew has the column, too, and so chooses the exposure of
    a prediction::

        X = np.column_stack([x, np.log(exposure)])  # [N, 3]; the kernel must not see column 2
        kernel = gpflow.kernels.SquaredExponential(active_dims=[0, 1])
        mean = gpflow.mean_functions.Constant() + effects.Offset(column=2)
        model = AugmentedVGP((X, y), kernel, NegativeBinomial(), mean_function=mean)
    """

    def __init__(self, column: int, weights: Sequence[float] = (1.0,)) -> None:
        """
        :param column: the number of the column of X; no kernel of the model may act on it.
        :param weights: by what it is multiplied for each column of f, or for all of them: [1, 0]
            if f is of a count and the second latent GP of a gate.
        :raises ValueError: unless the column is a whole number from 0 up, and for weights that are
            not finite numbers.
        """
        super().__init__()
        (self.column,) = _columns("Offset", "column", [column])
        found = np.asarray(weights, float)
        if found.ndim != 1 or not (found.size and np.isfinite(found).all()):
            raise ValueError(
                f"weights of effects.Offset must be finite numbers, [L]. Found: {weights}."
            )
        self.weights = tuple(found.tolist())

    def __call__(self, X: TensorType) -> tf.Tensor:
        offset = tf.convert_to_tensor(X)[..., self.column, None]
        return offset * tf.constant(self.weights, offset.dtype)


def check_offsets(model: Any) -> None:
    """
    :raises ValueError: unless X has the columns of all offsets of the model, no kernel of f acts on
        them, and there is one weight or one for each column of f.
    """
    mean, kernels = model.mean_function, list(basic_kernels(model.kernel))
    for offset in (each for each in (mean, *mean.submodules) if isinstance(each, Offset)):
        D = offset.column + 1 if model.input_dim is None else model.input_dim
        if offset.column >= D:
            raise ValueError(
                f"column of effects.Offset must be one of X, from 0 to {D - 1}. "
                f"Found: {offset.column}."
            )
        acting = [each for each in kernels if offset.column in columns_of(each, D)]
        if found := [type(each).__name__ for each in acting if not isinstance(each, Effect)]:
            raise ValueError(
                f"kernel must not act on column {offset.column} of X, which is the offset: give it "
                f"active_dims of the other columns. Found: {', '.join(found)}."
            )
        if len(offset.weights) not in (1, model.num_outputs):
            raise ValueError(
                f"weights of effects.Offset must be one, or {model.num_outputs}, as f has columns. "
                f"Found: {len(offset.weights)}."
            )


class WithEffects(InducingVariables):
    """
    Inducing variables u of the GP, then the coefficients of each effect of its kernel.

    Linear effects come before the effects of groups, and few groups before many.
    """

    def __init__(self, inducing_variable: InducingPoints, num_coefficients: int) -> None:
        super().__init__()
        self.inducing_variable = inducing_variable
        self._num_coefficients = num_coefficients

    @property
    def num_inducing(self) -> tf.Tensor:
        return self.inducing_variable.num_inducing + self._num_coefficients

    @property
    def shape(self) -> Any:
        Z = self.inducing_variable.shape
        return None if Z is None else (Z[0] + self._num_coefficients, *Z[1:])


def added(kernel: Kernel, effects: Sequence[Effect], input_dim: int | None) -> Kernel:
    """
    The kernel of the GP with all effects.

    :param input_dim: the number of columns of X, or None where it is not known.
    :raises ValueError: for something else than distinct effects, a multi-output kernel, a kernel
        that has effects already or acts on a column of groups, and columns that X does not have.
    """
    given = [effects] if isinstance(effects, Kernel) else effects
    if given is not effects or not all(isinstance(each, Effect) for each in given):
        raise ValueError(
            "effects must be a list of effects.Grouped and effects.Linear. "
            f"Found: {[type(each).__name__ for each in given]}."
        )
    if not effects:
        return kernel
    if isinstance(kernel, MultioutputKernel):
        raise ValueError(
            "kernel must have a single output for a model with effects. "
            f"Found: {type(kernel).__name__}."
        )
    inside = [part for part in basic_kernels(kernel) if isinstance(part, Effect)]
    if inside or len({id(each) for each in effects}) < len(effects):
        raise ValueError(
            "effects must hold every effect once, and the kernel none of them. "
            f"Found: {[type(each).__name__ for each in [*inside, *effects]]}."
        )
    whole = Sum([kernel, *effects])
    last = max(column for each in effects for column in each.active_dims)
    D = last + 1 if input_dim is None else input_dim
    if last >= D:
        raise ValueError(f"effects must be of columns of X, from 0 to {D - 1}. Found: {last}.")
    linear = [each for each in effects if not isinstance(each, Grouped)]
    for part in [kernel, *linear]:
        shared = set(columns_of(part, D)) & set(columns_of_groups(whole))
        if shared:
            raise ValueError(
                f"{type(part).__name__} must act on other columns than those of groups: give its "
                "kernels active_dims, such as SquaredExponential(active_dims=[0]). "
                f"Found: {sorted(shared)}."
            )
    return whole


def beside(inducing_variable: InducingVariables, effects: Sequence[Effect]) -> InducingVariables:
    """
    The inducing variables of the GP with the coefficients of all effects.

    :raises ValueError: for effects beside others than points, and without levels.
    """
    if not effects:
        return inducing_variable
    if type(inducing_variable) is not InducingPoints:
        raise ValueError(
            "inducing_variable must be points for a model with effects. "
            f"Found: {type(inducing_variable).__name__}."
        )
    return WithEffects(inducing_variable, sum(len(each.prior_variances) for each in effects))


@covariances.Kuu.register(WithEffects, Sum)
def _covariance_of_u_and_coefficients(
    inducing_variable: WithEffects, kernel: Sum, *, jitter: float = 0.0
) -> tf.Tensor:
    return dense(compact_prior_covariance(inducing_variable, kernel, jitter))[0]


def compact_prior_covariance(
    inducing_variable: WithEffects, kernel: Sum, jitter: float
) -> BlockDiagonal:
    """The covariance of u and all coefficients, [1, M, M], whose last block is of the groups."""
    smooth, effects = _parts(kernel)
    K_ZZ = smooth(inducing_variable.inducing_variable.Z)
    K_ZZ += jitter * tf.eye(tf.shape(K_ZZ)[0], dtype=K_ZZ.dtype)
    linear = [each.prior_variances + jitter for each in effects if not isinstance(each, Grouped)]
    groups = [each.prior_variances + jitter for each in effects if isinstance(each, Grouped)]
    of_linear = tf.concat([*linear, K_ZZ[0, :0]], 0)
    block = dense(BlockDiagonal(K_ZZ[None], of_linear[None]))
    return BlockDiagonal(block, tf.concat([*groups, K_ZZ[0, :0]], 0)[None])


@covariances.Kuf.register(WithEffects, Sum, object)
def _covariance_with_f(inducing_variable: WithEffects, kernel: Sum, X: TensorType) -> tf.Tensor:
    smooth, effects = _parts(kernel)
    of_effects = [_covariance_with_effect(effect, X) for effect in effects]
    return tf.concat([smooth(inducing_variable.inducing_variable.Z, X), *of_effects], 0)


def covariance_with_part(
    inducing_variable: WithEffects, kernel: Sum, X: TensorType, part: Kernel
) -> tf.Tensor:
    """The covariance [M + G, N] of u and all coefficients with a summand of f at X [N, D]."""
    Z, (_, effects) = inducing_variable.inducing_variable.Z, _parts(kernel)
    blocks = [_covariance_with_effect(effect, X) for effect in effects]
    if not isinstance(part, Effect):
        return tf.concat([part(Z, X), *map(tf.zeros_like, blocks)], 0)
    others = [
        block if effect is part else tf.zeros_like(block)
        for effect, block in zip(effects, blocks, strict=True)
    ]
    return tf.concat([tf.zeros([tf.shape(Z)[0], tf.shape(X)[0]], Z.dtype), *others], 0)


def num_of_others(inducing_variable: WithEffects, kernel: Sum) -> int | None:
    """How many of all M + G variables are no effects of the factor with most groups."""
    most = max(map(_num_levels, _parts(kernel)[1]))
    return inducing_variable.shape[0] - most if most else None


def compact_covariance(
    inducing_variable: WithEffects, kernel: Sum, X: TensorType
) -> tuple[tf.Tensor, OneHot]:
    """
    The covariance [1, F, N] of u and the linear effects with f at X, and that of groups' effects.

    There must be some groups.
    """
    smooth, effects = _parts(kernel)
    groups = [effect for effect in effects if isinstance(effect, Grouped)]
    linear = effects[: len(effects) - len(groups)]
    of_linear = [_covariance_with_effect(effect, X) for effect in linear]
    K_FX = tf.concat([smooth(inducing_variable.inducing_variable.Z, X), *of_linear], 0)
    sizes = [len(group._known_levels()) for group in groups]
    M = inducing_variable.shape[0]
    first = M - sum(sizes)
    rows, values = [], []
    for k, group in enumerate(groups):
        x, levels = tf.convert_to_tensor(group.slice(X)[0])[:, 0], group._known_levels()
        rows.append(first + sum(sizes[:k]) + index_of(x, levels))
        values.append(group.variance * tf.cast(are_codes(x, levels), group.variance.dtype))
    return K_FX[None], OneHot(tf.stack(rows), tf.stack(values)[None], M - sizes[-1])


def _covariance_with_effect(effect: Effect, X: TensorType) -> tf.Tensor:
    """Of its coefficients with the effect at X, [G, N]."""
    return effect.prior_variances[:, None] * tf.transpose(effect.features(X))


def columns_of_groups(kernel: Kernel) -> list[int]:
    """The columns of X that hold levels, whose numbers mean nothing."""
    return [column for group in _groups(kernel) for column in group.active_dims]


def known_levels(kernel: Kernel) -> dict[int, AnyNDArray]:
    """What X holds for the levels that were given, by the column of X."""
    groups = [group for group in _groups(kernel) if group.levels is not None]
    return {group.active_dims[0]: codes_of(group.levels) for group in groups}


def _groups(kernel: Kernel) -> list[Grouped]:
    parts = kernel.kernels if isinstance(kernel, Sum) else []
    return [part for part in parts if isinstance(part, Grouped)]


def _parts(kernel: Sum) -> tuple[Kernel, list[Effect]]:
    """The kernel of the GP, and the effects: linear ones, then those of ever more groups."""
    smooth = [part for part in kernel.kernels if not isinstance(part, Effect)]
    effects = [part for part in kernel.kernels if isinstance(part, Effect)]
    effects.sort(key=lambda effect: _num_levels(effect))
    return smooth[0] if len(smooth) == 1 else Sum(smooth), effects


def _num_levels(effect: Effect) -> int:
    """G of groups, and 0 of a linear effect."""
    return len(effect._known_levels()) if isinstance(effect, Grouped) else 0


def _columns(effect: str, name: str, columns: Sequence[int]) -> list[int]:
    found = np.ravel(np.asarray(columns, dtype=object)).tolist()
    are_numbers = all(isinstance(each, int | float | np.number) for each in found)
    if not (are_numbers and found and all(each >= 0 and each == int(each) for each in found)):
        raise ValueError(
            f"{name} of effects.{effect} must be whole numbers from 0 up. Found: {found}."
        )
    if len(set(found)) < len(found):
        raise ValueError(f"{name} of effects.{effect} must be distinct. Found: {found}.")
    return [int(each) for each in found]
