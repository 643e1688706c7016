"""Which input is refused, with which message and before any change; and odd input that is fine."""

import functools
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from gpflow.base import AnyNDArray
from gpflow.inducing_variables import InducingPoints, SharedIndependentInducingVariables
from gpflow.kernels import (
    LinearCoregionalization,
    Matern32,
    Matern52,
    SeparateIndependent,
    SharedIndependent,
    SquaredExponential,
)

from gpflow_aaci import (
    AlternatingOptimizer,
    AugmentedNaturalGradient,
    AugmentedSVGP,
    AugmentedVGP,
    fit,
    fit_collapsed,
    likelihoods,
    loo,
    polish,
    sample_posterior,
    train,
    update,
)
from gpflow_aaci.contrib import MixtureVGP
from gpflow_aaci.contrib.likelihoods import MultinomialProbit, NoiseMixture
from gpflow_aaci.data.datasets import untuned
from gpflow_aaci.distributions import TiltedDistribution
from gpflow_aaci.likelihoods import augmented, warps
from gpflow_aaci.sklearn import AugmentedGPRegressor

Batch = tuple[AnyNDArray, AnyNDArray]
MakeLikelihood = Callable[[], likelihoods.AugmentedLikelihood]

N, M = 12, 4

# The first are raised eagerly and while tracing. GPflow's check_shapes raises ShapeMismatchError.
EAGER = (ValueError, ShapeMismatchError)
COMPILED = (tf.errors.InvalidArgumentError, *EAGER)


@pytest.fixture(scope="module")
def data() -> Batch:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(N, 2))
    return X, np.sin(2.0 * X[:, :1]) + 0.3 * rng.normal(size=(N, 1))


@pytest.fixture
def labels(data: Batch) -> Batch:
    return data[0], (data[1] > 0).astype(float)


def sparse(data: Batch, likelihood: Any = None, **kwargs: Any) -> AugmentedSVGP:
    model = AugmentedSVGP(
        Matern32(), likelihood or likelihoods.StudentT(), data[0][:M].copy(), **kwargs
    )
    model.q_mu.assign(np.linspace(-1.0, 1.0, M)[:, None])
    return model


@functools.cache
def compiled(model: AugmentedSVGP, entry: str, ranks: tuple[int, ...]) -> Callable[..., Any]:
    """
    The entry, compiled for unknown shapes; it is traced once for all data that one model refuses.
    """
    method = entries(model)[entry]
    spec = tuple(tf.TensorSpec([None] * rank, tf.float64) for rank in ranks)
    # Without AutoGraph, tracing takes half the time.
    return tf.function(lambda X, Y: method((X, Y)), input_signature=spec, autograph=False)


@pytest.fixture(scope="module")
def student_t(data: Batch) -> AugmentedSVGP:
    """A model that tests must not change."""
    return sparse(data)


@pytest.fixture(scope="module", params=[likelihoods.Logistic, likelihoods.BayesianSVM])
def classifier(request: pytest.FixtureRequest, data: Batch) -> AugmentedSVGP:
    """A model of labels that tests must not change."""
    return sparse(data, request.param())


