"""``fit``: which route it takes, what its result reports, and which warnings it gives."""

import os
import signal
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import gpflow_aaci
from gpflow_aaci import AugmentedSVGP, AugmentedVGP, likelihoods
from gpflow_aaci.contrib.likelihoods import NoiseMixture
from gpflow_aaci.inference import fit as fit_module
from gpflow_aaci.inference import minibatch_fit
from gpflow_aaci.inference.advice import advice
from gpflow_aaci.inference.settings import SETTINGS

RNG = np.random.default_rng(0)
X = RNG.uniform(-3.0, 3.0, (80, 2))
Y = np.sin(2.0 * X[:, :1]) + 0.1 * RNG.standard_t(3, (80, 1))


def make(Z: np.ndarray = X[:30], **options: object) -> AugmentedSVGP:
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[1.0, 3.0])
    model = AugmentedSVGP(kernel, likelihoods.StudentT(0.2, 4.0), Z.copy(), **options)
    gpflow.set_trainable(model.inducing_variable, False)
    return model


def with_settings(monkeypatch: pytest.MonkeyPatch, **settings: float) -> None:
    monkeypatch.setattr(minibatch_fit, "SETTINGS", SETTINGS._replace(**settings))


@pytest.mark.slow
def test_finite_data_are_fitted_by_fit_collapsed_and_the_summary_is_the_models() -> None:
    model, other = make(), make()
    result = gpflow_aaci.fit(model, (X, Y), progress=False)
    expected = gpflow_aaci.fit_collapsed(other, (X, Y), progress=False)

    assert result.route == "fit_collapsed"
    assert result.converged is expected.converged is True
    assert result.reason == expected.reason
    np.testing.assert_allclose(result.elbo, expected.objective, rtol=1e-10)
    np.testing.assert_allclose(result.elbo, model.elbo((X, Y)), rtol=1e-12)
    gap = tf.reduce_sum(model.augmentation_gap((X, Y)))
    np.testing.assert_allclose(result.gap, gap, rtol=1e-6)
    assert result.history.objective.iloc[-1] == pytest.approx(result.elbo, rel=1e-9)
    assert result.history.seconds.is_monotonic_increasing
    assert result.reason in str(result)


@pytest.mark.slow
def test_a_dataset_of_one_pass_and_a_model_that_keeps_its_data_end_alike() -> None:
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[1.0, 3.0])
    full = AugmentedVGP((X, Y), kernel, likelihoods.StudentT(0.2, 4.0))
    streamed = make(X)
    of_full = gpflow_aaci.fit(full, progress=False)
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).batch(30)
    of_stream = gpflow_aaci.fit(streamed, batches, progress=False)
    assert of_full.route == of_stream.route == "fit_collapsed"
    # With Z = X, the models are the same up to the jitter.
    assert of_stream.elbo == pytest.approx(of_full.elbo, abs=0.05)


@pytest.mark.slow
def test_a_dataset_without_end_is_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with_settings(monkeypatch, most_steps=300, endless_standard_steps=200)
    model = make(num_data=len(X))
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(40)
    before = float(model.elbo((X, Y)))
    result = gpflow_aaci.fit(model, batches, progress=False)
    assert result.route == "train"
    assert not result.converged
    assert result.reason == "the limit of steps was reached"
    assert result.history.step.tolist() == [100, 200]
    assert result.elbo > before
    # The dataset repeats 80 rows.
    np.testing.assert_allclose(result.elbo, model.elbo((X, Y)), rtol=1e-10)


@pytest.mark.slow
def test_training_ends_when_the_bound_no_longer_rises(monkeypatch: pytest.MonkeyPatch) -> None:
    # No rise of the bound reaches 1e3 nats per datum.
    with_settings(monkeypatch, patience=2, patience_gain=1e3, endless_standard_steps=200)
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(40)
    result = gpflow_aaci.fit(make(num_data=len(X)), batches, progress=False)
    assert result.converged
    assert result.history.step.iloc[-1] == 200


