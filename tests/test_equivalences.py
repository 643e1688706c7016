"""
One test for every statement of the theory: which models and steps are equal, and which bounds hold.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import gpflow
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.inducing_variables import (
    InducingPoints,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import Matern12, Matern32, SeparateIndependent, SharedIndependent
from gpflow.quadrature import NDiagGHQuadrature

from gpflow_aaci import AugmentedNaturalGradient, AugmentedSVGP, AugmentedVGP, likelihoods

MakeLikelihood = Callable[[], likelihoods.AugmentedLikelihood]
Observe = Callable[[gpflow.likelihoods.Likelihood, AnyNDArray, int], AnyNDArray]
Randomise = Callable[[gpflow.models.GPModel], None]
AugmentedModel = AugmentedSVGP | AugmentedVGP

N, M, D = 16, 6, 2


def spread(count: int) -> AnyNDArray:
    """Points of the plane that are well separated (a Halton sequence)."""
    return 3.0 * scipy.stats.qmc.Halton(D, scramble=False).random(count + 1)[1:]


def relative_error(actual: tf.Tensor, expected: tf.Tensor) -> float:
    return float(np.max(np.abs(actual - expected)) / np.max(np.abs(expected)))


@tf.autograph.experimental.do_not_convert  # conversion would slow GPflow's map_fn down
def natural_gradient(model: AugmentedModel, gamma: float, *args: Any) -> None:
    """One step of GPflow's own optimizer on the model's training loss."""
    gpflow.optimizers.NaturalGradient(gamma).minimize(
        lambda: model.training_loss(*args), [(model.q_mu, model.q_sqrt)]
    )


# ---- the closed-form step is the natural gradient ----


class Structure(NamedTuple):
    """What a sparse model is made of."""

    kernel: Callable[[], gpflow.kernels.Kernel]
    inducing: Callable[[AnyNDArray], Any]
    P: int = 1
    mean_function: Callable[[], gpflow.functions.MeanFunction] = gpflow.functions.Zero
    num_data: int | None = None


def separate_kernels() -> SeparateIndependent:
    return SeparateIndependent([Matern12(lengthscales=0.7), Matern32(1.7, lengthscales=1.1)])


def separate_inducing(Z: AnyNDArray) -> SeparateIndependentInducingVariables:
    return SeparateIndependentInducingVariables([InducingPoints(Z), InducingPoints(Z[::-1] + 0.2)])


def shared_inducing(Z: AnyNDArray) -> SharedIndependentInducingVariables:
    return SharedIndependentInducingVariables(InducingPoints(Z))


def line() -> gpflow.functions.Linear:
    return gpflow.functions.Linear(A=[[0.5], [-1.0]], b=0.3)


STRUCTURES = {
    "one output": Structure(Matern12, InducingPoints),
    "minibatch": Structure(Matern12, InducingPoints, num_data=50),
    "mean function": Structure(Matern12, InducingPoints, mean_function=line, num_data=50),
    "two outputs": Structure(
        Matern12, InducingPoints, P=2, mean_function=lambda: gpflow.functions.Constant([0.7, -0.2])
    ),
    "shared kernel, shared Z": Structure(
        lambda: SharedIndependent(Matern12(), 2), shared_inducing, P=2, num_data=50
    ),
    "shared kernel, separate Z": Structure(
        lambda: SharedIndependent(Matern12(), 2), separate_inducing, P=2, mean_function=line
    ),
    "separate kernels, shared Z": Structure(
        separate_kernels, shared_inducing, P=2, mean_function=line
    ),
    "separate kernels, separate Z": Structure(
        separate_kernels, separate_inducing, P=2, mean_function=line, num_data=50
    ),
}


def sparse(
    structure: Structure, likelihood: gpflow.likelihoods.Likelihood, whiten: bool
) -> AugmentedSVGP:
    return AugmentedSVGP(
        structure.kernel(),
        likelihood,
        structure.inducing(spread(M)),
        mean_function=structure.mean_function(),
        num_latent_gps=structure.P,
        whiten=whiten,
        num_data=structure.num_data,
    )


# Every structure is tested whitened and not, and each step size in four structures of either kind.
VARIANTS = {
    f"{name}, {'' if whiten else 'un'}whitened": (structure, whiten, 0.3 if whiten == even else 1.0)
    for (name, structure), even in zip(STRUCTURES.items(), [True, False] * 4, strict=True)
    for whiten in (True, False)
}


@pytest.mark.briefly("Laplace-two outputs, whitened")
@pytest.mark.by_default(
    "StudentT-one output, unwhitened",
    "StudentT-minibatch, whitened",
    "StudentT-mean function, unwhitened",
    "StudentT-separate kernels, separate Z, whitened",
    "StudentT-shared kernel, separate Z, unwhitened",
    "two outputs, whitened",
)
@pytest.mark.parametrize(("structure", "whiten", "step_size"), VARIANTS.values(), ids=VARIANTS)
def test_closed_form_step_is_gpflows_natural_gradient(
    structure: Structure,
    whiten: bool,
    step_size: float,
    make_likelihood: MakeLikelihood,
    observe: Observe,
    randomise_q: Randomise,
) -> None:
    """The central identity: AugmentedNaturalGradient(s) equals NaturalGradient(gamma=s)."""
    X = spread(N) + 0.1
    data = X, observe(make_likelihood(), X, structure.P)
    ours, theirs = (sparse(structure, make_likelihood(), whiten) for _ in range(2))
    for model in (ours, theirs):
        randomise_q(model)
    start = ours.q_mu.numpy()
    AugmentedNaturalGradient(step_size).minimize(ours, data)
    natural_gradient(theirs, step_size, data)
    assert relative_error(ours.q_mu.numpy(), start) > 0.1  # the step has moved q
    assert relative_error(ours.q_mu.numpy(), theirs.q_mu.numpy()) <= 1e-10
    assert relative_error(ours.q_sqrt.numpy(), theirs.q_sqrt.numpy()) <= 1e-10


@pytest.mark.briefly("Probit-1-0.3")
@pytest.mark.by_default("Laplace", "Probit")
@pytest.mark.parametrize("step_size", [0.3, 1.0])
@pytest.mark.parametrize("P", [1, 2])
def test_vgps_closed_form_step_is_gpflows_natural_gradient(
    P: int,
    step_size: float,
    make_likelihood: MakeLikelihood,
    observe: Observe,
    randomise_q: Randomise,
) -> None:
    X = spread(N)
    data = X, observe(make_likelihood(), X, P)
    ours, theirs = (
        AugmentedVGP(data, Matern12(), make_likelihood(), mean_function=line()) for _ in range(2)
    )
    for model in (ours, theirs):
        randomise_q(model)
    AugmentedNaturalGradient(step_size).minimize(ours)
    natural_gradient(theirs, step_size)
    assert relative_error(ours.q_mu.numpy(), theirs.q_mu.numpy()) <= 1e-8
    assert relative_error(ours.q_sqrt.numpy(), theirs.q_sqrt.numpy()) <= 1e-8


# ---- Gaussian likelihood: one step is exact ----


def mean_and_cov(model: gpflow.models.GPModel) -> tuple[AnyNDArray, AnyNDArray]:
    mean, cov = model.predict_f(spread(40)[20:] + 0.05, full_cov=True)
    return mean.numpy(), cov.numpy()


@pytest.mark.briefly("unwhitened")
@pytest.mark.parametrize("whiten", [True, False], ids=["whitened", "unwhitened"])
def test_one_step_with_gaussian_noise_is_sgpr(
    whiten: bool, observe: Observe, randomise_q: Randomise
) -> None:
    """The posterior and the bound are SGPR's, from any initial q."""
    X, Z = spread(N), spread(M) + 0.1
    gaussian = likelihoods.Gaussian(variance=0.2)
    data = X, observe(gaussian, X, 1)
    sgpr = gpflow.models.SGPR(data, Matern32(1.4), Z, mean_function=line(), noise_variance=0.2)
    model = AugmentedSVGP(Matern32(1.4), gaussian, Z, mean_function=line(), whiten=whiten)
    randomise_q(model)
    AugmentedNaturalGradient(step_size=1.0).minimize(model, data)
    for ours, theirs in zip(mean_and_cov(model), mean_and_cov(sgpr), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)
    np.testing.assert_allclose(model.augmented_elbo(data), sgpr.elbo(), rtol=1e-8)


