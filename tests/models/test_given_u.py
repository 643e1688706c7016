"""FITC's evidence, and the ELBO under noise with the variance that u leaves unexplained."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_aaci
from gpflow_aaci import AugmentedSVGP, AugmentedVGP, likelihoods, sample_posterior
from gpflow_aaci.contrib import HMC, SGHMC, EllipticalSlices

N, Z = 60, np.array([[-1.6], [-0.5], [0.4], [1.5]])


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.uniform(-2.0, 2.0, (N, 1))
    return X, np.sin(4.0 * X) + 0.2 * rng.normal(size=X.shape)


def made(**options: Any) -> AugmentedSVGP:
    kernel = gpflow.kernels.Matern52(variance=0.8, lengthscales=0.5)
    return AugmentedSVGP(kernel, likelihoods.Gaussian(variance=0.1), Z.copy(), **options)


def fitc_of(model: gpflow.models.SVGP) -> gpflow.models.GPRFITC:
    """GPflow's own, with the same values."""
    noise = model.likelihood.variance.numpy()
    kernel = gpflow.utilities.deepcopy(model.kernel)
    points = model.inducing_variable.Z.numpy()
    return gpflow.models.GPRFITC(data(), kernel, points, noise_variance=noise)


def shares(model: gpflow.models.SVGP, exact: gpflow.models.GPRFITC) -> np.ndarray:
    """k̃_i / (σ² + k̃_i), in dense algebra."""
    (X, _), kernel, points = exact.data, model.kernel, model.inducing_variable.Z
    K_ZX, K_ZZ = kernel(points, X).numpy(), kernel(points).numpy()
    K_ZZ = K_ZZ + gpflow.default_jitter() * np.eye(len(Z))
    rest = kernel(X, full_cov=False).numpy() - np.sum(K_ZX * np.linalg.solve(K_ZZ, K_ZX), 0)
    return rest / (rest + model.likelihood.variance.numpy())


@pytest.mark.briefly("whitened")
@pytest.mark.parametrize("options", [{}, {"whiten": False}], ids=["whitened", "unwhitened"])
def test_at_given_hyperparameters_the_fit_is_fitc(options: dict[str, bool]) -> None:
    """Evidence and predictions are GPflow's; the other objective lacks half the shares' sum."""
    model = made(**options)
    gpflow.set_trainable(model.kernel, False)
    gpflow.set_trainable(model.likelihood, False)
    gpflow.set_trainable(model.inducing_variable, False)
    exact = fitc_of(model)
    evidence = float(exact.fitc_log_marginal_likelihood())
    for objective in ("fitc", "heteroscedastic"):
        fitted = gpflow.utilities.deepcopy(model)
        cache = fitted.posterior()
        result = gpflow_aaci.fit(fitted, data(), objective=objective, progress=False)
        assert result.converged
        assert float(fitted.fitc_objective(data())) == pytest.approx(evidence, abs=1e-6)
        lower = evidence - 0.5 * np.sum(shares(model, exact))
        assert float(fitted.heteroscedastic_objective(data())) == pytest.approx(lower, abs=1e-6)
        assert result.elbo == pytest.approx(float(fitted.elbo(data())), abs=1e-6)
        new = np.linspace(-2.5, 2.5, 7)[:, None]
        for of_model in (fitted.predict_f, cache.predict_f):
            for ours, theirs in zip(of_model(new), exact.predict_f(new), strict=True):
                np.testing.assert_allclose(ours, theirs, atol=1e-6)
        for ours, theirs in zip(fitted.predict_y(new), exact.predict_y(new), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_of_any_other_q_the_objectives_are_lower() -> None:
    model = made()
    model.q_mu.assign(np.full((len(Z), 1), 0.3))
    evidence = float(fitc_of(model).fitc_log_marginal_likelihood())
    assert float(model.fitc_objective(data())) < evidence - 1.0


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["fitc", "heteroscedastic"])
def test_a_fit_ends_at_an_optimum(objective: Any) -> None:
    """Scipy maximises the dense formula from where the fit ended, and gains nothing."""
    model = made()
    result = gpflow_aaci.fit(model, data(), objective=objective, progress=False)
    assert result.converged
    found = float(getattr(model, f"{objective}_objective")(data()))
    exact = fitc_of(model)
    X, _ = exact.data

    def loss() -> tf.Tensor:
        if objective == "fitc":
            return exact.training_loss()
        K_ZX = exact.kernel(exact.inducing_variable.Z, X)
        K_ZZ = exact.kernel(exact.inducing_variable.Z)
        chol = tf.linalg.cholesky(K_ZZ + gpflow.default_jitter() * tf.eye(len(Z), dtype=X.dtype))
        A = tf.linalg.triangular_solve(chol, K_ZX)
        rest = exact.kernel(X, full_cov=False) - tf.reduce_sum(tf.square(A), 0)
        share = rest / (rest + exact.likelihood.variance)
        return 0.5 * tf.reduce_sum(share) - exact.fitc_log_marginal_likelihood()

    assert found == pytest.approx(-float(loss()), abs=2e-3)
    gpflow.optimizers.Scipy().minimize(loss, exact.trainable_variables)
    assert -float(loss()) < found + 0.01