@pytest.mark.replicate
def test_data_without_end_are_fitted_to_gpflows_elbo(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last steps raise GPflow's ELBO, starting at the optimum of the augmented bound."""
    with_settings(monkeypatch, most_steps=600, endless_standard_steps=600)
    rng = np.random.default_rng(0)
    labels = (
        rng.uniform(size=(len(X), 1)) < 1.0 / (1.0 + np.exp(-6.0 * np.sin(3.0 * X[:, :1])))
    ) * 1.0
    by_arrays, by_stream = (
        AugmentedSVGP(
            gpflow.kernels.SquaredExponential(),
            likelihoods.Logistic(),
            X[:8].copy(),
            num_data=len(X),
        )
        for _ in range(2)
    )
    for model in (by_arrays, by_stream):
        gpflow.set_trainable(model.inducing_variable, False)
    gpflow_aaci.fit(by_arrays, (X, labels), progress=False)
    batches = tf.data.Dataset.from_tensor_slices((X, labels)).repeat().batch(len(X))
    gpflow_aaci.fit(by_stream, batches, progress=False)
    assert float(by_stream.elbo((X, labels))) > float(by_arrays.elbo((X, labels))) - 0.05


@pytest.mark.slow
def test_training_that_is_interrupted_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not claim to have converged, although the last evaluation exhausts the patience."""
    with_settings(monkeypatch, patience=1, patience_gain=1e3)
    usual, steps = minibatch_fit.train, []

    def press() -> None:
        steps.append(0)
        if len(steps) == 150:
            os.kill(os.getpid(), signal.SIGINT)

    def pressed(*args: Any, **how: Any) -> Any:
        task = gpflow.monitor.ExecuteCallback(press)
        group = gpflow.monitor.MonitorTaskGroup(task)
        return usual(*args, monitor=gpflow.monitor.Monitor(group), **how)

    monkeypatch.setattr(minibatch_fit, "train", pressed)
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(40)
    result = gpflow_aaci.fit(make(num_data=len(X)), batches, progress=False)
    assert result.history.step.tolist() == [100, 150]
    assert not result.converged
    assert result.reason == "it was interrupted"


def test_another_objective_is_refused_by_its_name() -> None:
    rows = tf.data.Dataset.from_tensor_slices((X, Y)).batch(40)
    with pytest.raises(
        ValueError, match=r'objective must be one of "standard", .* Found: \'elb0\''
    ):
        gpflow_aaci.fit(make(X), rows, objective="elb0")  # type: ignore[arg-type]


def test_another_model_is_refused() -> None:
    other = gpflow.models.SGPR((X, Y), gpflow.kernels.Matern32(), X[:3])
    with pytest.raises(ValueError, match=r"AugmentedSVGP or AugmentedVGP.*\. Found: SGPR"):
        gpflow_aaci.fit(other, (X, Y))


def test_bad_data_leave_the_model_as_it_was() -> None:
    model = make()
    before = [variable.numpy() for variable in model.variables]
    bad = np.where(np.arange(80)[:, None] == 7, np.nan, Y)
    with pytest.raises(ValueError, match=r"Y must be finite|NaN"):
        gpflow_aaci.fit(model, (X, bad), progress=False)
    for value, variable in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(value, variable.numpy())


# ---- advice ----


def test_nothing_is_said_of_a_model_that_is_well() -> None:
    assert advice(make(X), X) == []


def test_too_few_inducing_points_are_said_with_their_share() -> None:
    model = make(X[:3])
    k = model.kernel
    K_ZZ, K_ZX = k(X[:3]).numpy() + 1e-6 * np.eye(3), k(X[:3], X).numpy()
    explained = np.einsum("mn,mn->n", K_ZX, np.linalg.solve(K_ZZ, K_ZX))
    share = np.mean(1.0 - explained)
    (said,) = advice(model, X)
    assert f"The 3 inducing points leave {100 * share:.0f} %" in said


def test_inputs_of_other_scales_are_said_and_constant_ones_are_not() -> None:
    scaled = X * [1.0, 500.0]
    assert any("not scaled" in said for said in advice(make(scaled), scaled))
    model = make(scaled)
    model.kernel = gpflow_aaci.kernels.start(scaled)
    assert not any("not scaled" in said for said in advice(model, scaled))
    constant = np.column_stack([X[:, 0], np.ones(80)])
    assert not any("not scaled" in said for said in advice(make(constant), constant))


def test_one_column_that_is_not_scaled_has_no_range() -> None:
    model = make(500.0 * X[:, :1])
    model.kernel = gpflow.kernels.SquaredExponential()
    (said,) = advice(model, 500.0 * X[:, :1])
    sd = 500.0 * X[:, 0].std()
    assert f"The column of X is not scaled: its standard deviation is {sd:.2g}" in said


def test_a_signal_far_below_the_noise_is_said_with_both() -> None:
    model = make(X)
    model.kernel.variance.assign(1e-4)
    model.likelihood.scale.assign(0.2)
    (said,) = advice(model, X)
    assert "f explains almost nothing of Y" in said
    assert "0.01 beside noise of 0.2" in said
    model.mean_function = gpflow.functions.Linear(np.ones((2, 1)))  # may explain Y alone
    assert advice(model, X) == []
    model.mean_function = gpflow.functions.Constant(3.0)
    model.likelihood.scale.assign(0.09)
    assert advice(model, X) == []


def test_lengthscales_far_beyond_the_data_are_said_by_their_columns() -> None:
    model = make(X)
    model.kernel.lengthscales.assign([1.0, 101.0 * np.ptp(X[:, 1])])
    (said,) = advice(model, X)
    assert "1 of 2 lengthscales" in said
    assert "(column 1)" in said
    model.kernel.lengthscales.assign([1.0, 99.0 * np.ptp(X[:, 1])])
    assert advice(model, X) == []


def test_of_many_such_columns_a_few_are_listed() -> None:
    wide = RNG.normal(size=(20, 7))
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[1.0, *[1e4] * 6])
    (said,) = advice(AugmentedSVGP(kernel, likelihoods.StudentT(0.2, 4.0), wide), wide)
    assert "6 of 7 lengthscales" in said
    assert "(columns 1, 2, 3, 4 and 2 more)" in said


def test_lengthscales_are_those_of_active_dims_in_sums_and_multi_output_kernels() -> None:
    far = gpflow.kernels.Matern32(active_dims=[1], lengthscales=1e4)
    near = gpflow.kernels.Matern32(active_dims=[0])
    kernel = gpflow.kernels.SharedIndependent(near + far, output_dim=2)
    Z = gpflow.inducing_variables.SharedIndependentInducingVariables(
        gpflow.inducing_variables.InducingPoints(X.copy())
    )
    model = AugmentedSVGP(kernel, likelihoods.StudentT(), Z, num_latent_gps=2)
    (said,) = advice(model, X)
    assert "1 of 1 lengthscales of Matern32" in said
    assert "(column 1)" in said


@pytest.mark.parametrize(
    ("value", "is_said"), [(1.0 + 1e-5, True), (1.1, False), (50.0, False)], ids=str
)
def test_a_likelihood_at_its_bound_is_said(value: float, is_said: bool) -> None:
    model = make(X)
    model.likelihood.df.assign(value)
    said = advice(model, X)
    assert bool(said) is is_said
    if is_said:
        assert "likelihood.df" in said[0]
        assert "bound 1" in said[0]


def test_what_is_frozen_at_its_bound_is_not_said() -> None:
    model = make(X)
    model.likelihood.df.assign(1.0 + 1e-5)
    gpflow.set_trainable(model.likelihood.df, False)
    assert advice(model, X) == []


def test_a_transform_of_whole_vectors_bounds_no_element() -> None:
    """The transform of a mixture's weights maps K numbers to K − 1, so no weight has a bound."""
    mixture = NoiseMixture([likelihoods.Gaussian(0.1), likelihoods.StudentT(1.0)])
    model = make(X)
    model.likelihood = mixture
    assert advice(model, X) == []
    mixture.components[1].df.assign(1.0 + 1e-5)
    (said,) = advice(model, X)
    assert "bound 1 " in said


def test_each_element_of_a_vector_has_the_bound_of_its_own() -> None:
    model = make(X)
    ends = tfp.bijectors.Sigmoid(low=np.array([0.0, 2.0]), high=np.array([5.0, 7.0]))
    model.likelihood.extra = gpflow.Parameter([3.0, 3.0], transform=ends)
    assert advice(model, X) == []
    model.likelihood.extra.assign([4.9999, 3.0])
    (said,) = advice(model, X)
    assert "at the bound 5 of" in said


def test_what_fails_after_the_fit_costs_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    If the advice or the last ELBO fails, the fit is returned, with a warning that names the error.
    """

    def fail(*args: Any, **options: Any) -> Any:
        raise IndexError("index -1 is out of bounds")

    monkeypatch.setattr(fit_module, "advice", fail)
    monkeypatch.setattr(AugmentedSVGP, "objectives", fail)
    model, other = make(), make()
    result = gpflow_aaci.fit(model, (X, Y), progress=False)
    expected = gpflow_aaci.fit_collapsed(other, (X, Y), progress=False)
    assert result.converged
    assert result.reason == expected.reason
    np.testing.assert_allclose(model.q_mu, other.q_mu, rtol=1e-10)
    of_elbo, of_advice = result.warnings
    for said, what in ((of_elbo, "The ELBO"), (of_advice, "Advice")):
        assert said.startswith(what)
        assert said.endswith("could not be computed: IndexError: index -1 is out of bounds")
        assert said in str(result)
    assert np.isnan(result.elbo)


def test_a_small_unit_of_y_is_a_warning_of_the_result() -> None:
    """The jitter is an absolute number, beside which the kernel's variance is then small."""
    unit = 0.003
    model = make()
    model.kernel.variance.assign(unit**2)
    model.likelihood.scale.assign(unit)
    gpflow.set_trainable(model, False)  # but q is fitted
    result = gpflow_aaci.fit(model, (X, unit * Y), progress=False)
    (said,) = (each for each in result.warnings if "The kernel's variance is" in each)
    assert "lower gpflow.config.default_jitter()" in said
    assert said in str(result)


def test_the_result_says_it() -> None:
    result = gpflow_aaci.fit(make(X[:2]), (X, Y), progress=False)
    (said,) = (each for each in result.warnings if "The 2 inducing points leave" in each)
    assert said in str(result)