def test_one_step_with_gaussian_noise_is_gpr(observe: Observe, randomise_q: Randomise) -> None:
    """The posterior and the log marginal likelihood are GPR's, from any initial q."""
    gpflow.config.set_default_jitter(1e-12)
    X = spread(N)
    gaussian = likelihoods.Gaussian(scale=0.5)
    data = X, observe(gaussian, X, 1)
    gpr = gpflow.models.GPR(data, Matern12(1.4), mean_function=line(), noise_variance=0.25)
    model = AugmentedVGP(data, Matern12(1.4), gaussian, mean_function=line())
    randomise_q(model)
    AugmentedNaturalGradient(step_size=1.0).minimize(model)
    for ours, theirs in zip(mean_and_cov(model), mean_and_cov(gpr), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)
    np.testing.assert_allclose(model.augmented_elbo(), gpr.log_marginal_likelihood(), rtol=1e-8)


# ---- the order of the bounds ----


def matern_density(nu: float) -> Callable[[AnyNDArray], AnyNDArray]:
    """A density with the shape of the Matérn kernel of lengthscale 1, normalised by quadrature."""

    def kernel(x: AnyNDArray) -> AnyNDArray:
        s = np.maximum(np.sqrt(2.0 * nu) * np.abs(x), 1e-10)
        return 2.0 ** (1.0 - nu) / scipy.special.gamma(nu) * s**nu * scipy.special.kv(nu, s)

    normaliser, _ = scipy.integrate.quad(kernel, 0.0, 60.0, points=[1.0, 5.0], epsabs=1e-13)
    return lambda x: kernel(x) / (2.0 * normaliser)


