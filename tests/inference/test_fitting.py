"""``fit_collapsed``, ``polish`` and the profile that they maximise."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import gpflow
import numpy as np
import pytest
import sklearn.datasets
import tensorflow as tf
import tensorflow_probability as tfp

import gpflow_aaci
from gpflow_aaci import inference, likelihoods
from gpflow_aaci.algebra.gaussian import Gaussian
from gpflow_aaci.data import Arrays
from gpflow_aaci.inference import collapsed
from gpflow_aaci.inference.coordinates import Coordinates
from gpflow_aaci.inference.profile import Profile
from gpflow_aaci.models import hyperparameters
from gpflow_aaci.models.shared import prior_q

Data = tuple[np.ndarray, np.ndarray]


def diabetes(rows: int = 442) -> Data:
    X, y = sklearn.datasets.load_diabetes(return_X_y=True)
    X, y = X[:rows], y[:rows, None]
    return (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()


def breast_cancer(rows: int = 569) -> Data:
    X, y = sklearn.datasets.load_breast_cancer(return_X_y=True)
    X = X[:rows]
    return (X - X.mean(0)) / X.std(0), y[:rows, None].astype(float)


def make_model(
    data: Data, likelihood: gpflow.likelihoods.Likelihood, M: int = 20, **options: object
) -> gpflow_aaci.AugmentedSVGP:
    X, _ = data
    dim = X.shape[1]
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[np.sqrt(2.0 * dim)] * dim)
    model = gpflow_aaci.AugmentedSVGP(kernel, likelihood, X[:M].copy(), **options)
    gpflow.set_trainable(model.inducing_variable, False)
    return model


class Pieces(Arrays):
    """Data in chunks that end at ``cuts``."""

    def __init__(self, data: Data, *cuts: int, num_data: float | None = None) -> None:
        super().__init__(*data, num_data=num_data or len(data[0]))
        self.cuts = cuts

    @property
    def only_chunk(self) -> tuple[tf.Tensor, tf.Tensor] | None:
        return None if self.cuts else super().only_chunk

    def chunks(self) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
        parts = (np.split(part, self.cuts) for part in (self.X, self.Y))
        yield from ((tf.constant(x), tf.constant(y)) for x, y in zip(*parts, strict=True))


@pytest.mark.briefly("Z stays")
@pytest.mark.parametrize("moves", [False, True], ids=["Z stays", "Z moves"])
def test_the_factor_of_gaussian_noise_is_optimal_whatever_the_kernel(moves: bool) -> None:
    """
    With Z = X, begun at the factor of another kernel, the ELBO is log p(y) of ``GPR``, unstepped.

    So it is if Z moves to the same points in another order.
    """
    X, _ = data = diabetes(60)
    model = make_model(data, likelihoods.Gaussian(0.5), M=60)
    gpflow.set_trainable(model.inducing_variable, moves)
    profile, rows = Profile(model, hyperparameters(model)), Pieces(data)
    found = profile.evaluate(rows, prior_q(60, 1), 1e-6)
    model.kernel.variance.assign(0.3)
    model.kernel.lengthscales.assign(np.linspace(1.0, 9.0, 10))
    if moves:
        model.inducing_variable.Z.assign(np.roll(X, 7, 0))
    there, as_it_was = (
        profile.evaluate(rows, start, 0.0, max_steps=0).objective
        for start in (found.q, Gaussian(*found.q))
    )
    gpr = gpflow.models.GPR(data, model.kernel, noise_variance=0.5)
    np.testing.assert_allclose(there, float(gpr.log_marginal_likelihood()), atol=1e-3)
    assert as_it_was < there - 1.0


@pytest.mark.slow
@pytest.mark.by_default("StudentT-three chunks", "Poisson-Z moves")
@pytest.mark.parametrize("how", ["whole", "three chunks", "Z moves"])
@pytest.mark.parametrize("name", ["StudentT", "Poisson", "Beta"])
def test_a_search_from_the_factor_of_other_hyperparameters_starts_nearer(
    name: str, how: str
) -> None:
    """It starts ten times nearer than at the same q(v), and ends at the same maximum."""
    X, y = diabetes(120)
    likelihood, Y = {
        "StudentT": (likelihoods.StudentT(), y),
        "Poisson": (likelihoods.Poisson(10.0), np.round(np.exp(y))),
        "Beta": (gpflow.likelihoods.Beta(), 1.0 / (1.0 + np.exp(-y))),
    }[name]
    model = make_model((X, Y), likelihood, M=60)
    gpflow.set_trainable(model.inducing_variable, how == "Z moves")
    rows = Pieces((X, Y), *((40, 80) if how == "three chunks" else ()))
    profile = Profile(model, hyperparameters(model))
    found = profile.evaluate(rows, prior_q(60, 1), 1e-8)
    model.kernel.variance.assign(2.0)
    model.kernel.lengthscales.assign(np.linspace(2.0, 7.0, 10))
    if how == "Z moves":
        noise = np.random.default_rng(0).normal(size=(60, 10))
        model.inducing_variable.Z.assign(X[:60] + 0.3 * noise)
    starts = found.q, Gaussian(*found.q)
    ends = [profile.evaluate(rows, start, 1e-8) for start in starts]
    np.testing.assert_allclose(ends[0].objective, ends[1].objective, atol=1e-6)
    np.testing.assert_allclose(ends[0].q.mu, ends[1].q.mu, atol=1e-3)
    np.testing.assert_allclose(ends[0].gradient, ends[1].gradient, atol=1e-2)
    assert ends[0].steps < ends[1].steps
    near, far = (
        ends[0].objective - profile.evaluate(rows, start, 0.0, 0).objective for start in starts
    )
    assert 0.0 <= near < 0.1 * far


@pytest.mark.slow
def test_at_the_same_hyperparameters_a_search_starts_at_q_itself() -> None:
    data = diabetes(120)
    model = make_model(data, likelihoods.StudentT())
    profile = Profile(model, hyperparameters(model))
    for rows in (Pieces(data), Pieces(data, 50)):
        found = profile.evaluate(rows, prior_q(20, 1), 1e-6)
        for start in (found.q, Gaussian(*found.q)):
            again = profile.evaluate(rows, start, 0.0, 0)
            assert again.objective == pytest.approx(found.objective, rel=1e-14)
            np.testing.assert_array_equal(again.q.sqrt, found.q.sqrt)
    moved = found.q._replace(mu=found.q.mu + 1.0)
    assert profile.evaluate(rows, moved, 0.0, 0).objective < found.objective - 1.0


@pytest.mark.slow
@pytest.mark.by_default("three chunks-True")
@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("cuts", [(), (40, 80)], ids=["whole", "three chunks"])
def test_profile_gradient_is_the_finite_difference_of_the_profile(
    whiten: bool, cuts: tuple[int, ...]
) -> None:
    data = diabetes(120)
    model = make_model(
        data,
        likelihoods.StudentT(0.5, 4.0),
        whiten=whiten,
        num_data=300,
        mean_function=gpflow.functions.Constant(0.3),
    )
    model.kernel.variance.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(3.0))
    variables = hyperparameters(model)
    profile, rows = Profile(model, variables), Pieces(data, *cuts, num_data=300)

    def value() -> tuple[float, np.ndarray]:
        found = profile.evaluate(rows, prior_q(20, 1), 1e-12, 60)
        return found.objective, found.gradient

    _, gradient = value()
    at = 0
    for variable in variables:
        size = int(np.prod(variable.shape))
        here, ends = variable.numpy(), []
        for step in (1e-4, -1e-4):
            variable.assign(here + step)
            ends.append(value()[0])
        variable.assign(here)
        difference = (ends[0] - ends[1]) / 2e-4
        np.testing.assert_allclose(gradient[at : at + size].sum(), difference, rtol=1e-5, atol=1e-5)
        at += size
    assert at == len(gradient)


@pytest.mark.slow
def test_one_chunk_or_many_give_the_same_profile() -> None:
    data = diabetes(120)
    model = make_model(data, likelihoods.Laplace(0.5))
    profile = Profile(model, hyperparameters(model))
    begin = profile.evaluate(Pieces(data), prior_q(20, 1), 1e-9).q
    model.kernel.lengthscales.assign([3.0] * 10)
    one, two = (profile.evaluate(rows, begin, 1e-9) for rows in (Pieces(data), Pieces(data, 50)))
    assert one.steps == two.steps > 1
    np.testing.assert_allclose(one.objective, two.objective, rtol=1e-10)
    np.testing.assert_allclose(one.q.sqrt, two.q.sqrt, atol=1e-8)
    np.testing.assert_allclose(one.gradient, two.gradient, rtol=1e-7, atol=1e-7)


@pytest.mark.slow
def test_a_newton_step_that_fails_is_replaced_by_a_safer_one() -> None:
    """
    The first step from this q, far from the optimum and with small noise, would lower the ELBO.

    Every step that is accepted raises it, and ``found.elbo`` is the ELBO at the returned q.
    """
    data = diabetes(120)
    model = make_model(data, likelihoods.StudentT(0.02, 1.5))
    profile, rows = Profile(model, []), Pieces(data)
    far = prior_q(20, 1)._replace(mu=tf.constant(np.full([20, 1], 3.0)))
    elbos = [profile.elbo(rows, far)]
    for steps in range(1, 6):
        found = profile.maximise(rows, far, 0.0, steps)
        elbos.append(float(found.elbo))
        np.testing.assert_allclose(profile.elbo(rows, found.q), found.elbo, rtol=1e-10)
    assert np.all(np.diff(elbos) >= 0.0)
    assert np.all(np.diff(elbos[:4]) > 0.0)


@pytest.mark.by_default("diabetes")
@pytest.mark.parametrize("problem", ["diabetes", "breast_cancer", "breast_cancer, probit"])
@pytest.mark.slow
def test_fit_ends_where_gradients_vanish(problem: str) -> None:
    """At the end, the gradients of the fitted objective in θ and in q vanish."""
    data = {
        "diabetes": diabetes,
        "breast_cancer": breast_cancer,
        "breast_cancer, probit": lambda: breast_cancer(300),
    }[problem]()
    likelihood = {
        "diabetes": lambda: likelihoods.StudentT(0.5, 4.0),
        "breast_cancer": likelihoods.Logistic,
        "breast_cancer, probit": likelihoods.Probit,
    }[problem]()
    model = make_model(data, likelihood)
    elbo = model.elbo
    start = float(elbo(data))
    result = gpflow_aaci.fit_collapsed(model, data, tolerance=1e-5)
    end = float(elbo(data))
    assert result.converged
    np.testing.assert_allclose([result.start, result.objective], [start, end], rtol=1e-7)
    # L-BFGS on the same objective, with all variables at once, gains next to nothing.
    gpflow.optimizers.Scipy().minimize(
        tf.function(lambda: -elbo(data)), model.trainable_variables, options={"maxiter": 300}
    )
    assert float(elbo(data)) - end < 2e-3 * len(data[0])
    assert end - start > 0.05 * len(data[0])


@pytest.mark.slow
def test_what_is_not_trainable_stays_and_priors_count() -> None:
    data = diabetes(200)
    model = make_model(data, likelihoods.StudentT(0.5, 4.0))
    gpflow.set_trainable(model.likelihood.df, False)
    gpflow.set_trainable(model.kernel.lengthscales, False)
    fixed = [
        model.likelihood.df.numpy(),
        model.kernel.lengthscales.numpy(),
        model.inducing_variable.Z.numpy(),
    ]
    model.likelihood.scale.prior = tfp.distributions.LogNormal(np.log(2.0), np.float64(1e-3))
    gpflow_aaci.fit_collapsed(model, data)
    now = [
        model.likelihood.df.numpy(),
        model.kernel.lengthscales.numpy(),
        model.inducing_variable.Z.numpy(),
    ]
    for before, after in zip(fixed, now, strict=True):
        np.testing.assert_array_equal(before, after)
    np.testing.assert_allclose(
        model.likelihood.scale, 2.0, rtol=0.02
    )  # as the prior says, not the data


@pytest.mark.replicate
def test_vgp_reaches_the_optimum_of_a_stock_optimizer() -> None:
    data = diabetes(60)
    kernel = gpflow.kernels.Matern32(lengthscales=4.0)
    ours = gpflow_aaci.AugmentedVGP(data, kernel, likelihoods.StudentT(0.5, 4.0))
    stock = gpflow_aaci.AugmentedVGP(
        data, gpflow.kernels.Matern32(lengthscales=4.0), likelihoods.StudentT(0.5, 4.0)
    )
    gpflow_aaci.fit_collapsed(ours, tolerance=1e-6)
    gpflow.optimizers.Scipy().minimize(
        tf.function(lambda: -stock.elbo()),
        stock.trainable_variables,
        options={"maxiter": 2000},
    )
    assert float(ours.elbo()) > float(stock.elbo()) - 0.05


@pytest.mark.replicate
@pytest.mark.by_default("1")  # seed 1 is Student-t
@pytest.mark.parametrize("seed", range(8))
def test_fit_survives_hard_problems_and_never_ends_below_its_start(seed: int) -> None:
    """The problems have duplicated rows, constant columns, and Y and lengthscales of any scale."""
    rng = np.random.default_rng(seed)
    N, D = int(rng.integers(3, 60)), int(rng.integers(1, 4))
    X = rng.normal(size=(N, D))
    X[N // 2 :] = X[: N - N // 2]
    X[:, 0] = X[:, 0] if rng.random() < 0.7 else 1.0
    Y = 10.0 ** rng.uniform(-2, 3) * rng.standard_t(2, size=(N, 1))
    classes = [
        likelihoods.Gaussian,
        likelihoods.StudentT,
        likelihoods.Laplace,
        likelihoods.Matern32,
        likelihoods.Matern52,
        likelihoods.Logistic,
        likelihoods.BayesianSVM,
        likelihoods.Probit,
    ]
    likelihood = classes[seed % len(classes)]()
    if isinstance(likelihood, likelihoods.BinaryLikelihood):
        Y = np.sign(Y)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=10.0 ** rng.uniform(-2, 2))
    model = gpflow_aaci.AugmentedSVGP(kernel, likelihood, X[: max(1, N // 3)].copy())
    start = float(model.elbo((X, Y)))
    gpflow_aaci.fit_collapsed(model, (X, Y))
    end = float(model.elbo((X, Y)))
    assert np.isfinite(end)
    assert end >= start - 1e-8 * abs(start)


def test_where_the_kernel_loses_its_digits_no_fit_begins() -> None:
    # ‖x/ℓ‖² is 3e16, so that the distance of two points that differ by 2 is lost to rounding:
    # k(x, z) = 1.65 > k(x, x), and the variance of f given u is −1.7.
    X = np.column_stack([np.linspace(-2.0, 2.0, 80), np.where(np.arange(80) % 4 == 0, 1.7, -0.6)])
    Y = (np.sin(2.0 * X[:, :1]) > 0.0).astype(float)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1e-8])
    Z = np.array([[0.0, 1.7], [1.0, -0.6]])
    model = gpflow_aaci.AugmentedSVGP(kernel, likelihoods.Logistic(), Z, num_data=80)
    gpflow.set_trainable(model.inducing_variable, False)
    assert np.max(kernel(Z, X)) > 1.6
    with pytest.raises(ValueError, match=r"finite at the start\. Distances .* lengthscales"):
        gpflow_aaci.fit_collapsed(model, (X, Y))


@pytest.mark.slow
def test_polish_closes_the_gap_and_never_loses() -> None:
    data = breast_cancer(300)
    model = make_model(data, likelihoods.Logistic())
    for _ in range(60):
        gpflow_aaci.AugmentedNaturalGradient(1.0).minimize(model, data)
    hyper = [v.numpy() for v in hyperparameters(model)]
    augmented_optimum = float(model.elbo(data))
    result = gpflow_aaci.polish(model, data)
    assert result.gain > 1e-3
    np.testing.assert_allclose(
        [result.start, result.elbo], [augmented_optimum, float(model.elbo(data))]
    )
    for before, variable in zip(hyper, hyperparameters(model), strict=True):
        np.testing.assert_array_equal(before, variable)
    # The gradient of the standard ELBO in q vanishes, so this is its optimum.
    q = [model.q_mu.unconstrained_variable, model.q_sqrt.unconstrained_variable]
    with tf.GradientTape() as tape:
        elbo = model.elbo(data)
    for gradient in tape.gradient(elbo, q):
        assert np.abs(gradient).max() < 1e-3
    again = gpflow_aaci.polish(model, data)
    assert 0.0 <= again.gain < 1e-6


@pytest.mark.slow
@pytest.mark.by_default("33")
@pytest.mark.parametrize("seed", [33, 16])
def test_where_polish_ends_no_small_step_gains(seed: int) -> None:
    """The noise is far narrower than the prior, so a whole Newton step is too long."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, (24, 1))
    Y = np.sin(2.0 * X) + 0.3 * rng.standard_t(2, X.shape)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=0.3)
    likelihood = likelihoods.StudentT(0.1, 2.0)
    if seed == 16:
        kernel, likelihood = gpflow.kernels.Matern32(lengthscales=0.7), likelihoods.StudentT(0.05)
    model = gpflow_aaci.AugmentedVGP((X, Y), kernel, likelihood)
    polished = gpflow_aaci.polish(model, progress=False)

    def loss() -> tf.Tensor:
        return -model.elbo()

    natural_gradient = gpflow.optimizers.NaturalGradient(0.05)
    q = [(model.q_mu, model.q_sqrt)]
    step = tf.function(lambda: natural_gradient.minimize(loss, q), autograph=False)
    for _ in range(60):
        step()
    assert float(model.elbo()) - polished.elbo < 1e-3


