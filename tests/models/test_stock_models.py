"""GPflow's own SVGP and VGP, taken as they are by ``fit`` and the other calls."""

from collections.abc import Callable
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, RegressionData
from gpflow.inducing_variables import (
    FallbackSeparateIndependentInducingVariables,
    InducingPoints,
    SharedIndependentInducingVariables,
)

from gpflow_aaci import (
    AugmentedSVGP,
    AugmentedVGP,
    fit,
    fit_collapsed,
    likelihoods,
    loo,
    polish,
    predictions,
    sample_posterior,
    train,
    update,
)

N = 70
RNG = np.random.default_rng(3)
X = RNG.uniform(0.0, 6.0, size=(N, 1))
F = np.sin(1.3 * X)
REAL = F + 0.2 * RNG.standard_t(3.0, size=F.shape)
LABELS = (RNG.uniform(size=F.shape) < 1.0 / (1.0 + np.exp(-3.0 * F))).astype(float)
COUNTS = RNG.poisson(np.exp(F)).astype(float)
TWO = X, np.hstack([REAL, REAL[::-1]])
CLASSES = np.digitize(F, [-0.4, 0.5]).astype(float)
Z = np.linspace(0.0, 6.0, 8)[:, None]


def kernel() -> gpflow.kernels.Kernel:
    kernel = gpflow.kernels.Matern52(lengthscales=1.5)
    kernel.variance.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(1.0))
    return kernel


def svgp(likelihood: gpflow.likelihoods.Likelihood, **options: object) -> Callable:
    def make(kind: type[gpflow.models.SVGP]) -> gpflow.models.SVGP:
        model = kind(kernel(), gpflow.utilities.deepcopy(likelihood), Z.copy(), **options)
        gpflow.set_trainable(model.inducing_variable, False)
        return model

    return make


def vgp(likelihood: gpflow.likelihoods.Likelihood, Y: AnyNDArray) -> Callable:
    def make(kind: type[gpflow.models.VGP]) -> gpflow.models.VGP:
        return kind((X, Y), kernel(), gpflow.utilities.deepcopy(likelihood))

    return make


def coregionalised(
    points: Callable[[], gpflow.inducing_variables.MultioutputInducingVariables],
) -> Callable:
    def make(kind: type[gpflow.models.SVGP]) -> gpflow.models.SVGP:
        mixed = gpflow.kernels.LinearCoregionalization(
            [gpflow.kernels.Matern52(), gpflow.kernels.Matern52(lengthscales=2.0)],
            W=np.array([[1.0, 0.2], [-0.5, 0.8]]),
        )
        return kind(mixed, gpflow.likelihoods.StudentT(0.3), points(), num_latent_gps=2)

    return make


Case = tuple[Callable, RegressionData | None]
CASES: dict[str, Case] = {
    "SVGP StudentT": (svgp(gpflow.likelihoods.StudentT(0.3), num_data=N), (X, REAL)),
    "SVGP unwhitened Bernoulli": (svgp(gpflow.likelihoods.Bernoulli(), whiten=False), (X, LABELS)),
    "SVGP Poisson": (svgp(gpflow.likelihoods.Poisson()), (X, COUNTS)),
    "SVGP MultiClass": (svgp(gpflow.likelihoods.MultiClass(3), num_latent_gps=3), (X, CLASSES)),
    "SVGP mixed": (
        coregionalised(lambda: SharedIndependentInducingVariables(InducingPoints(Z.copy()))),
        TWO,
    ),
    "SVGP mixed, fallback": (
        coregionalised(
            lambda: FallbackSeparateIndependentInducingVariables(
                [InducingPoints(Z.copy()), InducingPoints(Z + 0.1)]
            )
        ),
        TWO,
    ),
    "SVGP Laplace of ours": (svgp(likelihoods.Laplace(0.3)), (X, REAL)),
    "VGP StudentT": (vgp(gpflow.likelihoods.StudentT(0.3), REAL), None),
    "VGP logistic": (vgp(gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid), LABELS), None),
    "VGP Poisson": (vgp(gpflow.likelihoods.Poisson(), COUNTS), None),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def kinds(make: Callable) -> tuple[type, type]:
    try:
        make(AugmentedSVGP)
    except Exception:
        return gpflow.models.VGP, AugmentedVGP
    return gpflow.models.SVGP, AugmentedSVGP


