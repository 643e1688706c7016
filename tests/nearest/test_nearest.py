"""``AugmentedNNGP``: exact where all rows are neighbours, honest where they are not."""

import pickle
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray
from scipy.special import expit

import gpflow_aaci
from gpflow_aaci import AugmentedNaturalGradient, AugmentedNNGP, AugmentedVGP, likelihoods, loo
from gpflow_aaci.nearest import neighbors
from gpflow_aaci.predictions import predict_y_quantile

STATIONARY = [
    gpflow.kernels.SquaredExponential,
    gpflow.kernels.RationalQuadratic,
    gpflow.kernels.Exponential,
    gpflow.kernels.Matern12,
    gpflow.kernels.Matern32,
    gpflow.kernels.Matern52,
    gpflow.kernels.Cosine,
]
OTHER_KERNELS = {
    "Linear": gpflow.kernels.Linear,
    "Sum with Linear": lambda: gpflow.kernels.Matern32() + gpflow.kernels.Linear(variance=0.3),
    "Product": lambda: gpflow.kernels.Matern32(active_dims=[0]) * gpflow.kernels.Constant(2.0),
    "Periodic": lambda: gpflow.kernels.Periodic(gpflow.kernels.SquaredExponential(), period=3.0),
    "Polynomial": lambda: gpflow.kernels.Polynomial(degree=2.0),
    "ArcCosine": gpflow.kernels.ArcCosine,
    "White": lambda: gpflow.kernels.Matern32() + gpflow.kernels.White(0.1),
}
OBSERVED = {
    "StudentT": (lambda: likelihoods.StudentT(0.2, 4.0), lambda f: f),
    "Laplace": (lambda: likelihoods.Laplace(0.2), lambda f: f),
    "Logistic": (likelihoods.Logistic, lambda f: (f > 0.0) * 1.0),
    "NegativeBinomial": (lambda: likelihoods.NegativeBinomial(3.0), lambda f: np.floor(np.exp(f))),
    "LogisticSoftmax": (lambda: likelihoods.LogisticSoftmax(3), lambda f: np.round(f + 1.0)),
    "Heteroscedastic": (
        lambda: likelihoods.Heteroscedastic(likelihoods.StudentT(1.0, 4.0), 20.0),
        lambda f: f,
    ),
}
DEAR = ("Heteroscedastic", "NegativeBinomial", "LogisticSoftmax")  # to compile
NO_JITTER = gpflow.config.Config(jitter=1e-13)


def simulated(num_rows: int = 40, seed: int = 0) -> tuple[AnyNDArray, AnyNDArray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (num_rows, 2))
    return X, np.sin(X.sum(1, keepdims=True)) + 0.1 * rng.standard_normal((num_rows, 1))


X, F = simulated()
NEW = simulated(7, 1)[0]


def of_all_rows(name: str, num_steps: int = 2) -> tuple[AugmentedNNGP, AnyNDArray]:
    make, observe = OBSERVED[name]
    Y = observe(F)
    model = AugmentedNNGP(
        (X, Y), gpflow.kernels.Matern32(lengthscales=1.5), make(), len(X), num_steps=num_steps
    )
    return model, Y


@pytest.mark.briefly("Linear")
@pytest.mark.by_default("Matern32", "Linear", "Cosine", "<lambda>0")
@pytest.mark.parametrize("make", [*STATIONARY, *OTHER_KERNELS.values()])
def test_with_gaussian_noise_and_all_rows_it_is_gpr(make: type) -> None:
    model = AugmentedNNGP((X, F), make(), gpflow.likelihoods.Gaussian(0.05), len(X))
    exact = gpflow.models.GPR((X, F), make(), noise_variance=0.05)
    # GPflow's own K and K_diag of ArcCosine differ by 1e-8.
    atol = 1e-7 if make is gpflow.kernels.ArcCosine else 1e-8
    for full_cov in (False, True):
        found = model.predict_f(NEW, full_cov=full_cov)
        for part, expected in zip(found, exact.predict_f(NEW, full_cov=full_cov), strict=True):
            np.testing.assert_allclose(part, expected, atol=atol)