@pytest.mark.slow
def test_polished_probit_is_gpflows_vgp() -> None:
    """The ELBOs agree at fixed hyperparameters, for GPflow's Bernoulli with the same link."""
    X, Y = breast_cancer(60)
    ours = gpflow_aaci.AugmentedVGP(
        (X, Y), gpflow.kernels.Matern32(lengthscales=5.0), likelihoods.Probit()
    )
    gpflow_aaci.polish(ours)
    gpflow.config.set_default_jitter(1e-10)  # VGP.elbo adds it to k_ii as well
    stock = gpflow.models.VGP(
        (X, Y),
        gpflow.kernels.Matern32(lengthscales=5.0),
        gpflow.likelihoods.Bernoulli(invlink=lambda f: 0.5 * tf.math.erfc(-f / np.sqrt(2.0))),
    )
    for _ in range(60):
        gpflow.optimizers.NaturalGradient(0.5).minimize(
            stock.training_loss, [(stock.q_mu, stock.q_sqrt)]
        )
    np.testing.assert_allclose(ours.elbo(), stock.elbo(), rtol=1e-6)


@pytest.mark.slow
def test_a_fitted_probit_is_gpflows() -> None:
    """
    On noisy labels, GPflow's jitter of probabilities changes the ELBO only a little.

    Without noise it would change it by whole nats, since an outlier costs at most log 0.001.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, size=(60, 1))
    data = X, (np.sin(2.0 * X) + 0.8 * rng.normal(size=X.shape) > 0).astype(float)
    stock = gpflow.models.VGP(data, gpflow.kernels.Matern52(), gpflow.likelihoods.Bernoulli())
    gpflow.optimizers.Scipy().minimize(
        stock.training_loss, stock.trainable_variables, options={"maxiter": 1000}
    )
    ours = gpflow_aaci.AugmentedVGP(data, gpflow.kernels.Matern52(), gpflow.likelihoods.Bernoulli())
    gpflow_aaci.fit_collapsed(ours, tolerance=1e-6)
    assert abs(float(ours.elbo()) - float(stock.elbo())) < 0.1


def waves(
    unit: float, guess: float, noise: float = 0.3, signal: float = 1.0
) -> tuple[float, gpflow_aaci.AugmentedSVGP]:
    """
    Fit noisy waves given in ``unit``, from initial values in units of ``guess``.

    It returns the objective, converted to the original unit of y, and the model.
    """
    X = np.linspace(-2.0, 2.0, 50)[:, None]
    Y = np.sin(2.0 * X) + 0.2 * np.random.default_rng(0).standard_t(3, size=X.shape)
    model = gpflow_aaci.AugmentedSVGP(
        gpflow.kernels.SquaredExponential(variance=(signal * guess) ** 2),
        likelihoods.StudentT(scale=noise * guess),
        X[::5].copy(),
    )
    gpflow.set_trainable(model.inducing_variable, False)
    result = gpflow_aaci.fit_collapsed(model, (X, unit * Y), tolerance=1e-5)
    assert result.converged
    return result.objective + len(X) * np.log(unit), model


@pytest.mark.replicate
@pytest.mark.parametrize("unit", [1e4, 1e8])
def test_a_fit_is_the_same_in_every_unit_of_y(unit: float) -> None:
    ours, model = waves(unit, unit)
    expected, at_one = waves(1.0, 1.0)
    np.testing.assert_allclose(ours, expected, atol=5e-3)
    np.testing.assert_allclose(model.likelihood.scale / unit, at_one.likelihood.scale, rtol=0.01)


@pytest.mark.replicate
@pytest.mark.parametrize("unit", [1e-4, 1e4, 1e8])
def test_a_fit_from_a_guess_of_one_finds_the_unit(unit: float) -> None:
    """
    The bound is flat in the kernel's variance where noise explains all that the kernel cannot.

    GPflow's jitter is absolute, so it must be small if the unit is.
    """
    jitter = gpflow.config.default_jitter()
    gpflow.config.set_default_jitter(jitter * min(1.0, unit**2))
    np.testing.assert_allclose(waves(unit, 1.0)[0], waves(1.0, 1.0)[0], atol=0.05)


@pytest.mark.slow
def test_a_fit_finds_a_signal_that_was_guessed_far_too_small() -> None:
    """The noise is guessed well, but the kernel's variance is 1e-8 of the right one."""
    np.testing.assert_allclose(waves(1.0, 1.0, signal=1e-4)[0], waves(1.0, 1.0)[0], atol=0.05)