@pytest.mark.slow
@pytest.mark.by_default("SVGP StudentT", "VGP Poisson")
def test_fit_ends_where_the_swapped_class_ends(case: Case) -> None:
    """Every Parameter of the user's object is where that of the swapped class is."""
    make, data = case
    stock_kind, own_kind = kinds(make)
    stock, own = make(stock_kind), make(own_kind)
    before = {path: id(p) for path, p in gpflow.utilities.parameter_dict(stock).items()}
    likelihood = stock.likelihood
    results = [fit(model, data, progress=False) for model in (stock, own)]
    assert type(stock) is stock_kind
    assert stock.likelihood is likelihood
    found = gpflow.utilities.parameter_dict(stock)
    assert {path: id(p) for path, p in found.items()} == before
    assert results[0].elbo == pytest.approx(results[1].elbo, abs=1e-6)
    expected = {
        path.replace(".inducing_variable.inducing_variable", ".inducing_variable"): p
        for path, p in gpflow.utilities.parameter_dict(own).items()
    }
    for path, parameter in found.items():
        short = path.replace(".inducing_variable.inducing_variable", ".inducing_variable")
        if isinstance(parameter, gpflow.Parameter) and short in expected:
            np.testing.assert_allclose(parameter, expected[short], rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.by_default("SVGP StudentT", "VGP Poisson")
def test_a_second_fit_changes_nothing(case: Case) -> None:
    make, data = case
    model = make(kinds(make)[0])
    first = fit(model, data, progress=False)
    values = {k: p.numpy() for k, p in gpflow.utilities.parameter_dict(model).items()}
    second = fit(model, data, progress=False)
    assert second.converged
    climbed = second.history["objective"]  # the priors count
    assert 0.0 <= climbed.iloc[-1] - climbed.iloc[0] < first.tolerance
    for path, value in gpflow.utilities.read_values(model).items():
        np.testing.assert_allclose(value, values[path], rtol=0.05, atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SVGP StudentT", "VGP StudentT"])
@pytest.mark.by_default("SVGP StudentT")
def test_the_other_calls_take_them(name: str) -> None:
    make, data = CASES[name]
    stock_kind, own_kind = kinds(make)
    models = [make(kind) for kind in (stock_kind, own_kind)]
    for model in models:
        fit_collapsed(model, data, progress=False)
    np.testing.assert_allclose(*(polish(m, data, progress=False).elbo for m in models), rtol=1e-9)
    np.testing.assert_allclose(*(loo(m, data).loo_i for m in models), rtol=1e-6)
    levels = [predictions.predict_y_quantile(m, Z, [0.1, 0.9]) for m in models]
    np.testing.assert_allclose(*levels, rtol=1e-3, atol=1e-3)  # jitter is added in GPflow's
    options = {"num_samples": 20, "num_chains": 2, "num_burnin": 5, "progress": False}
    draws = [sample_posterior(m, data, **options) for m in models]
    latent = "u" if data is not None else "f"
    np.testing.assert_allclose(*(d.posterior[latent].values for d in draws), rtol=1e-6, atol=1e-6)
    cdfs = [
        predictions.predict_y_cdf(m, Z, np.zeros_like(Z), samples=d, progress=False)
        for m, d in zip(models, draws, strict=True)
    ]
    np.testing.assert_allclose(*cdfs, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_train_takes_them() -> None:
    make, data = CASES["SVGP StudentT"]
    models = [make(kind) for kind in (gpflow.models.SVGP, AugmentedSVGP)]
    histories = [
        train(m, data, num_steps=20, batch_size=10, evaluate_every=10, progress=False)
        for m in models
    ]
    np.testing.assert_array_equal(*(h["augmented"] for h in histories))
    np.testing.assert_array_equal(*(m.q_mu.numpy() for m in models))


@pytest.mark.slow
def test_what_is_fixed_stays_and_priors_count() -> None:
    make, data = CASES["SVGP StudentT"]
    model = make(gpflow.models.SVGP)
    gpflow.set_trainable(model.kernel.lengthscales, False)
    fit(model, data, progress=False)
    assert model.kernel.lengthscales.numpy() == 1.5
    assert np.array_equal(model.inducing_variable.Z, Z)
    free = make(gpflow.models.SVGP)
    gpflow.set_trainable(free.kernel.lengthscales, False)
    free.kernel.variance.prior = None
    fit(free, data, progress=False)
    assert abs(free.kernel.variance.numpy() - model.kernel.variance.numpy()) > 1e-3


def test_quantiles_are_for_any_model_of_gpflows() -> None:
    model = gpflow.models.GPR((X, REAL), gpflow.kernels.Matern52(), noise_variance=0.1)
    mean, variance = model.predict_y(Z)
    found = predictions.predict_y_quantile(model, Z, [0.5, 0.975])
    np.testing.assert_allclose(found[0], mean, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found[1], mean + 1.959964 * np.sqrt(variance), rtol=1e-6)


# ---- what is refused ----


class Own(gpflow.models.SVGP):
    """May have overridden anything."""


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: gpflow.models.GPR((X, REAL), kernel()), r"Found: GPR\. .*gpflow\.optimizers\.Sci"),
        (
            lambda: gpflow.models.SGPR((X, REAL), kernel(), Z),
            r"Found: SGPR\. Its posterior is known in closed form",
        ),
        (lambda: gpflow.models.GPMC((X, REAL), kernel(), likelihoods.Laplace()), "Found: GPMC"),
        (lambda: svgp(gpflow.likelihoods.StudentT())(Own), "Found: Own"),
        (
            lambda: gpflow.models.SVGP(
                gpflow.kernels.SharedIndependent(kernel(), 2),
                gpflow.likelihoods.StudentT(),
                Z,
                q_mu=np.zeros((16, 1)),
                q_sqrt=np.eye(16)[None],
            ),
            r"SharedIndependentInducingVariables .* Found: InducingPoints",
        ),
        (
            lambda: gpflow.models.VGP((X, REAL - np.nan), kernel(), gpflow.likelihoods.StudentT()),
            "Y must be finite",
        ),
        (
            lambda: gpflow.models.VGP((X, REAL), kernel(), gpflow.likelihoods.Bernoulli()),
            "Y must hold labels",
        ),
    ],
    ids=["GPR", "SGPR", "GPMC", "subclass", "joint points", "NaN", "labels"],
)
def test_other_models_and_bad_data_are_refused(model: Callable, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(model(), progress=False)


def test_update_needs_an_augmented_model() -> None:
    """As it counts the rows that a model has seen, in the model."""
    make, data = CASES["SVGP StudentT"]
    with pytest.raises(ValueError, match=r"must be an AugmentedSVGP.*Found: SVGP"):
        update(make(gpflow.models.SVGP), data)


# ---- models that GPflow's own likelihood cannot evaluate ----

SIDES = np.linspace(0.0, 10.0, 40)[:, None]


def by_itself(likelihood: gpflow.likelihoods.Likelihood) -> gpflow.models.SVGP:
    model = gpflow.models.SVGP(
        gpflow.kernels.SquaredExponential(), likelihood, SIDES[::5].copy(), num_data=len(SIDES)
    )
    gpflow.set_trainable(model.inducing_variable, False)
    return model


@pytest.mark.slow
def test_fit_leaves_a_stock_model_where_its_own_class_has_a_finite_elbo() -> None:
    """
    Labels that f separates: GPflow's log(1 − p) is −∞ where the sigmoid is rounded to 1.

    With the converted likelihood the same fit ends at a higher ELBO.
    """
    data = SIDES, (SIDES > 5.2).astype(float)
    model, free = (by_itself(gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid)) for _ in range(2))
    result = fit(model, data, progress=False)
    assert np.isfinite(model.elbo(data))
    assert result.elbo == pytest.approx(float(model.elbo(data)), abs=0.02)  # 20 nodes
    assert not result.converged
    assert "GPflow's own Bernoulli evaluates the ELBO to NaN or infinity" in result.reason
    assert result.elbo > -12.0
    free.likelihood = likelihoods.augmented(free.likelihood)
    maximum = fit(free, data, progress=False)
    assert maximum.converged
    assert maximum.elbo > result.elbo
    assert float(free.elbo(data)) == pytest.approx(maximum.elbo, abs=1e-6)
    stock = by_itself(gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid))
    gpflow.utilities.multiple_assign(stock, gpflow.utilities.read_values(free))
    assert not np.isfinite(stock.elbo(data))


