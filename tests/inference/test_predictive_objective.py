"""log E p(y|f) − KL: its value and gradient, why it is no bound, and what it is good for."""

from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
import scipy.integrate
import scipy.stats
import tensorflow as tf
from gpflow.base import AnyNDArray
from likelihoods.cases import AUGMENTED, Case
from likelihoods.zoo import ZOO, Member

import gpflow_aaci
from gpflow_aaci import AugmentedSVGP, AugmentedVGP, likelihoods, train
from gpflow_aaci.algebra.terms import predictive
from gpflow_aaci.inference import EarlyStopping
from gpflow_aaci.inference.joint_adam import JointAscent
from gpflow_aaci.inference.settings import SETTINGS

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (12, 1))
Y = np.sin(2.0 * X) + 0.2 * RNG.normal(size=X.shape)


def make(likelihood: Any, **options: Any) -> AugmentedSVGP:
    kernel = gpflow.kernels.SquaredExponential()
    return AugmentedSVGP(kernel, likelihood, np.linspace(-2.0, 2.0, 5)[:, None], **options)


def kl(model: AugmentedSVGP) -> float:
    """KL[N(m, S) ‖ N(0, I)], summed over latent GPs, in NumPy."""
    total = 0.0
    for m, R in zip(model.q_mu.numpy().T, model.q_sqrt.numpy(), strict=True):
        S = R @ R.T
        total += 0.5 * (np.trace(S) + m @ m - len(m) - np.linalg.slogdet(S)[1])
    return total


def test_of_gaussian_noise_it_is_the_closed_form(randomise_q: Any) -> None:
    """Sums over a batch are scaled to all data."""
    model = make(likelihoods.Gaussian(0.3), num_data=60)
    randomise_q(model)
    mean, variance = model.predict_f(X)
    expected = 5.0 * scipy.stats.norm.logpdf(Y, mean, np.sqrt(variance + 0.3)).sum() - kl(model)
    np.testing.assert_allclose(model.predictive_objective((X, Y)), expected, rtol=1e-10)
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).batch(5)
    streamed = model.predictive_objective(batches, progress=False)
    np.testing.assert_allclose(streamed, expected, rtol=1e-10)


@pytest.mark.by_default("Logistic")
@pytest.mark.parametrize("name", ["StudentT", "Logistic"])
def test_it_is_what_quadrature_says(name: str, randomise_q: Any) -> None:
    log_density = {
        "StudentT": lambda y, f: scipy.stats.t.logpdf(y, 4.0, f, 0.3),
        "Logistic": lambda y, f: scipy.stats.logistic.logcdf((2.0 * y - 1.0) * f),
    }[name]
    likelihood = likelihoods.StudentT(0.3, 4.0) if name == "StudentT" else likelihoods.Logistic()
    y = Y if name == "StudentT" else (Y > 0).astype(float)
    model = make(likelihood)
    randomise_q(model)
    expected = -kl(model)
    for y_i, m, v in zip(*(np.ravel(part) for part in (y, *model.predict_f(X))), strict=True):
        marginal = scipy.stats.norm(m, np.sqrt(v))
        integral, _ = scipy.integrate.quad(
            lambda f, y_i=y_i, p=marginal: np.exp(log_density(y_i, f)) * p.pdf(f),
            *marginal.interval(1.0 - 1e-14),
            epsabs=1e-13,
            limit=200,
        )
        expected += np.log(integral)
    np.testing.assert_allclose(model.predictive_objective((X, y)), expected, rtol=1e-7)


@pytest.mark.by_default("likelihood1")
@pytest.mark.parametrize("likelihood", [likelihoods.StudentT(0.3, 4.0), likelihoods.Laplace(0.2)])
def test_its_gradient_is_that_of_finite_differences(likelihood: Any, randomise_q: Any) -> None:
    model = make(likelihood)
    randomise_q(model)
    variables = list(model.trainable_variables)  # of q, the kernel, the likelihood and Z
    with tf.GradientTape() as tape:
        value = model.predictive_objective((X, Y))
    gradients = tape.gradient(value, variables)
    rng, step = np.random.default_rng(1), 1e-5
    for variable, gradient in zip(variables, gradients, strict=True):
        before = variable.numpy()
        along = rng.normal(size=before.shape)
        values = []
        for sign in (1.0, -1.0):
            variable.assign(before + sign * step * along)
            values.append(model.predictive_objective((X, Y)).numpy())
        variable.assign(before)
        expected = (values[0] - values[1]) / (2.0 * step)
        np.testing.assert_allclose(np.sum(along * gradient), expected, rtol=2e-5, atol=1e-5)


