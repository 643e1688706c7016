"""GPflow's own likelihoods converted into ours, and arguments that constructors refuse."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.special
import tensorflow as tf
import tensorflow_probability as tfp
from cases import AUGMENTED, Case, case_id, column
from gpflow.likelihoods.utils import inv_probit

from gpflow_aaci import AugmentedSVGP, fit, likelihoods
from gpflow_aaci.likelihoods import augmented

Stock = gpflow.likelihoods.Likelihood


def exact_probit(f: tf.Tensor) -> tf.Tensor:
    """Φ(f), which GPflow's ``inv_probit`` maps into [0.001, 0.999]."""
    return 0.5 * tf.math.erfc(-f / np.sqrt(2.0))


STOCK: dict[str, Callable[[], Stock]] = {
    "StudentT": lambda: gpflow.likelihoods.StudentT(scale=0.6, df=4.3),
    "Gaussian-variance": lambda: gpflow.likelihoods.Gaussian(0.49),
    "Gaussian-scale": lambda: gpflow.likelihoods.Gaussian(scale=1.7),
    "Bernoulli-sigmoid": lambda: gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid),
    "Bernoulli-probit": lambda: gpflow.likelihoods.Bernoulli(invlink=exact_probit),
}
every_stock = pytest.mark.parametrize("name", STOCK)


def linear() -> gpflow.functions.Function:
    return gpflow.functions.Linear(A=np.ones([1, 1]), b=np.ones([1]))


OF_X: dict[str, Callable[[], Stock]] = {
    "StudentT": lambda: gpflow.likelihoods.StudentT(scale=linear(), df=5.0),
    "Gaussian-variance": lambda: gpflow.likelihoods.Gaussian(linear()),
    "Gaussian-scale": lambda: gpflow.likelihoods.Gaussian(scale=linear()),
}
SWITCHED: dict[str, Callable[[], Stock]] = {
    "SwitchedLikelihood": lambda: gpflow.likelihoods.SwitchedLikelihood(
        [make() for make in STOCK.values()]
    ),
}
CONVERTIBLE = STOCK | OF_X | SWITCHED


def data(likelihood: Stock) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """X, F and Y."""
    F = column(0.3, -1.2, 2.0, 0.0)
    binary = isinstance(likelihood, gpflow.likelihoods.Bernoulli)
    return tf.zeros_like(F), F, column(0, 1, 0, 1) if binary else column(0.5, -3.0, 2.0, 7.0)


# ---- conversion ----


@pytest.mark.parametrize("case", AUGMENTED, ids=case_id)
def test_an_augmented_likelihood_is_returned_itself(case: Case) -> None:
    likelihood = case.make()
    assert augmented(likelihood) is likelihood


@pytest.mark.parametrize("name", CONVERTIBLE)
def test_converted_shares_the_parameters(name: str) -> None:
    """The converted likelihood has the same Parameter objects at the same paths, and no others."""
    stock = CONVERTIBLE[name]()
    parameters = gpflow.utilities.parameter_dict(stock)
    ours = gpflow.utilities.parameter_dict(augmented(stock))
    assert list(ours) == list(parameters)
    assert all(ours[key] is parameters[key] for key in parameters)


@every_stock
def test_converted_has_the_same_log_prob(name: str) -> None:
    """This holds before and after the user assigns to a parameter of the stock object."""
    stock = STOCK[name]()
    converted = augmented(stock)
    X, F, Y = data(stock)
    np.testing.assert_allclose(converted.log_prob(X, F, Y), stock.log_prob(X, F, Y), rtol=1e-12)
    for parameter in stock.parameters:
        parameter.assign(0.123)
    np.testing.assert_allclose(converted.log_prob(X, F, Y), stock.log_prob(X, F, Y), rtol=1e-12)