@pytest.mark.slow
def test_a_resumed_fit_ends_where_the_fit_ended_that_had_to_go_back(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    data = SIDES, (SIDES > 5.2).astype(float)
    elbos = []
    for _ in range(2):
        model = by_itself(gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid))
        elbos.append(fit(model, data, checkpoint_dir=tmp_path, progress=False).elbo)
        assert np.isfinite(model.elbo(data))
    assert elbos[0] == pytest.approx(elbos[1], abs=1e-9)
    assert not any("GPflow's own" in str(each.message) for each in recwarn)


def test_a_stock_model_that_its_own_class_cannot_evaluate_is_fitted_with_a_warning() -> None:
    """
    Some releases of TensorFlow have erf(∞) = NaN, with which GPflow's ``Ordinal`` is NaN anywhere.
    """
    data = SIDES, np.digitize(np.sin(SIDES), [-0.5, 0.5]).astype(float)
    model = by_itself(gpflow.likelihoods.Ordinal(np.array([-0.5, 0.5])))
    if np.isfinite(model.elbo(data)):
        assert np.isfinite(fit(model, data, progress=False).elbo)
        assert np.isfinite(model.elbo(data))
        return
    with pytest.warns(UserWarning, match="GPflow's own Ordinal evaluates the ELBO of the model to"):
        result = fit(model, data, progress=False)
    assert result.converged
    model.likelihood = likelihoods.augmented(model.likelihood)  # as the warning says
    assert float(model.elbo(data)) == pytest.approx(result.elbo, abs=1e-6)
    assert np.all(np.isfinite(model.predict_y(SIDES)[0]))