@pytest.mark.briefly("Laplace")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in DEAR)) for name in OBSERVED],
)
def test_with_all_rows_it_is_the_augmented_gp_after_as_many_steps(name: str) -> None:
    model, Y = of_all_rows(name)
    with gpflow.config.as_context(NO_JITTER):
        exact = AugmentedVGP((X, Y), model.kernel, model.likelihood)
        steps = AugmentedNaturalGradient(1.0)
        for _ in range(model.num_steps + 1):  # the last sites are those at the last marginals
            steps.minimize(exact)
        for part, expected in zip(model.predict_f(NEW), exact.predict_f(NEW), strict=True):
            np.testing.assert_allclose(part, expected, atol=1e-8)


def test_leave_one_out_of_gaussian_noise_is_that_of_gpr() -> None:
    """Rasmussen and Williams, Eq. 5.10 to 5.12."""
    model = AugmentedNNGP((X, F), gpflow.kernels.Matern52(), likelihoods.Gaussian(0.05), len(X))
    inverse = np.linalg.inv(model.kernel(X) + 0.05 * np.eye(len(X)))
    variance = 1.0 / np.diag(inverse)
    mean = F[:, 0] - (inverse @ F)[:, 0] * variance
    expected = -0.5 * (np.log(2 * np.pi * variance) + (F[:, 0] - mean) ** 2 / variance)
    np.testing.assert_allclose(loo(model).loo_i, expected, atol=1e-8)


@pytest.mark.briefly("StudentT")
@pytest.mark.parametrize("name", ["StudentT", "Logistic"])
def test_leave_one_out_is_the_density_after_the_row_was_deleted(name: str) -> None:
    make, observe = OBSERVED[name]
    rows = np.vstack([X, X[:3]])  # three rows have a copy, which stays
    Y = observe(np.vstack([F, F[:3] + 0.2]))
    model = AugmentedNNGP((rows, Y), gpflow.kernels.Matern32(), make(), 12)
    found = loo(model).loo_i.values
    for row in (0, 5, 41):
        others = np.arange(len(rows)) != row
        less = AugmentedNNGP(
            (rows[others], Y[others]), model.kernel, model.likelihood, 12, metric=model.metric
        )
        expected = less.predict_log_density((rows[[row]], Y[[row]]))[0]
        np.testing.assert_allclose(found[row], expected, atol=1e-10)


def test_no_row_is_among_its_own_neighbours() -> None:
    model = of_all_rows("StudentT")[0]
    rows, near = model.frozen
    assert not np.any(near == rows[:, None])


def test_the_objective_leaves_out_all_rows_with_the_same_input() -> None:
    repeated = np.vstack([X, X])
    model = AugmentedNNGP(
        (repeated, np.vstack([F, F])), gpflow.kernels.Matern32(), likelihoods.StudentT(0.1), 10
    )
    once = AugmentedNNGP((X, F), model.kernel, model.likelihood, 79)
    rows = np.arange(len(X))
    label = np.arange(2 * len(X)) % len(X)
    near = model.neighbors_of_rows(rows, 10, leave_out_repeats=True)
    assert not np.any(label[near] == rows[:, None])
    copies_stay = model.neighbors_of_rows(rows, 1, leave_out_repeats=False)[:, 0]
    np.testing.assert_array_equal(copies_stay, rows + len(X))
    assert np.isfinite(once.training_loss())