@pytest.mark.slow
def test_a_wrong_guess_of_the_noise_alone_moves_no_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Scaling noise and signal by a hundred gains something, but scaling the noise alone gains more.
    """
    ours, _ = waves(1.0, 1.0, noise=1e-3)
    monkeypatch.setattr(inference.rescues, "along_units", lambda *args: None)
    assert ours == waves(1.0, 1.0, noise=1e-3)[0]


@pytest.mark.slow
def test_a_kernel_that_drowns_in_the_jitter_is_not_passed_over() -> None:
    with pytest.warns(UserWarning, match="The kernel's variance is .* after the fit.*jitter"):
        waves(1e-5, 1e-5)


@pytest.mark.slow
def test_with_nothing_else_to_learn_q_is_fitted() -> None:
    """q becomes the best one at the fixed hyperparameters, which do not change."""
    data = diabetes(60)
    model, other = (make_model(data, likelihoods.StudentT(0.5, 4.0)) for _ in range(2))
    parts = (model.kernel, model.likelihood, model.inducing_variable)
    before = [p.numpy() for part in parts for p in part.parameters]
    gpflow.set_trainable(model, False)
    result = gpflow_aaci.fit_collapsed(model, data)
    best = gpflow_aaci.polish(other, data).elbo
    assert result.objective > result.start + 1.0
    np.testing.assert_allclose(result.objective, best, atol=1e-3)
    assert result.converged
    assert result.reason == "nothing but q is trainable"
    after = [p.numpy() for part in parts for p in part.parameters]
    for then, now in zip(before, after, strict=True):
        np.testing.assert_array_equal(now, then)


def test_coordinates_are_logarithms_of_what_is_positive_and_a_change_of_variables() -> None:
    """Values from 1e-12 to 1e6 are tested, and the gradient in x against differences."""
    values = np.array([1e-12, 1e-3, 1.0, 30.0, 1e6])
    positive = gpflow.Parameter(values, transform=gpflow.utilities.positive())
    above = gpflow.Parameter(1.0 + values, transform=gpflow.utilities.positive(1.0))
    free = gpflow.Parameter([-3.0, 5.0])
    parameters = [positive, above, free]
    coordinates = Coordinates(parameters, [p.unconstrained_variable for p in parameters])
    x = coordinates.pack()
    np.testing.assert_allclose(x[:5], np.log(values), rtol=1e-10)
    np.testing.assert_allclose(x[6:10], np.log(values[1:]), rtol=1e-10)
    np.testing.assert_array_equal(x[10:], [-3.0, 5.0])
    coordinates.unpack(x + 0.5)
    np.testing.assert_allclose(positive, values * np.exp(0.5), rtol=1e-10)
    np.testing.assert_allclose(free, [-2.5, 5.5])
    u = np.concatenate([v.numpy() for v in coordinates.variables])
    step = 1e-6
    coordinates.unpack(x + 0.5 + step)
    moved = np.concatenate([v.numpy() for v in coordinates.variables])
    slope = coordinates.gradient(x + 0.5, np.ones_like(x))
    np.testing.assert_allclose(slope[1:5], (moved - u)[1:5] / step, rtol=1e-4)


def test_an_interrupted_fit_keeps_its_last_iteration() -> None:
    data = diabetes(300)
    model = make_model(data, likelihoods.Laplace(0.5))
    start = float(model.elbo(data))
    reached: list[float] = []

    def interrupt(progress: gpflow_aaci.inference.FitProgress) -> None:
        reached.append(progress.objective)
        if len(reached) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gpflow_aaci.fit_collapsed(model, data, callback=interrupt)
    # During an iteration, products are computed in float32.
    np.testing.assert_allclose(reached, [start, float(model.elbo(data))], rtol=1e-6)
    assert reached[1] > reached[0]


def test_slow_iterations_are_checkpointed_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If iterations take a minute, each is stored, so that a killed fit loses only the last one."""
    data = diabetes(300)

    def stored_after(seconds: float, folder: Path) -> list[str]:
        ticks = itertools.count(0.0, seconds)  # the clock advances at every call
        monkeypatch.setattr(collapsed, "_clock", lambda: next(ticks))
        calls: list[int] = []

        def interrupt(progress: gpflow_aaci.inference.FitProgress) -> None:
            calls.append(0)
            if len(calls) == 5:
                raise KeyboardInterrupt

        model = make_model(data, likelihoods.Laplace(0.5))
        with pytest.raises(KeyboardInterrupt):
            gpflow_aaci.fit_collapsed(model, data, callback=interrupt, checkpoint_dir=folder)
        return sorted(path.name for path in folder.glob("step-*"))

    assert stored_after(60.0, tmp_path / "slow") == ["step-0000000002", "step-0000000003"]
    assert stored_after(1e-3, tmp_path / "quick") == []
    # The slow fit resumes from the checkpoint that it wrote between its iterations.
    whole, again = (make_model(data, likelihoods.Laplace(0.5)) for _ in range(2))
    expected = gpflow_aaci.fit_collapsed(whole, data)
    found = gpflow_aaci.fit_collapsed(again, data, checkpoint_dir=tmp_path / "slow")
    assert found.objective == expected.objective
    np.testing.assert_array_equal(again.q_mu, whole.q_mu)


def test_bad_arguments_are_refused_before_anything_changes() -> None:
    data = diabetes(50)
    model = make_model(data, likelihoods.Laplace())
    before = [v.numpy() for v in model.variables]
    with pytest.raises(ValueError, match="Y must be finite"):
        gpflow_aaci.fit_collapsed(model, (data[0], np.full_like(data[1], np.nan)))
    for value, variable in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(value, variable)