@dataclass(frozen=True)
class Known:
    """A likelihood and its density p(y|f) by SciPy."""

    likelihood: likelihoods.AugmentedLikelihood
    density: Callable[[float, AnyNDArray], AnyNDArray]


KNOWN = {
    "Gaussian": lambda: Known(
        likelihoods.Gaussian(0.81), lambda y, f: scipy.stats.norm.pdf(y, f, 0.9)
    ),
    "StudentT": lambda: Known(
        likelihoods.StudentT(0.9, 3.0), lambda y, f: scipy.stats.t.pdf(y, 3.0, f, 0.9)
    ),
    "Laplace": lambda: Known(
        likelihoods.Laplace(0.8), lambda y, f: scipy.stats.laplace.pdf(y, f, 0.8)
    ),
    "Matern32": lambda: Known(
        likelihoods.Matern32(1.3), lambda y, f: matern_density(1.5)((y - f) / 1.3) / 1.3
    ),
    "Matern52": lambda: Known(
        likelihoods.Matern52(1.3), lambda y, f: matern_density(2.5)((y - f) / 1.3) / 1.3
    ),
    "Logistic": lambda: Known(
        likelihoods.Logistic(), lambda y, f: scipy.special.expit((2 * y - 1) * f)
    ),
    "Probit": lambda: Known(likelihoods.Probit(), lambda y, f: scipy.special.ndtr((2 * y - 1) * f)),
    # For this pseudo-likelihood, both bounds hold for its integral.
    "BayesianSVM": lambda: Known(
        likelihoods.BayesianSVM(),
        lambda y, f: np.exp(-2.0 * np.maximum(0.0, 1.0 - (2 * y - 1) * f)),
    ),
}


