"""How much of what a model has learnt is due to each column of X, and to each part of f."""

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import gpflow
import numpy as np
from gpflow.base import AnyNDArray, TensorType

from ..models import AugmentedModel, of_any_model
from ..predictions.f import some_inputs
from ..predictions.parts import predict_component, summands
from ..validation import check_count, check_index
from .separable import Variances, separable_variances

if TYPE_CHECKING:
    import pandas as pd


def shares(
    model: gpflow.models.GPModel,
    X: TensorType,
    *,
    output: int = 0,
    num_samples: int = 4_096,
    seed: int = 0,
) -> "pd.DataFrame":
    r"""
    Sobol indices: the share of each column of X in the variance of the posterior mean of f.

    Let F be that mean at inputs whose columns are drawn independently, each from its values in X.
    The ``first``-order share of column d is Var E[F|x_d]/Var F, what x_d explains alone. The
    ``total`` share, E Var[F| all other columns]/Var F, adds its interactions. In an additive model
    the two are equal, and sum to 1 over the columns; a ``total`` near 0 says that f does not depend
    on the column::

        print(shares(model, X).sort_values("total", ascending=False))

    Under a kernel that is a sum of products of kernels of one column each, such as
    ``SquaredExponential`` and :class:`~gpflow_aaci.kernels.OrthogonalAdditive`, the shares are
    exact, since averages over independent columns factorise. They are estimated under other
    kernels, with a mean function that is neither constant nor ``Linear``, in float32, for
    several thousand inducing points or summands, and for models other than ``AugmentedSVGP``,
    ``AugmentedVGP`` and GPflow's own two. The estimators are averages over pairs of scrambled Sobol
    points (Saltelli et al. 2010, Computer Physics Communications 181, Table 2 (b) and (f)): another
    ``seed`` shows how good they are.
    Where columns of X are correlated, the independent draws reach inputs far from all data, and the
    shares say what the model has learnt there. They are of f, so that two likelihoods with other
    links may have other shares for the same y.

    :param X: [N, D], such as the training data; the column names of a frame are kept.
    :param output: the column of f.
    :param num_samples: pairs of inputs, rounded up to a power of 2, where shares are not exact. The
        mean of f is evaluated at D + 2 times as many inputs.
    :param seed: the seed for these inputs.
    :return: a frame with a row for every column of X, and the columns ``first`` and ``total``.
    :raises ValueError: for bad arguments, and if the mean of f is the same at all inputs.
    """
    check_count("num_samples", num_samples, 2)
    values = some_inputs(model, X)
    found = separable_variances(model, values, output)
    if found is None:
        found = _estimated_variances(model, values, output, num_samples, seed)
    columns = np.stack([found.of_each_alone, found.given_others], 1) / found.of_all
    return _frame(getattr(X, "columns", range(values.shape[1])), columns, "first", "total")


def _estimated_variances(
    model: gpflow.models.GPModel, X: AnyNDArray, output: int, num_samples: int, seed: int
) -> Variances:
    import scipy.stats.qmc  # here, as it is slow to import

    values = np.sort(X, 0)
    D, power = values.shape[1], int(np.ceil(np.log2(num_samples)))
    points = scipy.stats.qmc.Sobol(2 * D, seed=seed).random_base2(power)
    rows = (points * len(values)).astype(int)  # of the sorted values: uniform on each column
    A, B = (np.take_along_axis(values, half, 0) for half in (rows[:, :D], rows[:, D:]))

    def mean(at: AnyNDArray) -> AnyNDArray:
        F = model.predict_f(at)[0].numpy()
        check_index("output", output, F.shape[1])
        return F[:, output]

    F_A, F_B = mean(A), mean(B)
    both = np.concatenate([F_A, F_B])
    variance, first, total = _checked_variance(both), np.zeros(D), np.zeros(D)
    for d in range(D):
        mixed = A.copy()
        mixed[:, d] = B[:, d]
        F = mean(mixed)
        first[d] = np.mean((F_B - both.mean()) * (F - F_A))
        total[d] = np.mean(np.square(F - F_A)) / 2.0
    return Variances(variance, first, total)


@of_any_model
def shares_of_parts(model: AugmentedModel, X: TensorType, *, output: int = 0) -> "pd.DataFrame":
    r"""
    The share of each part of f in the variance of its posterior mean over the rows of X.

    Let F be the sum of the parts' posterior means F_S: the mean of f, less the mean function. Over
    the rows of X, ``variance`` is Var F_S/Var F, and ``covariance`` is Cov(F_S, F)/Var F, which
    sums to 1. If a part has more variance than covariance, other parts cancel some of it at these
    rows, and the data may not tell them apart::

        print(shares_of_parts(model, X).sort_values("covariance", ascending=False))

    :param model: its kernel is a sum, as for
        :func:`~gpflow_aaci.predictions.predict_component`, which names the parts.
    :param X: [N, D], such as the training data.
    :param output: the column of f.
    :return: a frame with a row for every part, and the columns ``variance`` and ``covariance``.
    :raises ValueError: for bad arguments, kernels without parts, and if F is the same at all rows.
    """
    check_index("output", output, model.num_latent_gps)
    parts, x = summands(model.kernel), some_inputs(model, X)
    F = [predict_component(model, x, part)[0].numpy()[:, output] for part in parts]
    total = np.sum(F, 0)
    variance = _checked_variance(total)
    shared = [np.mean(part * (total - total.mean())) for part in F]
    found = [
        (np.var(part) / variance, each / variance) for part, each in zip(F, shared, strict=True)
    ]
    return _frame(parts, found, "variance", "covariance")


def _checked_variance(F: AnyNDArray) -> Any:
    """
    :raises ValueError: if all F are the same, but for rounding.
    """
    variance = np.var(F)
    if not variance > np.square(100.0 * np.finfo(F.dtype).eps * np.max(np.abs(F))):
        raise ValueError(
            "model must have a posterior mean of f that depends on X; fit it first. "
            f"Found: a variance of {variance:.2g} over X."
        )
    return variance


def _frame(
    names: Iterable[Hashable], found: Sequence[tuple[Any, Any]] | AnyNDArray, *columns: str
) -> "pd.DataFrame":
    import pandas as pd  # here, as it is slow to import

    # A tuple of columns is one name, not one of several levels.
    return pd.DataFrame(found, pd.Index(list(names), tupleize_cols=False), list(columns))