def test_it_is_above_the_log_evidence_of_a_single_datum() -> None:
    """It is log p(y) at q = p and rises from there, so it is no lower bound."""
    x, y = np.zeros((1, 1)), np.full((1, 1), 1.5)
    kernel = gpflow.kernels.SquaredExponential()
    model = AugmentedSVGP(kernel, likelihoods.Gaussian(0.5), x)
    evidence = scipy.stats.norm.logpdf(1.5, 0.0, np.sqrt(1.5))
    np.testing.assert_allclose(model.predictive_objective((x, y)), evidence, rtol=1e-5)
    model.q_mu.assign([[0.3]])
    assert float(model.predictive_objective((x, y))) > evidence + 0.1
    assert float(model.elbo((x, y))) < evidence


def noisier_to_the_right(seed: int, rows: int) -> tuple[AnyNDArray, AnyNDArray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 3.0, (rows, 1))
    return x, np.sin(2.0 * x) + 0.05 * np.exp(x) * rng.normal(size=x.shape)


def trained(objective: str, optimizer: Any, num_steps: int) -> float:
    """The test NLL after training."""
    model = AugmentedSVGP(
        gpflow.kernels.SquaredExponential(lengthscales=0.7),
        likelihoods.Gaussian(0.1),
        np.linspace(0.0, 3.0, 15)[:, None],
        num_data=300,
    )
    history = train(
        model,
        noisier_to_the_right(0, 300),
        objective=objective,  # type: ignore[arg-type]
        optimizer=optimizer,
        num_steps=num_steps,
        test_data=noisier_to_the_right(1, 1_000),
        evaluate_every=num_steps,
        progress=False,
    )
    assert list(history.columns) == ["step", "seconds", objective, "nll"]
    return float(history.nll.iloc[-1])


@pytest.mark.slow
def test_where_noise_varies_with_x_it_predicts_better_than_the_elbo() -> None:
    adam = gpflow.keras.tf_keras.optimizers.Adam(0.03)
    predictive = trained("predictive", adam, 1_000)
    assert predictive < trained("augmented", None, 300) - 0.15
    x, y = noisier_to_the_right(1, 1_000)  # the true law has the lowest expected NLL
    best = -scipy.stats.norm.logpdf(y, np.sin(2.0 * x), 0.05 * np.exp(x)).mean()
    assert best < predictive < best + 0.1


@pytest.mark.slow
@pytest.mark.by_default("Laplace")
@pytest.mark.parametrize("member", [*AUGMENTED, *ZOO], ids=lambda member: member.name)
def test_steps_raise_it_for_every_likelihood_in_minibatches_and_float32(
    member: Case | Member,
) -> None:
    gpflow.config.set_default_float(np.float32)
    gpflow.config.set_default_jitter(1e-4)
    rng = np.random.default_rng(0)
    x = rng.uniform(-2.0, 2.0, (16, 1)).astype(np.float32)
    if isinstance(member, Member):
        y, L = member.observe(rng, 16).astype(np.float32), member.num_latents
    else:
        y, L = np.sin(2.0 * x), 1
        y = (y > 0.0).astype(np.float32) if member.is_binary else y
    model = AugmentedSVGP(
        gpflow.kernels.Matern32(), member.make(), x[:5].copy(), num_latent_gps=L, num_data=16
    )
    ascent = JointAscent("predictive", predictive, gpflow.keras.tf_keras.optimizers.Adam(0.01))
    before = model.predictive_objective((x, y))
    for start in (0, 8) * 3:
        ascent.minimize(model, (x[start : start + 8], y[start : start + 8]))
    after = model.predictive_objective((x, y))
    assert after.dtype == tf.float32
    assert float(after) > float(before) + 1e-3


