"""log p(y) between two ends, against closed forms, product rules and sums over all labels."""

import itertools
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.special
import scipy.stats
from gpflow.base import AnyNDArray
from gpflow.kernels import LinearCoregionalization, Matern32

from gpflow_aaci import AugmentedSVGP, AugmentedVGP, fit, likelihoods
from gpflow_aaci.criticism import Evidence, evidence

X = np.array([[-0.4], [0.3]])
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(120)


def kernel() -> Matern32:
    return Matern32(1.7, 0.8)


def by_product_rule(log_density: Callable[[AnyNDArray], AnyNDArray], chol: AnyNDArray) -> float:
    """log E e^{log p(y|f)}, f = chol e, over a grid of as many nodes in each direction."""
    dimensions = len(chol)
    e = np.stack(np.meshgrid(*[NODES] * dimensions, indexing="ij"), -1)
    log_weights = sum(
        np.log(WEIGHTS / WEIGHTS.sum()).reshape([-1 if k == d else 1 for k in range(dimensions)])
        for d in range(dimensions)
    )
    return float(scipy.special.logsumexp(log_weights + log_density(e @ chol.T)))


def check_ends(found: Evidence, expected: float, width: float) -> None:
    """Each end is the value within four standard errors, which are small."""
    assert abs(found.lower - expected) < 4.0 * found.lower_error + 1e-6
    assert abs(found.upper - expected) < 4.0 * found.upper_error + 1e-6
    assert max(found.lower_error, found.upper_error) < width


def exactly(model: Any, data: Any = None, **settings: Any) -> Evidence:
    settings = {"num_rungs": 10, "num_particles": 400, "num_burnin": 20} | settings
    return evidence(model, data, progress=False, **settings)


def test_of_gaussian_noise_both_ends_are_the_evidence_of_gpr() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(30, 1))
    data = X, np.sin(2.0 * X) + 0.3 * rng.normal(size=X.shape)
    model = AugmentedVGP(data, kernel(), likelihoods.Gaussian(variance=0.09))
    found = exactly(model, num_particles=5, num_rungs=2)  # at a q that is far from its optimum
    gpr = gpflow.models.GPR(data, kernel(), noise_variance=0.09)
    expected = float(gpr.log_marginal_likelihood())
    # GPflow's jitter of 1e-6 is in the prior of the one and not of the other.
    np.testing.assert_allclose([found.lower, found.upper], expected, atol=1e-3)
    assert found.elbo < found.lower - 1.0


def test_of_a_sparse_model_it_is_the_evidence_of_fitc() -> None:
    rng = np.random.default_rng(1)
    X = rng.uniform(-2.0, 2.0, size=(40, 1))
    data, Z = (X, np.sin(2.0 * X) + 0.3 * rng.normal(size=X.shape)), X[:6].copy()
    model = AugmentedSVGP(kernel(), likelihoods.Gaussian(variance=0.09), Z, num_data=40)
    found = exactly(model, data, num_particles=5, num_rungs=2)
    fitc = gpflow.models.GPRFITC(data, kernel(), Z, noise_variance=0.09)
    expected = float(fitc.fitc_log_marginal_likelihood())
    np.testing.assert_allclose([found.lower, found.upper], expected, atol=1e-3)


@pytest.mark.briefly("True-Probit")
@pytest.mark.parametrize(
    ("likelihood", "y", "log_density"),
    [
        (
            likelihoods.StudentT(scale=0.3, df=3.0),
            [0.5, -1.5],
            lambda f, y: scipy.stats.t.logpdf(y, 3.0, f, 0.3),
        ),
        (
            likelihoods.Probit(),
            [1.0, 0.0],
            lambda f, y: scipy.stats.norm.logcdf((2.0 * y - 1.0) * f),
        ),
        (
            likelihoods.Poisson(max_rate=6.0),
            [1.0, 4.0],
            lambda f, y: scipy.stats.poisson.logpmf(y, 6.0 * scipy.special.expit(f)),
        ),
    ],
    ids=["StudentT", "Probit", "Poisson"],
)
@pytest.mark.parametrize("is_sparse", [False, True])
def test_of_two_rows_both_ends_are_the_product_rule(
    likelihood: Any, y: list[float], log_density: Callable, is_sparse: bool
) -> None:
    """With a point of Z at every row the sparse model is the full one."""
    Y = np.array(y)[:, None]
    data = (X, Y) if is_sparse else None
    model = (
        AugmentedSVGP(kernel(), likelihood, X, num_data=2)
        if is_sparse
        else AugmentedVGP((X, Y), kernel(), likelihood)
    )
    gpflow.set_trainable(model.kernel, False)
    gpflow.set_trainable(likelihood, False)
    fit(model, data, progress=False)
    chol = np.linalg.cholesky(kernel()(X).numpy())
    expected = by_product_rule(lambda f: np.sum(log_density(f, Y[:, 0]), -1), chol)
    found = exactly(model, data)
    check_ends(found, expected, 0.05)
    assert found.augmented_elbo < found.elbo < expected