def test_converted_student_t_keeps_df_fixed() -> None:
    """GPflow's df is fixed; in our own class it is learnt."""
    stock = gpflow.likelihoods.StudentT(scale=0.6, df=4.3)
    converted = augmented(stock)
    assert isinstance(converted, likelihoods.StudentT)
    assert converted.df == 4.3
    assert [p is stock.scale for p in converted.trainable_parameters] == [True]
    assert len(likelihoods.StudentT(0.6, 4.3).trainable_parameters) == 2


def test_converted_keeps_a_parameter_fixed() -> None:
    stock = gpflow.likelihoods.StudentT(scale=0.6)
    gpflow.set_trainable(stock.scale, False)
    assert augmented(stock).trainable_parameters == ()


@every_stock
def test_converted_keeps_the_quadrature(name: str) -> None:
    """A user who has asked for more nodes gets them."""
    stock = STOCK[name]()
    stock.quadrature = gpflow.quadrature.NDiagGHQuadrature(1, 77)
    assert augmented(stock).quadrature is stock.quadrature


@pytest.mark.parametrize(
    "invlink",
    [tf.sigmoid, tf.nn.sigmoid, lambda f: 1.0 / (1.0 + tf.exp(-f)), lambda f: tf.sigmoid(f)],
    ids=["tf.sigmoid", "tf.nn.sigmoid", "lambda-exp", "lambda-sigmoid"],
)
def test_sigmoid_bernoulli_is_logistic(invlink: Callable[[tf.Tensor], tf.Tensor]) -> None:
    """The link is recognised by its values, so a user's own lambda works."""
    assert type(augmented(gpflow.likelihoods.Bernoulli(invlink=invlink))) is likelihoods.Logistic


@pytest.mark.parametrize(
    "invlink",
    [
        inv_probit,
        exact_probit,
        lambda f: tfp.distributions.Normal(tf.zeros_like(f), 1.0).cdf(f),
        lambda f: 0.5 * (1.0 + tf.math.erf(f / np.sqrt(2.0))),
    ],
    ids=["GPflow's", "erfc", "Normal", "erf"],
)
def test_probit_bernoulli_is_probit(invlink: Callable[[tf.Tensor], tf.Tensor]) -> None:
    """The link is recognised by its values, with GPflow's jitter or without; ours has none."""
    assert type(augmented(gpflow.likelihoods.Bernoulli(invlink=invlink))) is likelihoods.Probit


class Sloped(tf.Module):
    """σ(slope f), with a slope that is 1 at first."""

    def __init__(self, trainable: bool) -> None:
        super().__init__()
        self.slope = gpflow.Parameter(1.0, trainable=trainable)

    def __call__(self, f: tf.Tensor) -> tf.Tensor:
        return tf.sigmoid(self.slope * f)


@pytest.mark.parametrize("trainable", [True, False])
def test_a_parameter_inside_a_link_is_kept_though_the_link_begins_at_the_sigmoid(
    trainable: bool,
) -> None:
    link = Sloped(trainable)
    found = augmented(gpflow.likelihoods.Bernoulli(invlink=link))
    assert not isinstance(found, likelihoods.Logistic)
    assert any(parameter is link.slope for parameter in found.parameters)
    F, Y = column(-1.0, 0.3, 2.0), column(0.0, 1.0, 1.0)
    link.slope.assign(3.0)
    expected = scipy.special.log_expit(3.0 * (2.0 * Y - 1.0) * F)[:, 0]
    np.testing.assert_allclose(found.log_prob(F, F, Y), expected, rtol=1e-9)


def test_a_link_that_reads_a_variable_of_its_surroundings_is_not_the_sigmoid() -> None:
    slope = gpflow.Parameter(1.0)
    stock = gpflow.likelihoods.Bernoulli(invlink=lambda f: tf.sigmoid(slope * f))
    assert not isinstance(augmented(stock), likelihoods.Logistic)


def test_the_jitter_of_gpflows_probit_is_dropped() -> None:
    """This changes probabilities by at most 0.001."""
    stock, F = gpflow.likelihoods.Bernoulli(), column(-9.0, -1.0, 0.3, 40.0)
    ours = augmented(stock)
    p = ours.conditional_mean(tf.zeros_like(F), F)
    np.testing.assert_allclose(p, stock.conditional_mean(tf.zeros_like(F), F), atol=1e-3)
    np.testing.assert_allclose(p, scipy.special.ndtr(F), rtol=1e-12)