@pytest.mark.parametrize("columns", [3, 20])
@pytest.mark.parametrize(("num_rows", "by"), [(300, "blocks"), (6_000, "tree"), (6_000, "blocks")])
def test_neighbours_are_the_nearest(
    columns: int, num_rows: int, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against all distances, by a tree before and after its rows are ordered, and by blocks."""
    monkeypatch.setattr(neighbors, "_MANY_QUERIES", 8)
    if by == "blocks":
        monkeypatch.setattr(neighbors, "_FEWEST_ROWS_OF_TREES", 10_000)
    rng = np.random.default_rng(0)
    features = rng.integers(0, 4, (num_rows, columns)).astype(float)
    search = neighbors.Neighbors(features)
    for _ in range(2):
        queries = rng.uniform(0.0, 3.0, (5, columns))
        found = search.of(queries, 9)
        squares = np.square(features - queries[:, None]).sum(-1)
        expected = np.sort(squares, 1)[:, :9]
        np.testing.assert_allclose(np.take_along_axis(squares, found, 1), expected, atol=1e-12)


def test_rows_of_a_plane_differ_in_two_directions() -> None:
    """So that a tree searches them, however many columns they have."""
    rng = np.random.default_rng(0)
    plane = rng.standard_normal((20_000, 2)) @ np.linalg.qr(rng.standard_normal((30, 2)))[0].T
    np.testing.assert_allclose(neighbors.num_directions(plane), 2.0, rtol=0.01)
    noise = rng.standard_normal((20_000, 30))
    np.testing.assert_allclose(neighbors.num_directions(noise), 30.0, rtol=0.02)


def test_gradients_of_the_objective_are_its_slopes() -> None:
    model, _ = of_all_rows("StudentT")
    model = AugmentedNNGP(model.data, model.kernel, model.likelihood, 10)
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    variable = model.kernel.lengthscales.unconstrained_variable
    slope = tape.gradient(loss, variable)
    before, step = variable.numpy(), 1e-5
    ends = []
    for sign in (1.0, -1.0):
        variable.assign(before + sign * step)
        ends.append(model.training_loss())
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2.0 * step), rtol=1e-6)


@pytest.mark.slow
def test_compiled_and_saved_predictions_are_the_eager_ones(tmp_path: Path) -> None:
    model = AugmentedNNGP((X, F), gpflow.kernels.Matern32(), likelihoods.StudentT(0.1), 10)
    expected = model.predict_f(NEW)
    module = tf.Module()
    module.model = model
    module.predict = tf.function(
        model.predict_f, input_signature=[tf.TensorSpec([None, 2], tf.float64)]
    )
    tf.saved_model.save(module, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    for predict in (module.predict, loaded.predict):
        for part, value in zip(predict(NEW), expected, strict=True):
            np.testing.assert_allclose(part, value, atol=1e-12)


def test_a_checkpoint_brings_back_metric_and_numbers_of_neighbours(tmp_path: Path) -> None:
    def make() -> AugmentedNNGP:
        return AugmentedNNGP((X, F), gpflow.kernels.Matern32(), likelihoods.StudentT(0.1), 10)

    model, other = make(), make()
    other.predict_f(NEW)  # with neighbours in its first metric
    model.metric, model.prediction_neighbors, model.prediction_steps = [1.0, 5.0], 15, 3
    model.kernel.lengthscales.assign(0.7)
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "model"))
    tf.train.Checkpoint(model=other).restore(path)
    for part, expected in zip(other.predict_f(NEW), model.predict_f(NEW), strict=True):
        np.testing.assert_array_equal(part, expected)


def test_float32_predictions_are_those_of_float64() -> None:
    far = X + 1_000.0  # the digits of float32 are spent on the offset unless it is subtracted
    kernel = gpflow.kernels.Matern52()
    model = AugmentedNNGP((far, F), kernel, likelihoods.StudentT(0.05), 20)
    frozen = gpflow.utilities.freeze_as_float32(model)
    new = far[:5] + np.float64(0.125)
    for part, expected in zip(frozen.predict_f(new), model.predict_f(new), strict=True):
        assert part.dtype == tf.float32
        np.testing.assert_allclose(part, expected, atol=2e-3)


def test_added_rows_are_used_and_removed_rows_are_not() -> None:
    model = AugmentedNNGP((X[:30], F[:30]), gpflow.kernels.Matern32(), likelihoods.Laplace(), 8)
    whole = AugmentedNNGP((X, F), model.kernel, model.likelihood, 8, metric=model.metric)
    before = model.predict_f(NEW)
    model.add(X[30:], F[30:])
    np.testing.assert_array_equal(model.predict_f(NEW)[0], whole.predict_f(NEW)[0])
    model.remove(np.arange(len(X)) >= 30)
    np.testing.assert_array_equal(model.predict_f(NEW)[0], before[0])


def test_a_joint_prediction_of_many_neighbours_is_refused() -> None:
    rows, f = simulated(2_500)
    model = AugmentedNNGP((rows, f), gpflow.kernels.Matern32(), likelihoods.StudentT(), 8)
    with pytest.raises(ValueError, match=r"at most 2,000 different neighbours.*Found: 2,\d\d\d"):
        model.predict_f(rows, full_cov=True)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"likelihood": gpflow.likelihoods.Poisson()}, "must have an augmentation.*Found: Poisson"),
        ({"num_neighbors": 0}, "num_neighbors must be an integer of at least 1. Found: 0"),
        ({"num_steps": 0}, "num_steps must be an integer of at least 1. Found: 0"),
        ({"metric": [1.0, -1.0]}, r"metric must be 2 positive numbers.*Found: \[ 1. -1.\]"),
        ({"data": (X, np.where(F > 0.9, np.nan, F))}, "Y must be finite"),
        (
            {
                "kernel": gpflow.kernels.LinearCoregionalization(
                    [gpflow.kernels.Matern32()], W=np.ones((1, 1))
                )
            },
            "under LinearCoregionalization",
        ),
    ],
)
def test_bad_arguments_are_refused_with_their_name(changed: dict, message: str) -> None:
    arguments = {
        "data": (X, F),
        "kernel": gpflow.kernels.Matern32(),
        "likelihood": likelihoods.StudentT(),
        **changed,
    }
    with pytest.raises(ValueError, match=message):
        AugmentedNNGP(**arguments)


@pytest.mark.slow
def test_a_fresh_model_is_trained_by_gpflows_optimizers() -> None:
    model = AugmentedNNGP((X, F), gpflow.kernels.Matern32(), likelihoods.StudentT(), 10)
    before = model.training_loss_closure()()  # compiled before anything else
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, options={"maxiter": 3}
    )
    assert model.training_loss() < before


def test_lengthscales_are_those_of_the_columns_of_each_kernel() -> None:
    kernel = gpflow.kernels.Matern32(lengthscales=[1.0, 100.0], active_dims=[2, 0])
    kernel += gpflow.kernels.SquaredExponential(lengthscales=7.0, active_dims=[2, 3])
    kernel += gpflow.kernels.Periodic(
        gpflow.kernels.SquaredExponential(lengthscales=0.1, active_dims=[1]), period=1.0
    )
    inputs = np.hstack([X, 2.0 * X])
    model = AugmentedNNGP((inputs, F), kernel, likelihoods.StudentT(), 10)
    np.testing.assert_allclose(model.metric, [100.0, 1e4 * X[:, 1].std(), 1.0, 7.0])


def test_what_is_near_may_be_a_function() -> None:
    """Angles: 0 and 2π are the same."""
    angle = np.linspace(0.0, 2.0 * np.pi, 60)[:, None]
    kernel = gpflow.kernels.Periodic(gpflow.kernels.SquaredExponential(), period=2.0 * np.pi)
    model = AugmentedNNGP(
        (angle, np.sin(angle)),
        kernel,
        likelihoods.StudentT(0.1),
        8,
        metric=lambda x: np.hstack([np.cos(x), np.sin(x)]),
    )
    near = model.neighbors_of_rows(np.array([0]), 4, leave_out_repeats=False)
    assert set(near[0]) == {59, 58, 1, 2} or set(near[0]) == {59, 1, 58, 2}
    assert abs(float(model.predict_f(np.array([[0.01]]))[0])) < 0.1


def test_a_model_that_has_predicted_is_pickled() -> None:
    model = AugmentedNNGP((X, F), gpflow.kernels.Matern32(), likelihoods.StudentT(0.1), 10)
    expected = model.predict_f(NEW)[0]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_f(NEW)[0], expected)


def test_no_rows_have_predictions_of_no_rows() -> None:
    rows, f = simulated(5_500)  # searched by a tree
    model = AugmentedNNGP((rows, f), gpflow.kernels.Matern32(), likelihoods.StudentT(), 4)
    assert model.predict_f(NEW[:0])[0].shape == (0, 1)


# ---- fit ----


def test_a_fit_without_trainable_parameters_chooses_neighbours_alone() -> None:
    model = AugmentedNNGP((X, F), gpflow.kernels.Matern32(), likelihoods.StudentT(0.1), 10)
    gpflow.set_trainable(model, False)
    result = gpflow_aaci.fit(model, progress=False)
    assert result.converged
    assert result.expected_gain == 0.0


@pytest.mark.replicate
def test_a_prior_counts_once_and_not_in_the_density() -> None:
    model = AugmentedNNGP((X, F), gpflow.kernels.Matern32(), likelihoods.StudentT(0.1), 10)
    model.kernel.lengthscales.prior = tfp.distributions.LogNormal(np.float64(0.0), np.float64(1e-3))
    result = gpflow_aaci.fit(model, progress=False)
    np.testing.assert_allclose(model.kernel.lengthscales, 1.0, atol=0.02)
    density = float(model.maximum_log_likelihood_objective()) / model.num_data
    np.testing.assert_allclose(result.log_density, density)


@pytest.mark.replicate
def test_the_variance_of_f_is_not_bound_by_a_small_unit_of_y() -> None:
    """f of a waiting time does not have the unit of y."""
    times = 1e-4 * np.random.default_rng(0).exponential(np.exp(-2.0 * F))
    model = AugmentedNNGP((X, times), gpflow.kernels.Matern32(), likelihoods.Exponential(1e5), 20)
    gpflow_aaci.fit(model, progress=False)
    assert model.kernel.variance.numpy() > 1e-2


@pytest.mark.replicate
def test_fit_ends_at_a_maximum_of_its_objective() -> None:
    rows, f = simulated(300)
    model = AugmentedNNGP(
        (rows, f), gpflow.kernels.Matern32(lengthscales=[1.0, 1.0]), likelihoods.StudentT(), 16
    )
    result = gpflow_aaci.fit(model, progress=False)
    assert result.converged
    before = -model.training_loss() / model.num_data
    np.testing.assert_allclose(before, result.log_density, rtol=1e-10)
    gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables)
    assert -model.training_loss() / model.num_data < before + 2.0 * result.tolerance


@pytest.mark.slow
def test_fit_gives_the_held_out_density_of_the_exact_gp() -> None:
    rows, f = simulated(400)
    new, f_new = simulated(200, 1)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0])
    model = AugmentedNNGP((rows, f), kernel, likelihoods.Gaussian())
    gpflow_aaci.fit(model, progress=False)
    model.prediction_neighbors = 256
    exact = gpflow.models.GPR((rows, f), gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0]))
    gpflow.optimizers.Scipy().minimize(exact.training_loss, exact.trainable_variables)
    densities = [np.mean(m.predict_log_density((new, f_new))) for m in (model, exact)]
    assert densities[0] > densities[1] - 0.02


@pytest.mark.replicate
def test_units_of_x_do_not_matter_to_a_fit() -> None:
    rows, f = simulated(300)
    ends = []
    for unit in (1.0, 1e3):
        kernel = gpflow.kernels.Matern32(lengthscales=[1.0, 1.0])
        model = AugmentedNNGP((unit * rows, f), kernel, likelihoods.StudentT())
        ends.append(gpflow_aaci.fit(model, progress=False).log_density)
    np.testing.assert_allclose(*ends, atol=5e-3)


@pytest.mark.replicate
def test_the_noise_of_rounded_y_stops_at_its_resolution() -> None:
    """The density of ties grows without limit as the scale of the noise falls."""
    rows, f = simulated(400)
    model = AugmentedNNGP(
        (rows, np.round(f / 1.5)), gpflow.kernels.Matern32(), likelihoods.StudentT()
    )
    result = gpflow_aaci.fit(model, progress=False)
    np.testing.assert_allclose(model.likelihood.scale, 1.0 / np.sqrt(12.0), rtol=1e-5)
    assert any("Interval, or Ordinal" in said for said in result.warnings)


def test_a_failed_fit_leaves_the_model_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model = AugmentedNNGP((X, F), gpflow.kernels.Matern32(), likelihoods.StudentT(), 10)
    before = [variable.numpy() for variable in model.variables]
    loss = model.training_loss()

    def failing(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(AugmentedNNGP, "given_neighbors", failing)
    with pytest.raises(KeyboardInterrupt):
        gpflow_aaci.fit(model, progress=False)
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    assert model.training_loss() == loss


@pytest.mark.slow
def test_intervals_of_y_hold_as_many_as_they_say() -> None:
    rows, f = simulated(1_500)
    new, f_new = simulated(500, 1)
    model = AugmentedNNGP((rows, f), gpflow.kernels.Matern32(), likelihoods.StudentT())
    gpflow_aaci.fit(model, progress=False)
    low, high = predict_y_quantile(model, new, [0.05, 0.95]).numpy()
    assert 0.86 < np.mean((low < f_new) & (f_new < high)) < 0.94


@pytest.mark.parametrize("argument", ["rows", "checkpoint_dir"])
def test_fit_refuses_what_it_does_not_use(argument: str) -> None:
    model = AugmentedNNGP((X, F), gpflow.kernels.Matern32(), likelihoods.StudentT(), 10)
    with pytest.raises(ValueError, match=f"{argument} must be None for AugmentedNNGP"):
        gpflow_aaci.fit(model, **{argument: "all"})


def test_samplers_and_training_refuse_a_model_without_q() -> None:
    model = AugmentedNNGP((X, F), gpflow.kernels.Matern32(), likelihoods.StudentT(), 10)
    with pytest.raises(ValueError, match=r"Found: AugmentedNNGP. It has no q\(u\)"):
        gpflow_aaci.polish(model)
    with pytest.raises(ValueError, match=r"model must be .* Found: AugmentedNNGP"):
        gpflow_aaci.sample_posterior(model)


DRAWN = {
    "Logistic": (likelihoods.Logistic, lambda f, rng: rng.uniform(size=f.shape) < expit(f)),
    "StudentT": (
        lambda: likelihoods.StudentT(0.2, 3.0),
        lambda f, rng: f + 0.2 * rng.standard_t(3, f.shape),
    ),
    "NegativeBinomial": (
        lambda: likelihoods.NegativeBinomial(2.0),
        lambda f, rng: rng.negative_binomial(2.0, expit(-f)),
    ),
    "Laplace": (
        lambda: likelihoods.Laplace(0.3),
        lambda f, rng: f + 0.3 * rng.laplace(size=f.shape),
    ),
}


@pytest.mark.replicate
@pytest.mark.parametrize("name", DRAWN)
def test_of_800_rows_128_neighbours_predict_nearly_as_all(name: str) -> None:
    """Mean log densities of 2,000 new rows, at the parameters that the data were drawn with."""
    make, draw = DRAWN[name]
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 3.0, (2_800, 3))
    kernel = gpflow.kernels.Matern52(lengthscales=[0.8, 1.0, 1.5])
    K = kernel(X).numpy() + 1e-8 * np.eye(len(X))
    f = np.linalg.cholesky(K) @ rng.standard_normal((len(X), 1))
    Y = draw(f, rng).astype(float)
    seen, new = (X[:800], Y[:800]), (X[800:], Y[800:])
    exact = AugmentedVGP(seen, kernel, make())
    gpflow_aaci.polish(exact, progress=False)
    nearest = AugmentedNNGP(seen, kernel, make(), 128, num_steps=4)
    gains = nearest.predict_log_density(new) - exact.predict_log_density(new)
    assert abs(float(tf.reduce_mean(gains))) < 0.005


@pytest.mark.replicate
def test_intervals_of_many_neighbours_hold_what_they_say() -> None:
    """A kernel that is rougher than f: at the variance of 16 neighbours they hold 99 %."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (1_700, 4))
    f = np.sin(0.6 * X @ rng.standard_normal((4, 5))).sum(1, keepdims=True)
    Y = f / f.std()
    kernel = gpflow.kernels.Matern32(lengthscales=[1.0] * 4)
    model = AugmentedNNGP((X[:1_100], Y[:1_100]), kernel, gpflow.likelihoods.Gaussian(0.01), 16)
    result = gpflow_aaci.fit(model, progress=False)
    X, Y = X[1_100:], Y[1_100:]
    low, high = predict_y_quantile(model, X, [0.05, 0.95], progress=False).numpy()
    assert 0.87 <= np.mean((low <= Y) & (high >= Y)) <= 0.93
    density = model.predict_log_density((X, Y)).numpy().mean()
    kernel.variance.assign(kernel.variance / result.variance_factor)
    assert density > model.predict_log_density((X, Y)).numpy().mean() + 0.3