def spoil(values: AnyNDArray, bad: float) -> AnyNDArray:
    """The values with one bad entry."""
    values = values.copy()
    values[len(values) // 2, -1] = bad
    return values


def entries(model: AugmentedSVGP) -> dict[str, Callable[[Any], Any]]:
    """All methods that take training data."""
    return {
        "augmented_elbo": model.augmented_elbo,
        "training_loss": model.training_loss,
        "elbo": model.elbo,
        "augmentation_gap": model.augmentation_gap,
        "minimize": lambda batch: AugmentedNaturalGradient().minimize(model, batch),
    }


def assert_refused(model: AugmentedSVGP, bad: Batch, message: str) -> None:
    """Every entry raises eagerly, and ``elbo`` and ``minimize`` compiled; q does not change."""
    before = model.q_mu.numpy().copy(), model.q_sqrt.numpy().copy()
    for method in entries(model).values():
        with pytest.raises(EAGER, match=message):
            method(bad)
    for entry in ("elbo", "minimize"):
        assert_refused_compiled(model, entry, bad, message)
    np.testing.assert_array_equal(model.q_mu.numpy(), before[0])
    np.testing.assert_array_equal(model.q_sqrt.numpy(), before[1])


def assert_refused_compiled(model: AugmentedSVGP, entry: str, bad: Batch, message: str) -> None:
    step = compiled(model, entry, tuple(np.ndim(part) for part in bad))
    with pytest.raises(COMPILED, match=message):
        step(*bad)


# ---- refused: data ----


@pytest.mark.briefly("X-inf", "Y-nan", "X--inf", "Y--inf", "Y-inf")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", ["X", "Y"])
def test_non_finite_data(data: Batch, student_t: AugmentedSVGP, which: str, bad: float) -> None:
    X, Y = data
    batch = (spoil(X, bad), Y) if which == "X" else (X, spoil(Y, bad))
    assert_refused(student_t, batch, rf"{which} must be finite.*{bad}")


@pytest.mark.parametrize(
    ("values", "shown"),
    [([0, 1, 2], "2"), ([-1, 0, 1], "-1"), ([0.5, 1], "0.5"), ([1, 2], "2"), ([-1, 3], "3")],
)
def test_labels_that_are_none(
    data: Batch, classifier: AugmentedSVGP, values: list[float], shown: str
) -> None:
    """The message shows which values were found and which are accepted."""
    bad = data[0], np.resize(np.array(values, dtype=float), (N, 1))
    message = rf"(?s)\{{0, 1\}} or \{{-1, 1\}}.*Found:.*{shown}"
    assert_refused(classifier, bad, message)


@pytest.mark.briefly("likelihood1")
@pytest.mark.parametrize("likelihood", [likelihoods.Logistic(), likelihoods.BayesianSVM()])
def test_both_codings_of_labels_are_the_same_data(labels: Batch, likelihood: Any) -> None:
    """They are also the same in prediction, and as integers or booleans."""
    X, Y = labels
    codings = [Y, 2.0 * Y - 1.0, Y.astype(int), Y.astype(bool), (2.0 * Y - 1.0).astype(np.int8)]
    bounds, densities = [], []
    for coding in codings:
        model = sparse(labels, likelihood)
        AugmentedNaturalGradient().minimize(model, (X, coding))
        bounds.append(model.augmented_elbo((X, coding)).numpy())
        densities.append(model.predict_log_density((X, coding.astype(float))).numpy())
    np.testing.assert_array_equal(bounds, bounds[0])
    np.testing.assert_allclose(densities[1], densities[0], rtol=1e-12)


def test_a_batch_of_one_class_is_fine(labels: Batch) -> None:
    """A minibatch may well contain only one class, in either coding."""
    for value in (0.0, 1.0, -1.0):
        model = sparse(labels, likelihoods.Logistic())
        AugmentedNaturalGradient().minimize(model, (labels[0], np.full((N, 1), value)))
        side = np.sign(model.predict_f(labels[0])[0].numpy())
        np.testing.assert_array_equal(side, 1.0 if value > 0 else -1.0)


WRONG_SHAPES: dict[str, Callable[[AnyNDArray], AnyNDArray]] = {
    "[N]": lambda Y: Y[:, 0],
    "[N, 2]": lambda Y: np.hstack([Y, Y]),
    "[N-1, 1]": lambda Y: Y[1:],
    "[1, 1]": lambda Y: Y[:1],
    "[1, N]": lambda Y: Y.T,
    "[N, 1, 1]": lambda Y: Y[:, :, None],
}


every_wrong_shape = pytest.mark.parametrize("reshape", WRONG_SHAPES.values(), ids=WRONG_SHAPES)


@every_wrong_shape
def test_y_of_the_wrong_shape(
    data: Batch, student_t: AugmentedSVGP, reshape: Callable[[AnyNDArray], AnyNDArray]
) -> None:
    for method in entries(student_t).values():
        with pytest.raises(EAGER, match=r"Y|shape"):
            method((data[0], reshape(data[1])))


@pytest.mark.parametrize("entry", ["elbo", "minimize"])
@every_wrong_shape
def test_y_of_the_wrong_shape_does_not_broadcast_when_compiled(
    data: Batch,
    student_t: AugmentedSVGP,
    reshape: Callable[[AnyNDArray], AnyNDArray],
    entry: str,
) -> None:
    """The shapes are unknown while tracing, and check_shapes is off."""
    assert_refused_compiled(student_t, entry, (data[0], reshape(data[1])), "Y|shape")


def test_one_dimensional_y_from_a_dataset(data: Batch) -> None:
    """A common mistake: with labels [N] in tf.data and a compiled step, [N, 1] − [N] is [N, N]."""
    model = sparse(data, num_data=N)
    dataset = tf.data.Dataset.from_tensor_slices((data[0], data[1][:, 0]))
    batches = iter(untuned(dataset.repeat().batch(5)))
    step = tf.function(lambda: AugmentedNaturalGradient().minimize(model, batches))
    with pytest.raises(COMPILED, match="Y must"):
        step()


def test_empty_data(data: Batch) -> None:
    assert_refused(sparse(data), (data[0][:0], data[1][:0]), "X must have at least one row")


@pytest.mark.parametrize("columns", [1, 3])
def test_x_and_inducing_points_of_different_dimension(data: Batch, columns: int) -> None:
    X = np.resize(data[0], (N, columns))
    for method in entries(sparse(data)).values():
        with pytest.raises(ValueError, match=f"X must have as many columns.*2.*Found: {columns}"):
            method((X, data[1]))


def test_x_of_one_column_does_not_broadcast_when_compiled(data: Batch) -> None:
    """Divided by two lengthscales, one column of X would silently become two."""
    model = sparse(data)
    model.kernel = Matern32(lengthscales=[1.0, 1.0])
    assert_refused_compiled(model, "minimize", (data[0][:, :1], data[1]), "X must have as many")


def not_real(X: AnyNDArray, Y: AnyNDArray) -> dict[str, tuple[Any, Any, str]]:
    """Data that TensorFlow would convert to other numbers, or refuse with an obscure message."""
    days = np.datetime64("2020-01-01") + np.arange(N)[:, None].astype("timedelta64[D]")
    mixed = pd.DataFrame({"size": X[:, 0], "kind": ["a", "b"] * (N // 2)})
    missing = pd.DataFrame({"size": X[:, 0], "count": pd.array([None, *range(N - 1)], "Int64")})
    grades = pd.Series(["low", "high"] * (N // 2), dtype="category")
    return {
        "masked Y": (X, np.ma.masked_array(Y, mask=Y > 0.5), "^Y must have no masked values.*mask"),
        "masked X": (np.ma.masked_less(X, 0.0), Y, "^X must have no masked values.*masked"),
        "complex Y": (X, Y + 1j, "^Y must be real numbers.*Found: complex128"),
        "complex tensor": (X, tf.constant(Y + 1j), "^Y must be real numbers.*complex128"),
        "strings": (X, np.where(Y > 0.0, "yes", "no"), "^Y must be real numbers.*strings, such as"),
        "string tensor": (X, tf.as_string(Y), "^Y must be real numbers.*tensor of strings"),
        "categories": (X, grades, "^column .* of Y must be real numbers.*'low'"),
        "mixed columns": (mixed, Y, "^column 'kind' of X must be real numbers.*'a' of type str"),
        "missing in a column": (missing, Y, "^column 'count' of X must have no missing values"),
        "None": (X, [[None], *Y[1:].tolist()], "^Y must have no missing values.*Found: 1"),
        "dates": (np.hstack([days, days]), Y, "^X must be real numbers.*dates or times, such as"),
        "vector Y": (X, Y[:, 0], r"^Y must be a matrix.*Y\[:, None\]"),
        "vector X": (X[:, 0], Y, r"^X must be a matrix.*X\[:, None\]"),
    }


@pytest.mark.briefly("vector X", "complex Y", "string tensor", "None", "dates", "strings")
@pytest.mark.parametrize("which", not_real(np.ones((N, 2)), np.ones((N, 1))))
def test_what_is_no_matrix_of_real_numbers_is_named_in_a_line(
    data: Batch, student_t: AugmentedSVGP, which: str
) -> None:
    """
    All functions that take data name it, without a traceback of TensorFlow.

    This includes constructors of models that keep their data, and predictions.
    """
    *bad, message = not_real(*data)[which]
    X, Y = bad
    doors: list[Callable[[], Any]] = [
        lambda: student_t.elbo((X, Y)),
        lambda: student_t.training_loss_closure((X, Y)),
        lambda: student_t.predict_log_density((X, Y)),
        lambda: AugmentedVGP((X, Y), Matern32(), likelihoods.StudentT()),
        lambda: MixtureVGP((X, Y), Matern32(), likelihoods.StudentT()),
        *(lambda f=f: f(student_t, (X, Y)) for f in (fit, fit_collapsed, polish, train, update)),
        lambda: loo(student_t, (X, Y)),
    ]
    for door in doors:
        with pytest.raises(ValueError, match=message) as raised:
            door()
        assert str(raised.value).count("\n") < 3
    if "X must" in message or "of X" in message:
        for predict in (student_t.predict_f, student_t.predict_y):
            with pytest.raises(ValueError, match=message.replace("X", "Xnew")):
                predict(X)


def test_objects_that_are_all_numbers_are_numbers(data: Batch, student_t: AugmentedSVGP) -> None:
    """Masked arrays without masked entries and frames of mixed number types are accepted, too."""
    X, Y = data
    X = np.stack([X[:, 0], X[:, 1] > 0.0], 1)
    frame = pd.DataFrame({"a": X[:, 0].astype(object), "b": X[:, 1].astype(bool)})
    expected = float(student_t.elbo((X, Y)))
    for same in (
        (X.astype(object), Y.astype(object)),
        (frame, pd.Series(Y[:, 0], dtype="Float64")),
        (np.ma.masked_array(X, mask=False), np.ma.masked_array(Y)),
    ):
        assert float(student_t.elbo(same)) == expected
        means = [student_t.predict_f(inputs)[0].numpy() for inputs in (same[0], X)]
        np.testing.assert_array_equal(*means)


def test_vectors_of_labels_from_a_dataset_are_refused_before_any_trace(data: Batch) -> None:
    labels = tf.data.Dataset.from_tensor_slices((data[0], data[1][:, 0])).batch(5)
    model = sparse(data, num_data=N)
    for door in (
        lambda: train(model, labels.repeat(), num_steps=2, progress=False),
        lambda: AlternatingOptimizer().minimize(model, iter(labels)),
        lambda: fit(model, labels, progress=False),
    ):
        with pytest.raises(ValueError, match=r"^Y must be a matrix.*Y\[:, None\]"):
            door()
    unbatched = labels.unbatch()
    with pytest.raises(ValueError, match=r"dataset of batches.*batch\(100\)"):
        train(model, unbatched, num_steps=2, progress=False)


@pytest.mark.slow
def test_nan_in_a_later_minibatch_is_said_in_a_line(data: Batch) -> None:
    bad = tf.data.Dataset.from_tensor_slices((data[0], spoil(data[1], np.nan))).batch(4)
    with pytest.raises(
        RuntimeError, match=r"step 2 failed.*Y must be finite\. Found: nan"
    ) as raised:
        train(sparse(data, num_data=N), bad, num_steps=3, progress=False)
    assert "\n" not in str(raised.value)


FAR_FITS: dict[str, Callable[..., Any]] = {
    "fit": fit,
    "fit_collapsed": fit_collapsed,
    "polish": polish,
    "predictive": functools.partial(fit, objective="predictive"),
}


@pytest.mark.briefly("polish-1000000.0")
@pytest.mark.by_default("fit_collapsed-1000000.0", "polish-1000000.0")
@pytest.mark.parametrize("offset", [1e6, 1e7, 1e9])
@pytest.mark.parametrize("how", FAR_FITS)
def test_inputs_far_from_zero_are_named_before_anything_changes(how: str, offset: float) -> None:
    """Squared distances of such inputs lose precision, and a fit would end in NaN."""
    rng = np.random.default_rng(0)
    X = np.hstack([np.ones((60, 1)), offset + rng.uniform(0.0, 10.0, (60, 1))])
    far = X, np.sin(X[:, 1:] - offset) + 0.2 * rng.standard_t(3, size=(60, 1))
    model = AugmentedSVGP(SquaredExponential(), gpflow.likelihoods.StudentT(), X[:10].copy())
    before = [variable.numpy() for variable in model.variables]
    message = r"finite at the start. Column 1 of X has mean 1.*e\+0.*Subtract the means"
    with pytest.raises(ValueError, match=message):
        FAR_FITS[how](model, far, progress=False)
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_a_fit_that_cannot_begin_for_another_reason_names_that(data: Batch) -> None:
    model = sparse(data)
    model.kernel.variance.unconstrained_variable.assign(np.nan)
    with pytest.raises(ValueError, match=r"finite at the start.*not finite: kernel\.variance"):
        polish(model, data, progress=False)


CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "Softmax": lambda: likelihoods.Softmax(3),
    "LogisticSoftmax": lambda: likelihoods.LogisticSoftmax(3),
    "LogisticTree": lambda: likelihoods.LogisticTree(3),
    "MultinomialProbit": lambda: MultinomialProbit(3),
    "GPflow's MultiClass": lambda: gpflow.likelihoods.MultiClass(3),
    "GPflow's Softmax": lambda: gpflow.likelihoods.Softmax(3),
    "Ordinal": lambda: likelihoods.Ordinal([-1.0, 1.0]),
    "Weighted": lambda: likelihoods.Weighted(likelihoods.Softmax(3)),
    "Logistic": likelihoods.Logistic,
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_of_one_hot_or_soft_labels_it_is_said_how_they_are_given(data: Batch, name: str) -> None:
    likelihood = CLASSIFIERS[name]()
    L, K = likelihood.latent_dim or 1, 2 if name == "Logistic" else 3
    Y = 0.9 * np.eye(K)[np.arange(N) % K] + 0.1 / K
    numbers = "0 or 1" if K == 2 else "0 to 2"
    message = rf"number of a label, {numbers}, in one column.*\.Weighted\. Found: \[12 +{K}\]"
    svgp = AugmentedSVGP(Matern32(), likelihood, data[0][:M].copy(), num_latent_gps=L, num_data=N)
    for make in (
        lambda: svgp.elbo((data[0], Y)),
        lambda: fit(svgp, (data[0], Y), progress=False),
        lambda: AugmentedVGP((data[0], Y), Matern32(), likelihood, num_latent_gps=L),
        lambda: MixtureVGP((data[0], Y), Matern32(), augmented(likelihood), num_latent_gps=L),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_y_that_is_predicted_by_itself_says_so_in_the_user_s_words(data: Batch) -> None:
    """GPflow's error would name a class that no user knows."""
    for model in (
        sparse(data),
        AugmentedVGP(data, Matern32(), likelihoods.StudentT()),
        MixtureVGP(data, Matern32(), likelihoods.StudentT()),
    ):
        for name in ("full_cov", "full_output_cov"):
            for call, given in (("predict_y", data[0]), ("predict_log_density", data)):
                message = f"^{call}: {name} must be False.*predict_y_samples.*Found: True"
                with pytest.raises(NotImplementedError, match=message):
                    getattr(model, call)(given, **{name: True})


# ---- refused: models ----


class Odd:
    """Is accepted nowhere."""


ODD: dict[str, Callable[[], Any]] = {
    "base": lambda: likelihoods.ZeroInflated(Odd()),
    "components": lambda: NoiseMixture([Odd()]),
    "function of X": lambda: likelihoods.StudentT(gpflow.functions.Linear()),
    "step_size": lambda: AlternatingOptimizer(Odd()),
    "count": lambda: likelihoods.Softmax(Odd()),
    "one of": lambda: likelihoods.Interval(Odd()),
    "sampler": lambda: sample_posterior(None, sampler=Odd()),
    "log_phi": lambda: TiltedDistribution(Odd(), 1.0),
    "kernel": lambda: AugmentedGPRegressor(kernel=Odd()).fit(np.ones((9, 1)), np.ones(9)),
    "in a list": lambda: likelihoods.Softmax([lambda: 0, Odd()]),
}


@pytest.mark.parametrize("argument", ODD)
def test_an_object_that_is_refused_is_called_by_its_class(argument: str) -> None:
    """Its address would say nothing."""
    with pytest.raises(ValueError, match="must be") as raised:
        ODD[argument]()
    found = str(raised.value).split("Found: ")[1]
    assert "Odd" in found or "gpflow.functions.Linear" in found
    assert " at 0x" not in found


def test_the_likelihood_is_named_before_what_else_is_wrong(data: Batch) -> None:
    """Another likelihood may need other arguments as well, so its error must come first."""
    vector = data[0], data[1][:, 0]
    kernel = SharedIndependent(Matern32(), 3)
    random = type("Random", (gpflow.likelihoods.Softmax,), {})(3)
    for make in (
        lambda: AugmentedSVGP(kernel, random, data[0][:M], q_diag=True),
        lambda: AugmentedVGP(vector, kernel, random),
        lambda: MixtureVGP(vector, kernel, random, expectations="augmented"),
    ):
        with pytest.raises(ValueError, match=r"likelihood.*Random"):
            make()


def test_diagonal_q_that_is_not_whitened(data: Batch) -> None:
    with pytest.raises(ValueError, match=r"whiten must be True if q_diag is True"):
        sparse(data, q_diag=True, whiten=False)


def test_diagonal_q_sqrt(data: Batch) -> None:
    """q_sqrt [M, P] is a diagonal, which GPflow accepts only with q_diag=True."""
    with pytest.raises(EAGER):
        sparse(data, q_sqrt=np.ones((M, 1)))


def test_kernel_of_another_number_of_latent_gps(data: Batch) -> None:
    kernel = LinearCoregionalization([Matern32(), Matern32()], W=np.ones((3, 2)))
    inducing = SharedIndependentInducingVariables(InducingPoints(data[0][:M]))
    with pytest.raises(ValueError, match=r"num_latent_gps must be 2, .* kernel. Found: 3"):
        AugmentedSVGP(kernel, likelihoods.Laplace(), inducing, num_latent_gps=3)


@pytest.mark.parametrize("num_latent_gps", [1, 4])
def test_likelihood_of_another_number_of_latent_gps(data: Batch, num_latent_gps: int) -> None:
    for likelihood, right in (
        (likelihoods.LogisticSoftmax(3), 3),
        (likelihoods.Heteroscedastic(likelihoods.Gaussian()), 2),
        (likelihoods.Binomial(), 1),
        (likelihoods.MultivariateStudentT(1.0, 3.0, 2), 2),
    ):
        if right == num_latent_gps:
            continue
        message = f"num_latent_gps must be {right} for {type(likelihood).__name__}. Found: "
        with pytest.raises(ValueError, match=f"{message}{num_latent_gps}"):
            AugmentedSVGP(Matern32(), likelihood, data[0][:M], num_latent_gps=num_latent_gps)


@pytest.mark.by_default("Binomial-[3.0", "Warped")
@pytest.mark.parametrize(
    ("likelihood", "y", "message"),
    [
        (likelihoods.NegativeBinomial(), [-1.0], "whole numbers from 0 up.*-1"),
        (likelihoods.Poisson(), [2.5], r"whole numbers from 0 up.*2\.5"),
        (likelihoods.Binomial(4), [5.0], "from 0 to total_count = 4.*5"),
        (likelihoods.Binomial(), [3.0, 2.0], "from 0 to the number of trials.*3"),
        (likelihoods.LogisticSoftmax(3), [3.0], "labels from 0 to num_classes - 1 = 2.*3"),
        (likelihoods.LogisticSoftmax(3), [-1.0], "labels from 0.*-1"),
        (likelihoods.LogisticSoftmax(3), [0.5], r"labels from 0.*0\.5"),
        (likelihoods.Warped(likelihoods.Laplace(), warps.Log()), [0.0], "positive.*warp Log.*0"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, gpflow.Module) else str(value),
)
def test_observations_that_a_likelihood_does_not_know(
    data: Batch, likelihood: likelihoods.AugmentedLikelihood, y: list[float], message: str
) -> None:
    Y = np.tile(np.ones(len(y)), (N, 1))
    Y[3] = y
    L = likelihood.latent_dim or 1
    model = AugmentedSVGP(Matern32(), likelihood, data[0][:M], num_latent_gps=L, num_data=N)
    assert_refused(model, (data[0], Y), message)


@pytest.mark.parametrize(
    "make",
    [
        lambda: likelihoods.Binomial(0),
        lambda: likelihoods.Binomial(2.5),
        lambda: likelihoods.LogisticSoftmax(1),
        lambda: likelihoods.NegativeBinomial(-1.0),
        lambda: likelihoods.Poisson(0.0),
        lambda: likelihoods.Heteroscedastic(likelihoods.Gaussian(), np.nan),
        lambda: likelihoods.Heteroscedastic(gpflow.likelihoods.Gaussian()),
        lambda: likelihoods.MultivariateStudentT(-1.0, 3.0, 2),
        lambda: likelihoods.MultivariateStudentT(1.0, np.inf, 2),
        lambda: likelihoods.MultivariateStudentT(1.0, 3.0, 0),
        lambda: likelihoods.MultivariateStudentT(1.0, 3.0, 2.5),
        lambda: likelihoods.Warped(likelihoods.Logistic(), warps.Log()),
        lambda: likelihoods.Warped(likelihoods.Laplace(), np.log),
        lambda: warps.BoxCox(np.inf),
        lambda: warps.Tanh(0),
        lambda: warps.Tanh(2, a=[1.0, -1.0]),
        lambda: warps.Tanh(2, b=[1.0]),
    ],
)
def test_parameters_of_likelihoods_that_are_none(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"must be.*Found"):
        make()


@pytest.mark.briefly("kernel0")
@pytest.mark.parametrize(
    "kernel", [SharedIndependent(Matern32(), 2), SeparateIndependent([Matern32(), Matern52()])]
)
def test_plain_inducing_points_are_shared_under_a_multi_output_kernel(
    data: Batch, kernel: Any
) -> None:
    X, Y = data[0], np.hstack([data[1], -data[1]])
    Z = X[:M].copy()
    shared = SharedIndependentInducingVariables(InducingPoints(Z))
    models = [
        AugmentedSVGP(kernel, likelihoods.Laplace(), points, num_latent_gps=2, num_data=len(X))
        for points in (shared, InducingPoints(Z), Z)
    ]
    for model in models:
        AugmentedNaturalGradient(0.5).minimize(model, (X, Y))
    for model in models[1:]:
        assert float(model.elbo((X, Y))) == float(models[0].elbo((X, Y)))
        np.testing.assert_allclose(model.predict_f(X), models[0].predict_f(X), rtol=1e-12)


def test_inducing_patches_under_a_multi_output_kernel_are_refused() -> None:
    patches = gpflow.inducing_variables.InducingPatches(np.zeros([M, 4]))
    with pytest.raises(ValueError, match=r"inducing_variable must be points.*InducingPatches"):
        AugmentedSVGP(
            SharedIndependent(Matern32(), 2), likelihoods.Laplace(), patches, num_latent_gps=2
        )


@pytest.mark.parametrize(
    "kernel", [SharedIndependent(Matern32(), 1), SeparateIndependent([Matern32()])]
)
def test_gpflows_vgp_with_a_multioutput_kernel(data: Batch, kernel: Any) -> None:
    """The message says which model takes such a kernel."""
    model = gpflow.models.VGP(data, kernel, gpflow.likelihoods.StudentT())
    with pytest.raises(ValueError, match=r"kernel.*AugmentedVGP.*Independent"):
        fit(model, progress=False)


def bad_vgp_data(data: Batch) -> dict[str, tuple[Batch, str]]:
    X, Y = data
    return {
        "NaN in X": ((spoil(X, np.nan), Y), "X must be finite.*nan"),
        "inf in Y": ((X, spoil(Y, np.inf)), "Y must be finite.*inf"),
        "empty": ((X[:0], Y[:0]), "at least one row"),
        "Y [N]": ((X, Y[:, 0]), "Y|shape"),
        "Y [N-1, 1]": ((X, Y[1:]), "Y|shape"),
        "no labels": ((X, 3.0 * (Y > 0)), "labels.*Found.*3"),
    }


@pytest.mark.parametrize("which", bad_vgp_data((np.ones((4, 2)), np.ones((4, 1)))))
def test_vgp_refuses_bad_data_when_it_is_made(data: Batch, which: str) -> None:
    bad, message = bad_vgp_data(data)[which]
    with pytest.raises(EAGER, match=f"(?s){message}"):
        AugmentedVGP(bad, Matern32(), likelihoods.Logistic())


# ---- fine ----


def assert_trains(model: Any, *args: Any) -> None:
    """The bound rises at every step; the bound, q and the predictions are finite at the end."""
    elbos = [float(model.augmented_elbo(*args))]
    for _ in range(10):
        AugmentedNaturalGradient().minimize(model, *args)
        elbos.append(float(model.augmented_elbo(*args)))
    assert np.all(np.isfinite(elbos))
    assert np.all(np.diff(elbos) >= -1e-7 * np.abs(elbos[1:]))
    assert elbos[-1] > elbos[0]
    X_new = np.array([[0.1, 0.2], [3.0, -3.0]])
    for value in (*model.predict_f(X_new), model.q_mu, model.q_sqrt):
        assert np.all(np.isfinite(value))
    mean, variance = model.predict_y(X_new)
    assert np.all(np.isfinite(mean))
    assert np.all(variance > 0)


@pytest.mark.by_default("StudentT-1.0")
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_constant_y(data: Batch, make_likelihood: MakeLikelihood, value: float) -> None:
    constant = data[0], np.full((N, 1), value)
    assert_trains(sparse(data, make_likelihood()), constant)
    assert_trains(AugmentedVGP(constant, Matern32(), make_likelihood()))


@pytest.mark.slow
def test_duplicated_inducing_points(data: Batch) -> None:
    """Training works with GPflow's default jitter, whitened or not."""
    Z = np.repeat(data[0][:2], 3, axis=0)
    for whiten in (True, False):
        model = AugmentedSVGP(SquaredExponential(), likelihoods.Laplace(), Z, whiten=whiten)
        assert_trains(model, data)


def test_duplicated_inputs(data: Batch) -> None:
    X = np.repeat(data[0][:4], 3, axis=0)
    assert_trains(AugmentedVGP((X, data[1]), SquaredExponential(), likelihoods.Laplace()))


@pytest.mark.briefly("Probit")
@pytest.mark.by_default("StudentT", "Probit")
def test_lengthscale_of_a_million(
    data: Batch, make_likelihood: MakeLikelihood, observe: Any
) -> None:
    """All entries of the kernel matrix are equal, and f is constant."""
    likelihood = make_likelihood()
    batch = data[0], observe(likelihood, data[0], 1)
    kernel = SquaredExponential(lengthscales=1e6)
    model = AugmentedSVGP(kernel, likelihood, data[0][:M].copy())
    assert_trains(model, batch)
    assert np.ptp(model.predict_f(data[0])[0]) < 1e-3


def steps(count: int, model: AugmentedVGP | AugmentedSVGP, *args: Batch) -> None:
    step = tf.function(lambda: AugmentedNaturalGradient().minimize(model, *args), autograph=False)
    for _ in range(count):
        step()


@pytest.mark.slow
def test_residuals_of_exactly_zero_under_laplace(data: Batch) -> None:
    """If f = y with almost no variance, the site's precision is large but not infinite."""
    zeros = data[0], np.zeros((N, 1))
    for model, args in (
        (AugmentedVGP(zeros, Matern32(), likelihoods.Laplace(1e-3)), ()),
        (AugmentedSVGP(Matern32(1e-12), likelihoods.Laplace(1e-3), data[0].copy()), (zeros,)),
    ):
        model.q_sqrt.assign(1e-12 * np.eye(N)[None])
        steps(60, model, *args)
        np.testing.assert_array_equal(model.predict_f(data[0])[0], 0.0)
        assert np.isfinite(model.augmented_elbo(*args))
        assert np.all(np.isfinite(model.q_sqrt))


@pytest.mark.briefly("Logistic")
@pytest.mark.applies_to(  # ``Probit`` has no h
    "make_likelihood", lambda make: not isinstance(make(), likelihoods.Probit)
)
def test_h_of_exactly_zero(make_likelihood: MakeLikelihood) -> None:
    """A linear kernel knows f at 0 exactly, where derivatives of √r are infinite."""
    likelihood, X, Y = make_likelihood(), np.array([[0.0], [1.0]]), np.ones((2, 1))
    certain = 0.0 if isinstance(likelihood, likelihoods.Logistic) else 1.0
    mean_function = gpflow.functions.Constant(certain)
    model = AugmentedSVGP(
        gpflow.kernels.Linear(), likelihood, np.ones((1, 1)), mean_function=mean_function
    )
    Fmu, Fvar = model.predict_f(X[:1])
    assert float(likelihood.expected_h_squared(Fmu, Fvar, tf.constant(Y[:1]))) == 0.0
    for _ in range(3):
        with tf.GradientTape() as tape:
            bound = model.augmented_elbo((X, Y))
        assert np.isfinite(bound)
        for gradient in tape.gradient(bound, model.trainable_variables):
            assert np.all(np.isfinite(tf.convert_to_tensor(gradient)))
        AugmentedNaturalGradient().minimize(model, (X, Y))
        assert float(model.augmented_elbo((X, Y))) >= float(bound) - 1e-9


@pytest.mark.slow
def test_an_observation_of_1e12_under_student_t(data: Batch) -> None:
    """Everything is finite, and predictions elsewhere hardly change."""
    X, Y = data
    outlier = X, spoil(Y, 1e12)
    without = np.delete(X, N // 2, axis=0), np.delete(Y, N // 2, axis=0)
    predictions = []
    for batch in (outlier, without):
        model = AugmentedVGP(batch, Matern32(), likelihoods.StudentT(0.5))
        steps(40, model)
        assert np.isfinite(model.augmented_elbo())
        predictions.append(model.predict_f(X))
    np.testing.assert_allclose(predictions[0][0], predictions[1][0], atol=1e-5)
    np.testing.assert_allclose(predictions[0][1], predictions[1][1], atol=1e-5)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_extreme_units_of_y(data: Batch, scale: float) -> None:
    """Squares of the data are close to the largest or the smallest floating-point numbers."""
    model = AugmentedVGP((data[0], scale * data[1]), Matern32(), likelihoods.StudentT())
    AugmentedNaturalGradient().minimize(model)
    assert np.isfinite(model.augmented_elbo())
