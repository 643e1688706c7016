"""Converged means converged: from any sensible start, and a second fit gains next to nothing."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_aaci
from gpflow_aaci import AugmentedSVGP, AugmentedVGP, likelihoods
from gpflow_aaci.data import Arrays, as_data
from gpflow_aaci.inference.rescues import (
    has_long_lengthscales,
    left_by_others,
    spread_of_columns,
    typical_lengthscales,
)

Data = tuple[np.ndarray, np.ndarray]


def draw(seed: int, N: int, D: int, noise: str = "t") -> Data:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D))
    f = np.sin(2.0 * X[:, :1]) + (0.7 * X[:, 1:2] if D > 1 else 0.0)
    if noise == "binary":
        return X, (rng.uniform(size=f.shape) < 1.0 / (1.0 + np.exp(-3.0 * f))) * 1.0
    return X, f + 0.3 * rng.standard_t(4, f.shape)


def make(data: Data, likelihood: gpflow.likelihoods.Likelihood, M: int = 20) -> AugmentedSVGP:
    X, _ = data
    D = X.shape[1]
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.ones(D) if D > 1 else 1.0)
    model = AugmentedSVGP(kernel, likelihood, X[:M].copy(), num_data=len(X))
    gpflow.set_trainable(model.inducing_variable, False)
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "D"), [("t", 1), ("t", 6), ("binary", 3), ("laplace", 2)], ids=str
)
@pytest.mark.by_default("t-6")
def test_a_second_fit_of_a_converged_model_gains_less_than_the_tolerance(
    noise: str, D: int
) -> None:
    data = draw(0, 150, D, noise)
    likelihood = {
        "t": likelihoods.StudentT,
        "binary": likelihoods.Logistic,
        "laplace": likelihoods.Laplace,
    }[noise]()
    model = make(data, likelihood)
    first = gpflow_aaci.fit(model, data, progress=False)
    assert first.converged
    assert first.expected_gain < first.tolerance
    second = gpflow_aaci.fit(model, data, progress=False)
    assert 0.0 <= second.elbo - first.elbo < first.tolerance
    assert f"the tolerance is {first.tolerance:.1g}" in str(first)


@pytest.mark.replicate
def test_a_second_fit_of_rounded_y_gains_less_than_the_tolerance() -> None:
    """The best q is found slowly there, and the best noise, a 40th of the interval, lies flat."""
    X = np.linspace(0.0, 10.0, 80)[:, None]
    rounded = np.round(3.0 * np.sin(X))
    data = X, np.hstack([rounded - 0.5, rounded + 0.5])
    model = AugmentedSVGP(
        gpflow.kernels.SquaredExponential(),
        likelihoods.Interval("probit", 1.0),
        X[np.linspace(0, 79, 25).astype(int)],
        num_data=80,
    )
    gpflow.set_trainable(model.inducing_variable, False)
    first = gpflow_aaci.fit(model, data, progress=False)
    assert first.converged
    assert gpflow_aaci.fit(model, data, progress=False).elbo < first.elbo + first.tolerance


@pytest.mark.replicate
def test_a_second_fit_does_not_leave_the_optimum_on_all_rows_for_that_on_a_subset() -> None:
    """It is where the first one ended, and says so after few evaluations."""
    data = draw(7, 2_500, 3)
    model = make(data, likelihoods.StudentT())
    first = gpflow_aaci.fit(model, data, progress=False)
    assert 1_000 in set(first.history.rows)
    rows: list[int] = []
    second = gpflow_aaci.fit_collapsed(
        model, data, callback=lambda at: rows.append(at.rows), progress=False
    )
    assert second.converged
    assert set(rows) == {0, 2_500}
    assert 0.0 <= second.objective - first.elbo < first.tolerance


@pytest.mark.replicate
def test_a_model_that_is_not_at_its_optimum_begins_on_a_subset() -> None:
    data = draw(7, 2_500, 3)
    model = make(data, likelihoods.StudentT())
    gpflow_aaci.polish(model, data, progress=False)  # the optimal q, at the first hyperparameters
    result = gpflow_aaci.fit(model, data, progress=False)
    assert 1_000 in set(result.history.rows)


@pytest.mark.slow
def test_gpflows_optimizer_finds_no_more_than_the_tolerance_at_the_end() -> None:
    """L-BFGS from the end of a fit, all variables at once, on the same object."""
    data = draw(1, 120, 2)
    model = make(data, likelihoods.StudentT())
    result = gpflow_aaci.fit(model, data, tolerance=1e-3, progress=False)

    def loss() -> tf.Tensor:
        return -model.elbo(data)

    gpflow.optimizers.Scipy().minimize(
        tf.function(loss), model.trainable_variables, options={"maxiter": 500}
    )
    assert float(model.elbo(data)) - result.elbo < 1e-3


@pytest.mark.slow
def test_noise_that_grows_with_x_ends_where_gpr_does() -> None:
    """GPflow's notebook of varying noise, which a stop by small gains left a nat too early."""
    rng = np.random.default_rng(42)
    X = rng.uniform(0.0, 4.0, 100)[:, None]
    noise_scale = np.clip(0.05 + 0.2 * X**2 / 16.0, 0.01, None)
    Y = 0.3 * np.sin(6.0 * X) + noise_scale * rng.normal(size=X.shape)

    def likelihood() -> gpflow.likelihoods.Gaussian:
        return gpflow.likelihoods.Gaussian(scale=gpflow.functions.Polynomial(degree=2))

    gpr = gpflow.models.GPR((X, Y), gpflow.kernels.RBF(), likelihood=likelihood())
    gpflow.optimizers.Scipy().minimize(gpr.training_loss, gpr.trainable_variables)
    vgp = AugmentedVGP((X, Y), gpflow.kernels.RBF(), likelihood())
    result = gpflow_aaci.fit(vgp, progress=False)
    # A better mode of the noise's polynomial is fine; the same end, or better.
    assert result.elbo > float(gpr.log_marginal_likelihood()) - 0.02