class OwnStudentT(gpflow.likelihoods.StudentT):
    """A subclass may have overridden anything."""


class OwnGaussian(gpflow.likelihoods.Gaussian):
    """A subclass may have overridden anything."""


class OwnBernoulli(gpflow.likelihoods.Bernoulli):
    """A subclass may have overridden anything."""


@pytest.mark.parametrize(
    "stock",
    [
        gpflow.likelihoods.Bernoulli(invlink=lambda f: 1.0 - tf.exp(-tf.exp(f))),
        gpflow.likelihoods.Bernoulli(invlink=lambda f: inv_probit(1.0001 * f)),
        gpflow.likelihoods.Bernoulli(invlink=lambda f: tf.sigmoid(2.0 * f)),
        gpflow.likelihoods.Bernoulli(invlink=lambda f: tf.sigmoid(1.0001 * f)),
        gpflow.likelihoods.Bernoulli(invlink=np.linalg.inv),
        gpflow.likelihoods.Poisson(),
        gpflow.likelihoods.Beta(),
        OwnStudentT(),
        OwnGaussian(),
        OwnBernoulli(invlink=tf.sigmoid),
    ],
    ids=[
        "cloglog",
        "nearly-probit",
        "steep-sigmoid",
        "nearly-sigmoid",
        "not-elementwise",
        "Poisson",
        "Beta",
        "own-StudentT",
        "own-Gaussian",
        "own-Bernoulli",
    ],
)
def test_what_has_no_augmentation_stays_as_it_is(stock: Stock) -> None:
    """Also a link that is nearly one of those that have an augmentation, and a subclass."""
    found = augmented(stock)
    assert not found.is_augmented
    assert isinstance(found, type(stock))
    assert {id(p) for p in found.parameters} == {id(p) for p in stock.parameters}
    assert not isinstance(stock, likelihoods.AugmentedLikelihood)  # the user's object is unchanged


@pytest.mark.parametrize("name", OF_X)
def test_noise_that_depends_on_x_is_gpflows(name: str) -> None:
    """Densities and moments agree, and only the user's own Parameters are trainable."""
    stock = OF_X[name]()
    converted = augmented(stock)
    F, Y = column(0.3, -1.2, 2.0, 0.0), column(0.5, -3.0, 2.0, 7.0)
    X = column(0.0, 0.5, 2.0, 1.0)
    np.testing.assert_allclose(converted.log_prob(X, F, Y), stock.log_prob(X, F, Y), rtol=1e-12)
    moments = zip(
        converted.predict_mean_and_var(X, F, tf.ones_like(F)),
        stock.predict_mean_and_var(X, F, tf.ones_like(F)),
        strict=True,
    )
    for found, expected in moments:
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-12)
    theirs = {id(parameter) for parameter in stock.trainable_parameters}
    assert {id(parameter) for parameter in converted.trainable_parameters} == theirs


def test_noise_that_depends_on_x_is_assigned_to_as_gpflows() -> None:
    """Another Function for the scale, or number for df, may be assigned after the conversion."""
    stock = OF_X["StudentT"]()
    converted = augmented(stock)
    assert converted.df == stock.df
    for likelihood in (stock, converted):
        likelihood.df = 7.0
        likelihood.scale = gpflow.functions.Constant(0.3)
    X, F, Y = column(0.0, 0.5), column(0.3, -1.2), column(0.5, -3.0)
    np.testing.assert_allclose(converted.log_prob(X, F, Y), stock.log_prob(X, F, Y), rtol=1e-12)
    assert list(gpflow.utilities.parameter_dict(converted)) == [".scale.c"]