@pytest.mark.briefly("True")
@pytest.mark.parametrize("keeps_data", [False, True])
def test_fit_trains_on_arrays_and_on_what_a_model_keeps(
    keeps_data: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = SETTINGS._replace(most_steps=100, endless_standard_steps=100)
    monkeypatch.setattr(gpflow_aaci.inference.minibatch_fit, "SETTINGS", small)
    likelihood, data = likelihoods.Gaussian(0.3), () if keeps_data else ((X, Y),)
    kernel = gpflow.kernels.SquaredExponential()
    model = AugmentedVGP((X, Y), kernel, likelihood) if keeps_data else make(likelihood)
    before = float(model.predictive_objective(*data))
    result = gpflow_aaci.fit(model, *data, objective="predictive", progress=False)
    assert result.route == "train"
    after = result.history.objective.iloc[-1]
    assert after == pytest.approx(float(model.predictive_objective(*data)))
    assert after > before + 1.0


@pytest.mark.slow
def test_a_run_that_goes_on_ends_as_one_that_was_never_stopped(tmp_path: Path) -> None:
    def run(steps: int, folder: str) -> tuple[AugmentedSVGP, pd.DataFrame]:
        model = make(likelihoods.Laplace(0.3), num_data=len(X))
        history = train(
            model,
            (X, Y),
            objective="predictive",
            num_steps=steps,
            batch_size=4,
            evaluate_every=10,
            checkpoint_dir=tmp_path / folder,
            progress=False,
        )
        return model, history.drop(columns="seconds")

    whole, history = run(40, "whole")
    run(20, "parts")
    resumed, of_resumed = run(40, "parts")
    pd.testing.assert_frame_equal(history, of_resumed)
    for a, b in zip(whole.variables, resumed.variables, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    model = make(likelihoods.Laplace(0.3), num_data=len(X))
    with pytest.raises(ValueError, match="belongs to another run: optimizer"):
        train(
            model,
            (X, Y),
            num_steps=50,
            batch_size=4,
            checkpoint_dir=tmp_path / "whole",
            progress=False,
        )


@pytest.mark.slow
def test_a_step_on_gpflow_s_elbo_follows_its_gradient(randomise_q: Any) -> None:
    """The ELBO is that of GPflow's own SVGP with its Gaussian likelihood."""
    model = make(likelihoods.Gaussian(0.3), num_data=len(X))
    randomise_q(model)
    Z = model.inducing_variable.Z.numpy()
    noise = gpflow.likelihoods.Gaussian(0.3)
    stock = gpflow.models.SVGP(gpflow.kernels.SquaredExponential(), noise, Z, num_data=len(X))
    stock.q_mu.assign(model.q_mu)
    stock.q_sqrt.assign(model.q_sqrt)
    with tf.GradientTape() as tape:
        loss = stock.training_loss((X, Y))
    wanted = [stock.q_mu, stock.q_sqrt, stock.kernel.lengthscales]
    gradients = tape.gradient(loss, [each.unconstrained_variable for each in wanted])
    sgd = gpflow.keras.tf_keras.optimizers.SGD(1e-3)
    train(
        model,
        (X, Y),
        objective="standard",
        optimizer=sgd,
        num_steps=1,
        batch_size=len(X),
        progress=False,
    )
    moved = [model.q_mu, model.q_sqrt, model.kernel.lengthscales]
    for before, gradient, after in zip(wanted, gradients, moved, strict=True):
        expected = before.unconstrained_variable - 1e-3 * gradient
        np.testing.assert_allclose(after.unconstrained_variable, expected, rtol=1e-6, atol=1e-9)


ADAM = gpflow.keras.tf_keras.optimizers.Adam


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"objective": "ppgpr"},
            r'must be one of "augmented", "standard", "predictive", .*Found: \'ppgpr\'',
        ),
        (
            {"objective": "predictive", "optimizer": gpflow_aaci.AlternatingOptimizer()},
            r"optimizer must be one of tf_keras.optimizers .* Found: AlternatingOptimizer",
        ),
        (
            {"objective": "predictive", "optimizer": JointAscent("predictive", predictive)},
            r"must be one of tf_keras.optimizers where objective .* Found: JointAscent",
        ),
        (
            {"objective": "predictive", "optimizer": JointAscent},
            "optimizer must be an optimizer object.* not a class. Found: the class JointAscent",
        ),
        ({"optimizer": ADAM(0.1)}, "optimizer must be AlternatingOptimizer .* Found: Adam"),
        (
            {"objective": "predictive", "optimizer": gpflow.keras.tf_keras.optimizers.legacy.SGD()},
            "not of tf_keras.optimizers.legacy",
        ),
        (
            {"objective": "predictive", "early_stopping": EarlyStopping("augmented")},
            r'metric must be "predictive" or "nll"\. Found: \'augmented\'',
        ),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train(make(likelihoods.Laplace(0.3)), (X, Y), progress=False, **arguments)


def test_fit_refuses_a_pass_that_minibatches_would_repeat() -> None:
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)
    with pytest.raises(ValueError, match="a dataset without end"):
        gpflow_aaci.fit(make(likelihoods.Laplace(0.3)), batches, objective="predictive")