# ---- starts ----


@pytest.mark.replicate
def test_fifty_standardised_columns_are_not_called_converged_at_f_of_zero() -> None:
    """At lengthscales of 1 no two rows are correlated, and so every gradient vanishes."""
    data = draw(2103, 100, 50)
    short, long = make(data, likelihoods.StudentT(), 40), make(data, likelihoods.StudentT(), 40)
    long.kernel.lengthscales.assign(np.sqrt(50.0) * data[0].std(0))
    result = gpflow_aaci.fit(short, data, progress=False)
    other = gpflow_aaci.fit(long, data, progress=False)
    assert result.elbo > other.elbo - 5.0  # a hundred rows have several modes of fifty lengthscales
    assert result.restart_gain > 20.0
    assert "second, from lengthscales of √D·sd(X), gained" in str(result)
    assert not other.restart_gain


@pytest.mark.replicate
def test_a_column_that_matters_comes_back_where_the_first_rows_had_lost_it() -> None:
    """On the first 1,000 rows the third of eight columns is better left out, on 5,000 it is not."""
    rng = np.random.default_rng(1050)
    X = rng.normal(size=(5_000, 8))
    f = np.sin(2.0 * X[:, :3]) @ [1.0, 0.7, 0.4]
    data = X, (f + 0.3 * rng.normal(size=len(X)))[:, None]
    model = make(data, likelihoods.Gaussian(), 60)
    result = gpflow_aaci.fit(model, data, progress=False)
    assert result.converged
    lengthscales = model.kernel.lengthscales.numpy()
    assert lengthscales[:3].max() < 3.0
    assert lengthscales[3:].min() > 30.0


@pytest.mark.replicate
@pytest.mark.parametrize("unit", [1e3, 1e-3])
def test_columns_in_another_unit_end_where_they_do_in_their_own(unit: float) -> None:
    X, Y = draw(3, 120, 2)
    model, other = make((unit * X, Y), likelihoods.Laplace()), make((X, Y), likelihoods.Laplace())
    result = gpflow_aaci.fit(model, (unit * X, Y), progress=False)
    expected = gpflow_aaci.fit(other, (X, Y), progress=False)
    assert abs(result.elbo - expected.elbo) < 0.1


@pytest.mark.parametrize(("lengthscales", "are_long"), [((40.0, 0.4), True), ((40.0, 0.2), False)])
def test_lengthscales_are_long_where_each_is_more_than_twice_the_typical_one(
    lengthscales: tuple[float, float], are_long: bool
) -> None:
    """√D·sd(X) is 14.1 and 0.141."""
    X, Y = draw(8, 50, 2)
    X = (X - X.mean(0)) / X.std(0) * [10.0, 0.1]
    model = make((X, Y), likelihoods.StudentT())
    model.kernel.lengthscales.assign(lengthscales)
    assert has_long_lengthscales(model, Arrays(X, Y)) == are_long


def test_lengthscales_that_the_user_fixed_stay() -> None:
    data = draw(4, 80, 20)
    model = make(data, likelihoods.StudentT())
    gpflow.set_trainable(model.kernel.lengthscales, False)
    before = model.kernel.lengthscales.numpy()
    result = gpflow_aaci.fit(model, data, progress=False)
    np.testing.assert_array_equal(model.kernel.lengthscales, before)
    assert not result.restart_gain


@pytest.mark.slow
def test_a_start_that_explains_the_data_is_the_only_one() -> None:
    data = draw(5, 120, 1)
    result = gpflow_aaci.fit(make(data, likelihoods.StudentT()), data, progress=False)
    assert result.restart_gain is None
    assert "a second time" not in str(result)


def test_what_other_rows_leave_is_one_minus_the_largest_squared_correlation() -> None:
    X, Y = draw(6, 30, 2)
    model = AugmentedVGP((X, Y), gpflow.kernels.Matern32(variance=3.0), likelihoods.StudentT())
    K = model.kernel(X).numpy() / 3.0
    np.fill_diagonal(K, 0.0)
    expected = np.mean(1.0 - np.max(K, axis=1) ** 2)
    left = left_by_others(model, as_data(model.expected_data))
    np.testing.assert_allclose(left, expected, rtol=1e-5)


def test_other_lengthscales_are_those_of_active_columns_and_of_nothing_fixed() -> None:
    """Neither a fixed lengthscale nor one of an angle; a shared one is of the mean square."""
    X = draw(7, 60, 3)[0] * [1.0, 10.0, 100.0]
    sd = spread_of_columns(Arrays(tf.constant(X), tf.constant(X[:, :1])))
    np.testing.assert_allclose(sd, X.std(0))
    each = gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0], active_dims=[0, 2])
    shared, fixed = gpflow.kernels.Matern32(), gpflow.kernels.Matern52()
    gpflow.set_trainable(fixed.lengthscales, False)
    angle = gpflow.kernels.Periodic(gpflow.kernels.SquaredExponential(active_dims=[0]))
    found = typical_lengthscales(each + shared * fixed + angle, sd)
    assert [parameter for parameter, _ in found] == [each.lengthscales, shared.lengthscales]
    np.testing.assert_allclose(found[0][1], np.log(np.sqrt(2.0) * sd[[0, 2]]))
    np.testing.assert_allclose(found[1][1], np.log(np.sqrt(np.sum(sd**2))))