def panels(kinks: Sequence[float]) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Gauss-Legendre nodes and weights on [-12, 12], which is cut at the kinks and at every integer.
    """
    x, w = np.polynomial.legendre.leggauss(12)
    edges = np.unique([*kinks, *range(-12, 13)])
    mid, half = (edges[1:] + edges[:-1]) / 2.0, (edges[1:] - edges[:-1]) / 2.0
    return (mid[:, None] + half[:, None] * x).ravel(), (half[:, None] * w).ravel()


def exact_log_evidence(known: Known, K: AnyNDArray, Y: AnyNDArray) -> float:
    """log ∫ Π p(y_i|f_i) N(f|0, K) df for one or two data, by quadrature."""
    factors, grids, weights = [], [], []
    for y in Y[:, 0]:
        f, w = panels([y, -1.0, 1.0])
        factors.append(w * known.density(float(y), f))
        grids.append(f)
        weights.append(w)
    F = np.stack(np.meshgrid(*grids, indexing="ij"), axis=-1)
    prior = scipy.stats.multivariate_normal(np.zeros(len(Y)), K).pdf(F)
    total = (
        np.einsum("i,i->", factors[0], prior) if len(Y) == 1 else factors[0] @ prior @ factors[1]
    )
    return float(np.log(total))


@pytest.mark.briefly("BayesianSVM-2-0")
@pytest.mark.by_default("2-0")
@pytest.mark.parametrize("steps", [0, 15])
@pytest.mark.parametrize("num_data", [1, 2])
@pytest.mark.parametrize("make_known", KNOWN.values(), ids=KNOWN)
def test_augmented_elbo_below_elbo_below_evidence(
    make_known: Callable[[], Known], num_data: int, steps: int, randomise_q: Randomise
) -> None:
    """This holds at a random q and near the optimum. NumPy computes K."""
    known = make_known()
    X, Y = np.array([[0.0], [0.7]])[:num_data], np.array([[1.0], [0.0]])[:num_data]
    model = AugmentedVGP((X, Y), Matern12(1.3, lengthscales=0.8), known.likelihood)
    randomise_q(model)
    for _ in range(steps):
        AugmentedNaturalGradient().minimize(model)
    exact = exact_log_evidence(known, 1.3 * np.exp(-np.abs(X - X.T) / 0.8), Y)
    # The jitter may change the bounds by 1e-5.
    assert float(model.augmented_elbo()) <= float(model.elbo()) + 1e-5
    assert float(model.elbo()) <= exact + 1e-5
    if steps == 15:  # near the optimum the bound is tight
        assert float(model.augmented_elbo()) > exact - 0.5


def test_the_exact_evidence_of_gaussian_noise_is_reached() -> None:
    """Both bounds equal it after one step, and so does the quadrature of the test above."""
    gpflow.config.set_default_jitter(1e-12)
    X, Y = np.array([[0.0], [0.7]]), np.array([[1.0], [0.0]])
    known = KNOWN["Gaussian"]()
    model = AugmentedVGP((X, Y), Matern12(), known.likelihood)
    AugmentedNaturalGradient().minimize(model)
    exact = exact_log_evidence(known, np.exp(-np.abs(X - X.T)), Y)
    np.testing.assert_allclose([model.augmented_elbo(), model.elbo()], exact, rtol=1e-9)


# ---- ascent and its fixed point ----


class Ascent(NamedTuple):
    """A model after many full-batch steps of size 1, and its bound after each."""

    model: AugmentedModel
    args: tuple[Any, ...]
    elbos: AnyNDArray


@pytest.fixture(scope="module", params=["AugmentedSVGP", "AugmentedVGP"])
def ascent(
    request: pytest.FixtureRequest,
    make_likelihood: MakeLikelihood,
    observe: Observe,
    randomise_q: Randomise,
) -> Ascent:
    X, likelihood = spread(N), make_likelihood()
    data = X, observe(likelihood, X, 1)
    model: AugmentedModel
    if request.param == "AugmentedVGP":
        model, args = AugmentedVGP(data, Matern32(), likelihood), ()
    else:
        model, args = AugmentedSVGP(Matern32(), likelihood, spread(M) + 0.1), (data,)
    randomise_q(model)
    optimizer = AugmentedNaturalGradient(step_size=1.0)

    @tf.function
    def step() -> tf.Tensor:
        optimizer.minimize(model, *args)
        return model.augmented_elbo(*args)

    elbos = [model.augmented_elbo(*args).numpy(), *(step().numpy() for _ in range(200))]
    return Ascent(model, args, np.array(elbos))


@pytest.mark.briefly("Probit-AugmentedSVGP")
@pytest.mark.by_default("StudentT-AugmentedVGP", "Probit-AugmentedSVGP")
def test_fifty_full_steps_never_lower_the_elbo(ascent: Ascent) -> None:
    elbos = ascent.elbos[:51]
    assert np.all(np.diff(elbos) >= -1e-9 * np.abs(elbos[1:]))
    assert elbos[-1] > elbos[0] + 1.0


@pytest.mark.slow
@pytest.mark.by_default("StudentT")
def test_the_optimum_is_a_fixed_point(ascent: Ascent) -> None:
    """A further step changes neither the bound nor q."""
    np.testing.assert_allclose(ascent.elbos[-1], ascent.elbos[-2], rtol=1e-12)
    model = gpflow.utilities.deepcopy(ascent.model)
    AugmentedNaturalGradient(step_size=1.0).minimize(model, *ascent.args)
    np.testing.assert_allclose(model.q_mu.numpy(), ascent.model.q_mu.numpy(), atol=1e-8)
    np.testing.assert_allclose(model.q_sqrt.numpy(), ascent.model.q_sqrt.numpy(), atol=1e-8)


@pytest.mark.briefly("Probit-AugmentedSVGP")
@pytest.mark.by_default("StudentT", "Probit")
def test_ordinary_gradients_vanish_at_the_optimum(ascent: Ascent) -> None:
    model = ascent.model
    with tf.GradientTape() as tape:
        loss = model.training_loss(*ascent.args)
    variables = [model.q_mu.unconstrained_variable, model.q_sqrt.unconstrained_variable]
    for gradient in tape.gradient(loss, variables):
        assert np.max(np.abs(gradient)) <= 1e-6


@pytest.mark.briefly("Probit-AugmentedSVGP")
@pytest.mark.by_default("StudentT", "Probit")
def test_no_small_move_of_q_raises_the_elbo_at_the_optimum(
    ascent: Ascent, rng: np.random.Generator
) -> None:
    """The fixed point is a maximum, not a saddle point."""
    best = float(ascent.model.augmented_elbo(*ascent.args))
    for _ in range(5):
        model = gpflow.utilities.deepcopy(ascent.model)
        model.q_mu.assign(model.q_mu + 0.03 * rng.normal(size=model.q_mu.shape))
        model.q_sqrt.assign(model.q_sqrt + 0.01 * np.tril(rng.normal(size=model.q_sqrt.shape)))
        assert float(model.augmented_elbo(*ascent.args)) < best


# ---- models that must agree ----


@pytest.mark.briefly("Probit")
@pytest.mark.by_default("Laplace", "Logistic", "Probit")
def test_vgp_is_svgp_with_inducing_points_at_the_data(
    likelihood: likelihoods.AugmentedLikelihood, observe: Observe, randomise_q: Randomise
) -> None:
    """The bound, the gap, a step and the predictions are equal."""
    X = spread(N)
    data = X, observe(likelihood, X, 2)
    vgp = AugmentedVGP(data, Matern32(), likelihood, mean_function=line())
    svgp = AugmentedSVGP(Matern32(), likelihood, X, mean_function=line(), num_latent_gps=2)
    for model in (vgp, svgp):
        randomise_q(model)
    for step_size in (0.4, 1.0):
        np.testing.assert_allclose(vgp.augmented_elbo(), svgp.augmented_elbo(data), rtol=1e-6)
        np.testing.assert_allclose(vgp.elbo(), svgp.elbo(data), rtol=1e-6)
        np.testing.assert_allclose(vgp.augmentation_gap(), svgp.augmentation_gap(data), atol=1e-6)
        AugmentedNaturalGradient(step_size).minimize(vgp)
        AugmentedNaturalGradient(step_size).minimize(svgp, data)
        np.testing.assert_allclose(vgp.q_mu.numpy(), svgp.q_mu.numpy(), atol=1e-6)
        np.testing.assert_allclose(vgp.q_sqrt.numpy(), svgp.q_sqrt.numpy(), atol=1e-6)
        for ours, theirs in zip(mean_and_cov(vgp), mean_and_cov(svgp), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.briefly("Probit")
@pytest.mark.by_default("StudentT", "Probit", "BayesianSVM")
def test_whitening_is_a_change_of_variables_only(
    likelihood: likelihoods.AugmentedLikelihood, observe: Observe
) -> None:
    """Both models take the same path from the prior, which is q_mu = 0 and q_sqrt = I or L."""
    X, Z = spread(N), spread(M) + 0.1
    data = X, observe(likelihood, X, 1)
    K_ZZ = Matern32()(Z).numpy() + gpflow.config.default_jitter() * np.eye(M)
    white = AugmentedSVGP(Matern32(), likelihood, Z)
    plain = AugmentedSVGP(
        Matern32(), likelihood, Z, whiten=False, q_sqrt=np.linalg.cholesky(K_ZZ)[None]
    )
    for step_size in (0.5, 1.0, 0.7):
        for model in (white, plain):
            AugmentedNaturalGradient(step_size).minimize(model, data)
        np.testing.assert_allclose(
            white.augmented_elbo(data), plain.augmented_elbo(data), rtol=1e-8
        )
        for a, b in zip(mean_and_cov(white), mean_and_cov(plain), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-8)


@pytest.mark.briefly("Logistic")
@pytest.mark.by_default("StudentT", "Logistic")
def test_two_outputs_are_two_models(
    likelihood: likelihoods.AugmentedLikelihood, observe: Observe
) -> None:
    """Outputs with separate kernels do not influence each other."""
    X, Z = spread(N), spread(M) + 0.1
    Y = observe(likelihood, X, 2)
    both = AugmentedSVGP(separate_kernels(), likelihood, shared_inducing(Z), num_latent_gps=2)
    for _ in range(2):
        AugmentedNaturalGradient(0.8).minimize(both, (X, Y))
    for p, kernel in enumerate(separate_kernels().kernels):
        one = AugmentedSVGP(kernel, likelihood, Z)
        for _ in range(2):
            AugmentedNaturalGradient(0.8).minimize(one, (X, Y[:, p : p + 1]))
        np.testing.assert_allclose(both.q_mu[:, p : p + 1], one.q_mu, atol=1e-9)
        np.testing.assert_allclose(both.q_sqrt[p : p + 1], one.q_sqrt, atol=1e-9)


@pytest.mark.briefly("Probit-0.3")
@pytest.mark.by_default("0.3")
@pytest.mark.parametrize("step_size", [0.3, 1.0])
def test_a_representative_minibatch_is_as_good_as_all_data(
    likelihood: likelihoods.AugmentedLikelihood,
    step_size: float,
    observe: Observe,
    randomise_q: Randomise,
) -> None:
    """If the data are R copies of the batch, its step and its bound are those of all data."""
    copies, X = 5, spread(N)
    batch = X, observe(likelihood, X, 1)
    everything = tuple(np.tile(part, (copies, 1)) for part in batch)
    mini = AugmentedSVGP(Matern32(), likelihood, spread(M) + 0.1, num_data=copies * N)
    full = AugmentedSVGP(Matern32(), likelihood, spread(M) + 0.1)
    for model, data in ((mini, batch), (full, everything)):
        randomise_q(model)
        AugmentedNaturalGradient(step_size).minimize(model, data)
    np.testing.assert_allclose(mini.q_mu.numpy(), full.q_mu.numpy(), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(mini.q_sqrt.numpy(), full.q_sqrt.numpy(), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(
        mini.augmented_elbo(batch), full.augmented_elbo(everything), rtol=1e-10
    )


@pytest.mark.briefly("Probit")
@pytest.mark.by_default("StudentT", "Laplace", "Probit", "BayesianSVM")
def test_the_gap_is_what_the_augmentation_costs(
    likelihood: likelihoods.AugmentedLikelihood, observe: Observe, randomise_q: Randomise
) -> None:
    """Every datum has one number ≥ 0, summed over outputs; the total is elbo − augmented_elbo."""
    X = spread(N)
    data = X, observe(likelihood, X, 2)
    svgp = AugmentedSVGP(Matern32(), likelihood, spread(M) + 0.1, num_latent_gps=2)
    vgp = AugmentedVGP(data, Matern32(), likelihood)
    for model, args in ((svgp, (data,)), (vgp, ())):
        randomise_q(model)
        gap = model.augmentation_gap(*args).numpy()
        assert gap.shape == (N,)
        assert np.all(gap >= -1e-7)  # the quadrature's error
        difference = float(model.elbo(*args)) - float(model.augmented_elbo(*args))
        np.testing.assert_allclose(np.sum(gap), difference, rtol=1e-9, atol=1e-9)


# Both models use the given quadrature. Our default is more accurate than GPflow's 20 nodes, see
# likelihoods/test_variational_expectations.py.
STOCK = {
    "Gaussian": lambda: gpflow.likelihoods.Gaussian(0.4),
    "StudentT": lambda: gpflow.likelihoods.StudentT(
        0.6, df=4.0, quadrature=NDiagGHQuadrature(1, 19)
    ),
    "Bernoulli": lambda: gpflow.likelihoods.Bernoulli(
        invlink=tf.sigmoid, quadrature=NDiagGHQuadrature(1, 19)
    ),
}
# Its log(1 − Φ) is −∞ above f = 8.3; only the sparse model's q stays below this.
STOCK_PROBIT = {
    "Bernoulli-probit": lambda: gpflow.likelihoods.Bernoulli(
        invlink=lambda f: 0.5 * tf.math.erfc(-f / np.sqrt(2.0)),
        quadrature=NDiagGHQuadrature(1, 19),
    )
}


@pytest.mark.briefly("Gaussian")
@pytest.mark.parametrize(
    "make_stock", [*STOCK.values(), *STOCK_PROBIT.values()], ids=[*STOCK, *STOCK_PROBIT]
)
def test_elbo_is_gpflows(
    make_stock: Callable[[], gpflow.likelihoods.Likelihood],
    observe: Observe,
    randomise_q: Randomise,
) -> None:
    """Stock SVGP with GPflow's own likelihood has the same ELBO at the same q and minibatch."""
    X, likelihood = spread(N), make_stock()
    data = X, observe(likelihood, X, 1)
    models = [
        model_class(Matern32(), likelihood, spread(M) + 0.1, mean_function=line(), num_data=3 * N)
        for model_class in (AugmentedSVGP, gpflow.models.SVGP)
    ]
    for model in models:
        randomise_q(model)
    np.testing.assert_allclose(models[0].elbo(data), models[1].elbo(data), rtol=1e-10)


@pytest.mark.parametrize("make_stock", STOCK.values(), ids=STOCK)
def test_elbo_of_vgp_is_gpflows(
    make_stock: Callable[[], gpflow.likelihoods.Likelihood],
    observe: Observe,
    randomise_q: Randomise,
) -> None:
    """
    They are equal up to the jitter, which GPflow's VGP.elbo and VGP.predict_f use differently.
    """
    gpflow.config.set_default_jitter(1e-11)
    X, likelihood = spread(N), make_stock()
    data = X, observe(likelihood, X, 1)
    models = [
        model_class(data, Matern12(), likelihood, mean_function=line())
        for model_class in (AugmentedVGP, gpflow.models.VGP)
    ]
    for model in models:
        randomise_q(model)
    np.testing.assert_allclose(models[0].elbo(), models[1].elbo(), rtol=1e-8)