@pytest.mark.slow
def test_minibatches_raise_it() -> None:
    model = made(num_data=N)
    start = float(fitc_of(model).fitc_log_marginal_likelihood())
    history = gpflow_aaci.train(
        model, data(), objective="fitc", num_steps=300, batch_size=30, progress=False
    )
    assert list(history.columns) == ["step", "seconds", "fitc", "nll"]
    found, best = model.fitc_objective(data()), fitc_of(model).fitc_log_marginal_likelihood()
    assert float(best) > start + 3.0
    assert float(found) > float(best) - 2.0


def test_the_model_is_the_same_to_tensorflow_and_to_its_caches() -> None:
    """A value of the objective changes no part of it; steps refresh what it has handed out."""
    model = made(num_data=N)
    before = {name: id(part) for name, part in model._trackable_children().items()}
    model.fitc_objective(data())
    assert {name: id(part) for name, part in model._trackable_children().items()} == before
    cached, apart = model.posterior(), []

    def compare(step: int) -> None:
        apart.append(float(np.abs(cached.predict_f(Z)[0] - model.predict_f(Z)[0]).max()))
        if step == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        gpflow_aaci.train(model, data(), objective="fitc", monitor=compare, progress=False)
    assert len(apart) == 2
    assert max(apart) < 1e-6


@pytest.mark.slow
def test_two_columns_of_y_are_two_models() -> None:
    """Each with its own part of the variance that shared points leave unexplained."""
    (X, Y), kernel = data(), gpflow.kernels.SquaredExponential(lengthscales=0.6)
    two = AugmentedSVGP(kernel, likelihoods.Gaussian(0.1), Z.copy(), num_latent_gps=2)
    one = AugmentedSVGP(kernel, two.likelihood, Z.copy())
    for part in (kernel, two.likelihood, two.inducing_variable, one.inducing_variable):
        gpflow.set_trainable(part, False)
    gpflow_aaci.fit(two, (X, np.hstack([Y, -2.0 * Y])), objective="fitc", progress=False)
    total = 0.0
    for y in (Y, -2.0 * Y):
        gpflow_aaci.fit(one, (X, y), objective="fitc", progress=False)
        total += float(one.fitc_objective((X, y)))
    assert float(two.fitc_objective((X, np.hstack([Y, -2.0 * Y])))) == pytest.approx(total)


def test_gpflows_own_likelihood_is_converted_before_the_draws() -> None:
    """Some conversions make variables, which a compiled step may not."""
    model = gpflow.models.SVGP(made().kernel, gpflow.likelihoods.StudentT(), Z.copy())
    draws = sample_posterior(
        model, data(), EllipticalSlices("variational"), num_samples=3, progress=False
    )
    assert np.isfinite(draws.posterior["u"]).all()


@pytest.mark.slow
def test_draws_by_each_objective_are_of_its_posterior_of_u() -> None:
    """Of FITC for two of the objectives, as they differ by no function of u; of SGPR for one."""
    model = gpflow.models.SVGP(made().kernel, gpflow.likelihoods.Gaussian(0.1), Z.copy())
    exact = fitc_of(model)
    collapsed = gpflow.models.SGPR(data(), exact.kernel, Z.copy(), noise_variance=0.1)
    for sampler, of_model in (
        (EllipticalSlices("heteroscedastic"), exact),
        (HMC(objective="variational"), collapsed),
    ):
        draws = sample_posterior(
            model,
            data(),
            sampler,
            num_samples=2_000,
            num_chains=4,
            num_burnin=200,
            progress=False,
        ).posterior["u"]
        mean, variance = (part.numpy()[:, 0] for part in of_model.predict_f(Z))
        assert np.abs(draws.mean(["chain", "draw"]).values[:, 0] - mean).max() < 0.06
        ratio = draws.var(["chain", "draw"]).values[:, 0] / variance
        assert 0.8 < ratio.min() <= ratio.max() < 1.25


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AugmentedVGP(data(), made().kernel, likelihoods.Gaussian()), "inducing variables"),
        (
            lambda: AugmentedSVGP(made().kernel, likelihoods.Laplace(), Z.copy()),
            r'with one variance for all data, where objective is "fitc"\. Found: .*Laplace',
        ),
        (
            lambda: AugmentedSVGP(
                made().kernel, likelihoods.Gaussian(with_noise_variance=True), Z.copy()
            ),
            "likelihood must be Gaussian, with one variance",
        ),
    ],
    ids=["full", "Laplace", "known variances"],
)
def test_where_they_do_not_apply_is_said(make: Callable, message: str) -> None:
    model = make()
    X, Y = data()
    columns = np.hstack([Y, 0.1 + 0.0 * Y]) if getattr(model.likelihood, "given", ()) else Y
    given = () if isinstance(model, AugmentedVGP) else ((X, columns),)
    for call in (gpflow_aaci.fit, gpflow_aaci.train):
        with pytest.raises(ValueError, match=message):
            call(model, *given, objective="fitc", progress=False)


def test_a_sampler_says_where_the_objective_does_not_apply() -> None:
    model = gpflow.models.SVGP(made().kernel, gpflow.likelihoods.StudentT(), Z.copy())
    for sampler in (EllipticalSlices("heteroscedastic"), SGHMC(objective="heteroscedastic")):
        with pytest.raises(ValueError, match=r"likelihood must be Gaussian.* StudentT"):
            sample_posterior(model, data(), sampler, num_burnin=1, progress=False)
    with pytest.raises(ValueError, match=r"\"heteroscedastic\"\. Found: 'fitc'"):
        EllipticalSlices("fitc")