@pytest.mark.parametrize("name", OF_X)
def test_noise_that_depends_on_x_is_copied_and_restored(name: str, tmp_path: Path) -> None:
    """It works with ``deepcopy``, which shares nothing, with checkpoints, and frozen as float32."""
    trained, restored = augmented(OF_X[name]()), augmented(OF_X[name]())
    for parameter in trained.trainable_parameters:
        parameter.assign(1.7 * parameter.numpy())
    saved = tf.train.Checkpoint(likelihood=trained).save(tmp_path / "likelihood")
    tf.train.Checkpoint(likelihood=restored).restore(saved).assert_consumed()
    copied = gpflow.utilities.deepcopy(trained)
    X, F, Y = column(0.0, 0.5), column(0.3, -1.2), column(0.5, -3.0)
    expected = trained.log_prob(X, F, Y).numpy()
    frozen = gpflow.utilities.freeze_as_float32(trained)
    for parameter in trained.trainable_parameters:
        parameter.assign(9.0 * parameter.numpy())
    for likelihood in (restored, copied):
        np.testing.assert_allclose(likelihood.log_prob(X, F, Y), expected, rtol=1e-12)
    X, F, Y = (tf.cast(part, tf.float32) for part in (X, F, Y))
    found = frozen.predict_log_density(X, F, tf.ones_like(F), Y)
    assert found.dtype == tf.float32
    np.testing.assert_allclose(frozen.log_prob(X, F, Y), expected, rtol=1e-5)


@pytest.mark.slow
def test_the_slope_of_the_noise_is_fixed_and_freed_by_its_own_path() -> None:
    """GPflow's notebook on varying noise does so in two stages, as does its test_linear_noise."""
    rng = np.random.default_rng(20220630)
    X = rng.random((100, 1))
    Y = np.sin(5.0 * X) + (0.7 - 0.7 * X) * rng.standard_normal((100, 1))
    model = AugmentedSVGP(
        gpflow.kernels.RBF(lengthscales=0.2),
        gpflow.likelihoods.Gaussian(scale=gpflow.functions.Linear(A=[[0.0]], b=[0.5])),
        gpflow.inducing_variables.InducingPoints(np.linspace(0.0, 1.0, 10)[:, None]),
    )
    gpflow.set_trainable(model.inducing_variable, False)
    assert {".likelihood.scale.A", ".likelihood.scale.b"} == {
        path for path in gpflow.utilities.parameter_dict(model) if "likelihood" in path
    }
    noise = model.likelihood.scale
    gpflow.set_trainable(model.likelihood.scale.A, False)
    fit(model, (X, Y), progress=False)
    assert noise.A.numpy() == 0.0
    assert noise.b.numpy() != 0.5
    after_first = float(model.elbo((X, Y)))
    gpflow.set_trainable(model.likelihood.scale.A, True)
    fit(model, (X, Y), progress=False)
    assert model.elbo((X, Y)) > after_first + 5.0
    np.testing.assert_allclose(noise.A, -0.7, atol=0.1)
    np.testing.assert_allclose(noise.b, 0.7, atol=0.1)


def test_ordinal_shares_sigma_and_its_edges_can_be_freed() -> None:
    """Its probabilities are GPflow's but for the squeeze, at labels whose edges are finite."""
    stock = gpflow.likelihoods.Ordinal(np.array([-1.0, 0.2, 1.5]))
    found = augmented(stock)
    assert type(found) is likelihoods.Ordinal
    assert found.sigma is stock.sigma
    assert [id(p) for p in found.trainable_parameters] == [id(stock.sigma)]
    gpflow.set_trainable(found.bin_edges, True)
    assert len(found.trainable_parameters) == 2
    stock.sigma.assign(0.7)
    F, Y = column(0.3, -1.2, 0.9, 0.0), column(1.0, 1.0, 2.0, 2.0)
    log_p = stock.log_prob(F, F, Y)  # under TensorFlow 2.21 NaN at the others, as erf(∞) is
    np.testing.assert_allclose(np.exp(found.log_prob(F, F, Y)), np.exp(log_p), atol=2e-3)


