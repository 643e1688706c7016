"""Every likelihood, kernel and inducing variable works in every call that a user makes."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases import AUGMENTED, Case, public_classes
from gpflow.base import AnyNDArray
from gpflow.inducing_variables import (
    InducingPoints,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import (
    LinearCoregionalization,
    SeparateIndependent,
    SharedIndependent,
    SquaredExponential,
)
from zoo import ZOO

from gpflow_aaci import (
    AlternatingOptimizer,
    AugmentedNaturalGradient,
    AugmentedSVGP,
    AugmentedVGP,
    fit,
    likelihoods,
    sample_posterior,
    train,
)
from gpflow_aaci.likelihoods import AugmentedLikelihood

N = 20
Data = tuple[AnyNDArray, AnyNDArray]


@dataclass(frozen=True)
class Line:
    """A likelihood, the number of its latent GPs, and a generator of data for it."""

    name: str
    make: Callable[[], AugmentedLikelihood]
    num_latents: int
    observe: Callable[[np.random.Generator, int], AnyNDArray]


def _line_of(case: Case) -> Line:
    def observe(rng: np.random.Generator, num_data: int) -> AnyNDArray:
        wave = np.sin(np.linspace(-4.0, 4.0, num_data)) + 0.3 * rng.normal(size=num_data)
        return ((wave > 0.0) if case.is_binary else wave)[:, None].astype(float)

    return Line(case.name, case.make, 1, observe)


LINES = [_line_of(case) for case in AUGMENTED]
LINES += [Line(member.name, member.make, member.num_latents, member.observe) for member in ZOO]
every_likelihood = pytest.mark.parametrize("line", LINES, ids=[line.name for line in LINES])
KERNELS: dict[str, Callable[[], gpflow.kernels.Kernel]] = {
    "one": lambda: SquaredExponential(lengthscales=0.5),
    "SharedIndependent": lambda: SharedIndependent(SquaredExponential(lengthscales=0.5), 2),
    "SeparateIndependent": lambda: SeparateIndependent(_two_kernels()),
    "LinearCoregionalization": lambda: LinearCoregionalization(
        _two_kernels(), W=np.array([[1.0, 0.3], [-0.5, 1.0]])
    ),
}
INDUCING: dict[str, Callable[[], gpflow.inducing_variables.InducingVariables]] = {
    "points": lambda: InducingPoints(_Z()),
    "shared": lambda: SharedIndependentInducingVariables(InducingPoints(_Z())),
    "separate": lambda: SeparateIndependentInducingVariables(
        [InducingPoints(_Z()), InducingPoints(_Z() + 0.1)]
    ),
}


def _two_kernels() -> list[gpflow.kernels.Kernel]:
    return [SquaredExponential(lengthscales=0.5), gpflow.kernels.Matern52(lengthscales=0.8)]


def _Z() -> AnyNDArray:
    return np.linspace(-1.0, 1.0, 5)[:, None]


def data_of(line: Line) -> Data:
    return np.linspace(-1.0, 1.0, N)[:, None], line.observe(np.random.default_rng(N), N)


def model_of(line: Line) -> AugmentedSVGP:
    options = {"num_latent_gps": line.num_latents, "num_data": N}
    return AugmentedSVGP(KERNELS["one"](), line.make(), _Z(), **options)


def data_of_two() -> Data:
    rng = np.random.default_rng(N)
    X = np.linspace(-1.0, 1.0, N)[:, None]
    return X, np.hstack([np.sin(3.0 * X), np.cos(4.0 * X)]) + 0.2 * rng.normal(size=(N, 2))


def model_of_two(kernel: str, inducing: str) -> AugmentedSVGP:
    """A model of two columns of Y."""
    likelihood = likelihoods.StudentT(0.3, 4.0)
    options = {"num_latent_gps": 2, "num_data": N}
    return AugmentedSVGP(KERNELS[kernel](), likelihood, INDUCING[inducing](), **options)


# A kernel of one output takes plain points alone; ``test_a_kernel_of_one_output_refuses`` the rest.
PAIRS = [(k, z) for k in KERNELS for z in INDUCING if k != "one" or z == "points"]
every_pair = pytest.mark.parametrize(("kernel", "inducing"), PAIRS)


def check_fit_and_saving(make: Callable[[], AugmentedSVGP], data: Data, folder: Path) -> None:
    """
    ``fit`` raises GPflow's ELBO and reports it; the restored model predicts as the fitted one.
    """
    model = make()
    before = float(model.elbo(data))
    result = fit(model, data, progress=False)
    after = float(model.elbo(data))
    assert after >= before - 1e-9 * abs(before)
    assert result.elbo == pytest.approx(after, rel=1e-6)
    saved, restored = tf.train.Checkpoint(model=model).save(folder / "model"), make()
    X = data[0]
    assert not np.allclose(restored.predict_f(X)[1], model.predict_f(X)[1])
    tf.train.Checkpoint(model=restored).restore(saved).assert_consumed()
    for found, expected in zip(restored.predict_y(X), model.predict_y(X), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10)


def check_steps(make: Callable[[], AugmentedSVGP], data: Data) -> None:
    """
    One closed-form step raises the augmented bound, and both optimizers make the same step.

    ``train`` then raises the bound further, and moves the hyperparameters.
    """
    ours, alternating = make(), make()
    before = -float(ours.training_loss(data))
    AugmentedNaturalGradient(1.0).minimize(ours, data)
    assert -float(ours.training_loss(data)) > before
    of_q = {id(alternating.q_mu), id(alternating.q_sqrt)}
    hyperparameters = [p for p in alternating.trainable_parameters if id(p) not in of_q]
    for parameter in hyperparameters:
        gpflow.set_trainable(parameter, False)
    AlternatingOptimizer(1.0).minimize(alternating, data)
    np.testing.assert_allclose(alternating.q_mu, ours.q_mu, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(alternating.q_sqrt, ours.q_sqrt, rtol=1e-9, atol=1e-9)
    for parameter in hyperparameters:
        gpflow.set_trainable(parameter, True)
    start = -float(alternating.training_loss(data))
    values = [parameter.numpy() for parameter in hyperparameters]
    history = train(alternating, data, num_steps=5, batch_size=N, evaluate_every=5, progress=False)
    end = float(history["augmented"].iloc[-1])
    assert np.isfinite(end)
    assert end >= start - 1e-9 * abs(start)
    assert end == pytest.approx(-float(alternating.training_loss(data)), rel=1e-9)
    assert any(
        not np.array_equal(parameter, value)
        for parameter, value in zip(hyperparameters, values, strict=True)
    )


def test_every_public_likelihood_is_a_line() -> None:
    kinds = [cls for cls in public_classes() if issubclass(cls, likelihoods.AugmentedLikelihood)]
    concrete = {cls for cls in kinds if not inspect.isabstract(cls)}
    concrete = {cls for cls in concrete if cls.is_augmented}  # test_unaugmented has the others
    assert concrete == {type(line.make()) for line in LINES}


@pytest.mark.slow
@pytest.mark.by_default("NoiseMixture", "Scaled StudentT")
@every_likelihood
def test_every_likelihood_is_fitted_and_saved(line: Line, tmp_path: Path) -> None:
    check_fit_and_saving(lambda: model_of(line), data_of(line), tmp_path)


@pytest.mark.replicate
@every_likelihood
def test_every_likelihood_is_stepped_and_trained(line: Line) -> None:
    check_steps(lambda: model_of(line), data_of(line))


@pytest.mark.slow
@pytest.mark.by_default("MultivariateStudentT")
@every_likelihood
def test_every_likelihood_is_sampled_and_its_sum_is_of_the_draws(line: Line) -> None:
    """``total_log_likelihood`` is log p(y|f) at the drawn f, and drawn y are finite."""
    X, Y = data_of(line)
    model = AugmentedVGP((X, Y), KERNELS["one"](), line.make(), num_latent_gps=line.num_latents)
    draws = sample_posterior(model, num_samples=4, num_chains=2, num_burnin=2, progress=False)
    f = np.asarray(draws.posterior["f"])
    f = f.reshape(*f.shape[:2], N, line.num_latents)
    total = np.sum(model.likelihood.log_prob(X, f, Y), -1)
    found = draws.sample_stats["total_log_likelihood"]
    np.testing.assert_allclose(found, total, rtol=1e-8, atol=1e-8)
    assert len(np.unique(found)) == found.size
    if "posterior_predictive" in draws.groups():
        assert np.all(np.isfinite(draws.posterior_predictive["y"]))


@every_pair
@pytest.mark.replicate
def test_every_kernel_is_fitted_and_saved(kernel: str, inducing: str, tmp_path: Path) -> None:
    check_fit_and_saving(lambda: model_of_two(kernel, inducing), data_of_two(), tmp_path)


@pytest.mark.replicate
@every_pair
def test_every_kernel_is_stepped_and_trained(kernel: str, inducing: str) -> None:
    check_steps(lambda: model_of_two(kernel, inducing), data_of_two())


@pytest.mark.parametrize("inducing", ["shared", "separate"])
def test_a_kernel_of_one_output_refuses(inducing: str) -> None:
    with pytest.raises(ValueError, match="inducing_variable must be points"):
        model_of_two("one", inducing)