@pytest.mark.slow
@pytest.mark.by_default("Heteroscedastic")
@pytest.mark.parametrize("name", ["LogisticSoftmax", "Heteroscedastic"])
def test_of_latent_gps_that_meet_in_a_row_too(name: str) -> None:
    """The prior is one of three or two independent variables."""
    if name == "LogisticSoftmax":
        likelihood, y, L = likelihoods.LogisticSoftmax(3), 1.0, 3

        def log_density(f: AnyNDArray) -> AnyNDArray:
            return np.log(scipy.special.expit(f[..., 1]) / scipy.special.expit(f).sum(-1))
    else:
        likelihood, y, L = likelihoods.Heteroscedastic(likelihoods.Gaussian(1.0), 8.0), 0.7, 2

        def log_density(f: AnyNDArray) -> AnyNDArray:
            scale = 1.0 / np.sqrt(8.0 * scipy.special.expit(f[..., 1]))
            return scipy.stats.norm.logpdf(y, f[..., 0], scale)

    data = X[:1], np.array([[y]])
    model = AugmentedVGP(data, kernel(), likelihood, num_latent_gps=L)
    expected = by_product_rule(log_density, np.sqrt(1.7) * np.eye(L))
    check_ends(exactly(model), expected, 0.1)


@pytest.mark.replicate
def test_the_probabilities_of_all_labels_sum_to_one() -> None:
    rows = np.array([[-0.9], [0.0], [0.4]])
    total = error = 0.0
    for labels in itertools.product([0.0, 1.0], repeat=3):
        model = AugmentedVGP((rows, np.array(labels)[:, None]), kernel(), likelihoods.Logistic())
        found = exactly(model, num_particles=1_000)
        total += np.exp(found.lower)
        error += np.square(np.exp(found.lower) * found.lower_error)
    assert abs(total - 1.0) < 4.0 * np.sqrt(error) < 0.05


@pytest.mark.replicate
@pytest.mark.parametrize("name", ["StudentT", "Logistic", "Probit", "Laplace"])
def test_of_150_rows_the_ends_meet_above_the_elbo(name: str) -> None:
    rng = np.random.default_rng(2)
    X = rng.uniform(-3.0, 3.0, size=(150, 1))
    Y = np.sin(2.0 * X) + 0.3 * rng.standard_t(3, size=X.shape)
    is_binary = name in ("Logistic", "Probit")
    model = AugmentedVGP(
        (X, 1.0 * (Y > 0) if is_binary else Y), kernel(), getattr(likelihoods, name)()
    )
    fit(model, progress=False)
    found = evidence(model, progress=False)
    assert abs(found.upper - found.lower) < 0.1 + 3.0 * (found.lower_error + found.upper_error)
    assert found.elbo < found.upper + 3.0 * found.upper_error
    assert str(found).startswith(f"log p(y) is between {found.lower:.2f} ± ")


def test_gpflows_models_are_taken_and_nothing_changes() -> None:
    Y = np.array([[0.5], [-1.5]])
    theirs = gpflow.models.VGP((X, Y), kernel(), gpflow.likelihoods.StudentT(scale=0.3))
    before = gpflow.utilities.deepcopy(theirs)
    first, second = (exactly(theirs, num_rungs=2, num_particles=3, num_burnin=1) for _ in range(2))
    assert first == second
    for old, new in zip(before.parameters, theirs.parameters, strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.replicate
def test_in_float32_it_is_as_in_float64() -> None:
    Y = np.array([[1.0], [0.0]])
    ends = []
    for dtype in (np.float32, np.float64):
        with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
            model = AugmentedVGP(
                (X.astype(dtype), Y.astype(dtype)), kernel(), likelihoods.Logistic()
            )
            found = exactly(model)
        ends.append([found.lower, found.upper])
    np.testing.assert_allclose(*ends, atol=0.1)


@pytest.mark.briefly(
    "arguments0-num_rungs must be .* at least 1", "arguments1-num_particles must be .* at least 2"
)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_rungs": 0}, "num_rungs must be .* at least 1"),
        ({"num_particles": 1}, "num_particles must be .* at least 2"),
        ({"data": (X, X)}, "data must not be given: AugmentedVGP stores its own"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    model = AugmentedVGP((X, X), kernel(), likelihoods.Laplace())
    with pytest.raises(ValueError, match=message):
        evidence(model, **arguments)


def test_models_without_a_gibbs_sampler_are_refused() -> None:
    softmax = AugmentedVGP((X, [[0.0], [1.0]]), kernel(), likelihoods.Softmax(2), num_latent_gps=2)
    with pytest.raises(ValueError, match=r"without augmentation.*Found: .*Softmax"):
        evidence(softmax)
    mixed = AugmentedSVGP(
        LinearCoregionalization([kernel()], W=np.ones([2, 1])),
        likelihoods.StudentT(),
        gpflow.inducing_variables.SharedIndependentInducingVariables(
            gpflow.inducing_variables.InducingPoints(X)
        ),
        num_data=2,
        num_latent_gps=1,
    )
    with pytest.raises(ValueError, match="kernel must not mix the latent GPs"):
        evidence(mixed, (X, np.hstack([X, X])))