@pytest.mark.slow
def test_the_edges_of_ordinal_are_learnt() -> None:
    """From edges that are far off; ten thousand labels of known edges, f nearly constant."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(10_000, 1))
    Y = np.digitize(rng.normal(size=X.shape), [-1.0, 0.3, 0.9]).astype(float)
    likelihood = likelihoods.Ordinal([-0.1, 0.0, 0.1])
    model = AugmentedSVGP(gpflow.kernels.SquaredExponential(), likelihood, X[:3].copy())
    gpflow.set_trainable(model.inducing_variable, False)
    gpflow.set_trainable(model.kernel, False)
    model.kernel.variance.assign(1e-3)
    assert fit(model, (X, Y), progress=False).converged
    np.testing.assert_allclose(likelihood.bin_edges, [-1.0, 0.3, 0.9], atol=0.06)


@pytest.mark.parametrize("edges", [[], [1.0, 1.0], [0.0, np.inf], [[0.0]]])
def test_edges_that_do_not_increase_are_refused(edges: list[float]) -> None:
    with pytest.raises(ValueError, match="bin_edges must be one or more finite numbers that incre"):
        likelihoods.Ordinal(edges)


def test_parts_of_a_switched_likelihood_share_their_parameters() -> None:
    parts = [STOCK["StudentT"](), STOCK["Gaussian-scale"]()]
    converted = augmented(gpflow.likelihoods.SwitchedLikelihood(parts))
    theirs = {id(p) for part in parts for p in part.trainable_parameters}
    assert {id(p) for p in converted.trainable_parameters} == theirs


# ---- constructors ----

OF_PARAMETER: dict[str, Callable[[Any], likelihoods.SuperGaussianLikelihood]] = {
    "Gaussian: variance": likelihoods.Gaussian,
    "Gaussian: scale": lambda value: likelihoods.Gaussian(scale=value),
    "StudentT: scale": likelihoods.StudentT,
    "StudentT: df": lambda value: likelihoods.StudentT(df=value),
    "Cauchy: scale": likelihoods.Cauchy,
    "Laplace: scale": likelihoods.Laplace,
    "AsymmetricLaplace: scale": likelihoods.AsymmetricLaplace,
    "GeneralizedGaussian: scale": likelihoods.GeneralizedGaussian,
    "LogisticNoise: scale": likelihoods.LogisticNoise,
    "Matern: scale": lambda value: likelihoods.Matern(3.5, value),
    "Matern32: scale": likelihoods.Matern32,
    "Matern52: scale": likelihoods.Matern52,
}
every_parameter = pytest.mark.parametrize("name", OF_PARAMETER)


@every_parameter
@pytest.mark.parametrize("value", [-1.0, 0.0, np.nan, np.inf, [1.0, -1.0]])
def test_parameters_must_be_positive_and_finite(name: str, value: Any) -> None:
    """The message names the likelihood, the argument and the value."""
    with pytest.raises(ValueError, match=rf"{name} must be finite.*{re.escape(str(value))}"):
        OF_PARAMETER[name](value)


@every_parameter
def test_parameters_must_not_depend_on_x(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be one positive number.*Function of X"):
        OF_PARAMETER[name](linear())


@every_parameter
def test_a_given_parameter_is_shared(name: str) -> None:
    parameter = gpflow.Parameter(0.8, transform=gpflow.utilities.positive())
    assert any(p is parameter for p in OF_PARAMETER[name](parameter).parameters)


@every_parameter
@pytest.mark.parametrize("value", [2, 0.8, np.float32(0.5), tf.constant(0.5, tf.float64)])
def test_a_given_number_becomes_the_value(name: str, value: Any) -> None:
    """Integers are accepted, and become numbers of default_float()."""
    parameter = getattr(OF_PARAMETER[name](value), name.split(": ")[1])
    assert parameter.dtype == tf.float64
    np.testing.assert_allclose(parameter, float(value), rtol=1e-12)


def test_gaussian_takes_variance_or_scale() -> None:
    with pytest.raises(ValueError, match="variance and scale must not both be given"):
        likelihoods.Gaussian(1.0, scale=1.0)
