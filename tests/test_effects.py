"""Effects of groups and linear effects: exact where the GP is, and REML where there is none."""

from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray
from gpflow.keras import tf_keras
from gpflow.kernels import Matern32

from gpflow_aaci import (
    AlternatingOptimizer,
    AugmentedNaturalGradient,
    AugmentedNNGP,
    AugmentedSVGP,
    AugmentedVGP,
    effects,
    fit,
    fit_collapsed,
    likelihoods,
    polish,
    sample_posterior,
)
from gpflow_aaci.models.shared import prior_q
from gpflow_aaci.predictions import predict_component
from gpflow_aaci.sampling import SparseGibbsKernel

N, G = 60, 7


def inputs() -> AnyNDArray:
    """x of 12 values, a group, a second group that crosses it, and two covariates, [N, 5]."""
    rng = np.random.default_rng(0)
    x = rng.choice(np.linspace(-2.0, 2.0, 12), size=N)
    groups = np.arange(N) % G, rng.integers(0, 3, size=N)
    return np.column_stack([x, *groups, rng.normal(size=(N, 2))])


X = inputs()
Z = np.unique(X[:, :1], axis=0) * np.eye(1, 5)  # f depends on x alone
Y = (
    np.sin(2.0 * X[:, :1])
    + np.random.default_rng(1).normal(size=G)[X[:, 1].astype(int)][:, None]
    + 0.4 * X[:, 3:4]
    + 0.3 * np.random.default_rng(2).normal(size=(N, 1))
)


def kernel() -> Matern32:
    return Matern32(1.3, 0.8, active_dims=[0])


def some_effects() -> list[effects.Effect]:
    return [
        effects.Grouped(1, variance=0.9, levels=X[:, 1]),
        effects.Grouped(2, variance=0.2, levels=[0.0, 1.0, 2.0]),
        effects.Linear([3, 4], variance=0.5),
    ]


def by_hand(X: AnyNDArray, X2: AnyNDArray) -> AnyNDArray:
    """The covariance of f with all effects."""
    return (
        kernel()(X, X2).numpy()
        + 0.9 * (X[:, 1:2] == X2[:, 1])
        + 0.2 * (X[:, 2:3] == X2[:, 2])
        + 0.5 * X[:, 3:] @ X2[:, 3:].T
    )


def test_the_kernel_is_the_sum_and_the_product_of_the_features() -> None:
    full = effects.added(kernel(), some_effects(), 5)
    np.testing.assert_allclose(full(X, X[:9]), by_hand(X, X[:9]), atol=1e-12)
    np.testing.assert_allclose(full(X, full_cov=False), np.diag(by_hand(X, X)), atol=1e-12)
    for effect in some_effects():
        features, variances = effect.features(X).numpy(), effect.prior_variances.numpy()
        np.testing.assert_allclose(features * variances @ features.T, effect(X), atol=1e-12)


@pytest.mark.slow
def test_a_sparse_model_with_every_x_is_gaussian_process_regression() -> None:
    """Predictions are at a known and at a new level, which has the prior's effect."""
    noise = likelihoods.Gaussian(variance=0.09)
    Xnew = X[:4].copy()
    Xnew[2:, 1] = 99.0
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-11)):
        model = AugmentedSVGP(kernel(), noise, Z, num_data=N, effects=some_effects())
        gpflow.set_trainable(model, False)
        gpflow.set_trainable([model.q_mu, model.q_sqrt], True)
        fit_collapsed(model, (X, Y), progress=False)
        K = by_hand(X, X) + 0.09 * np.eye(N)
        _, log_determinant = np.linalg.slogdet(2.0 * np.pi * K)
        evidence = -0.5 * (log_determinant + float(Y.T @ np.linalg.solve(K, Y)))
        np.testing.assert_allclose(float(model.elbo((X, Y))), evidence, atol=1e-6)
        cross = by_hand(Xnew, X)
        mean, variance = model.predict_f(Xnew)
    np.testing.assert_allclose(mean, cross @ np.linalg.solve(K, Y), atol=1e-6)
    expected = by_hand(Xnew, Xnew) - cross @ np.linalg.solve(K, cross.T)
    np.testing.assert_allclose(variance[:, 0], np.diag(expected), atol=1e-6)


@pytest.mark.briefly("False")
@pytest.mark.parametrize("is_sparse", [True, False])
def test_the_effect_of_a_group_is_a_part_of_f_with_its_posterior(is_sparse: bool) -> None:
    """By the formula for jointly normal variables, at two known levels and a new one."""
    noise, chosen = likelihoods.Gaussian(variance=0.09), some_effects()
    data = (X, Y) if is_sparse else None
    model = (
        AugmentedSVGP(kernel(), noise, Z, num_data=N, effects=chosen)
        if is_sparse
        else AugmentedVGP((X, Y), kernel(), noise, effects=chosen)
    )
    polish(model, data, progress=False)
    Xnew = np.zeros((3, 5))
    Xnew[:, 1] = [0.0, 4.0, 99.0]
    cross = 0.9 * (Xnew[:, 1:2] == X[:, 1])
    solved = np.linalg.solve(by_hand(X, X) + 0.09 * np.eye(N), np.column_stack([Y, cross.T]))
    mean, variance = predict_component(model, Xnew, chosen[0])
    np.testing.assert_allclose(mean[:, 0], cross @ solved[:, 0], atol=1e-4)
    np.testing.assert_allclose(variance[:, 0], 0.9 - np.sum(cross * solved[:, 1:].T, 1), atol=1e-4)
    total = sum(predict_component(model, X, part)[0] for part in range(4))
    np.testing.assert_allclose(total, model.predict_f(X)[0], atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "likelihood",
    [likelihoods.NegativeBinomial, lambda: likelihoods.Heteroscedastic(likelihoods.Gaussian())],
)
def test_counts_of_full_and_sparse_models_have_one_elbo(likelihood: Any) -> None:
    counts = np.random.default_rng(3).poisson(np.exp(0.5 * Y)).astype(float)
    elbos = []
    for data in ((X, counts), None):
        of, L = likelihood(), likelihood().latent_dim or 1
        options: Any = {"num_latent_gps": L, "effects": some_effects()}
        if data is None:
            model = AugmentedVGP((X, counts), kernel(), of, **options)
        else:
            model = AugmentedSVGP(kernel(), of, Z, num_data=N, **options)
        gpflow.set_trainable(model.kernel, False)
        gpflow.set_trainable(model.likelihood, False)
        if data is not None:
            gpflow.set_trainable(model.inducing_variable, False)
        fit(model, data, progress=False)
        elbos.append(float(model.elbo(data)))
    np.testing.assert_allclose(*elbos, atol=1e-3)


def test_a_step_of_training_is_the_same_whether_u_is_whitened_or_not() -> None:
    elbos = []
    for whiten in (True, False):
        model = AugmentedSVGP(
            kernel(), likelihoods.StudentT(), Z, num_data=N, effects=some_effects(), whiten=whiten
        )
        if not whiten:  # begin at the prior
            model.assign_whitened_q(prior_q(*model.q_mu.shape))
        AlternatingOptimizer(0.7, tf_keras.optimizers.SGD(0.0)).minimize(model, (X, Y))
        elbos.append(float(model.elbo((X, Y))))
    np.testing.assert_allclose(*elbos, rtol=1e-8)


@pytest.mark.slow
def test_variances_without_a_gp_are_those_of_restricted_maximum_likelihood() -> None:
    """A fixed effect has a large variance, which stays; log |AᵀA| of REML is then a constant."""
    fixed = np.column_stack([np.ones(N), X[:, 3]])
    rows = np.column_stack([X[:, 1], fixed])
    linear = effects.Linear([1, 2], variance=1e5)
    gpflow.set_trainable(linear, False)
    no_gp = gpflow.kernels.Constant(variance=1e-12, active_dims=[1])
    gpflow.set_trainable(no_gp, False)
    groups = effects.Grouped(0, levels=X[:, 1])
    noise = likelihoods.Gaussian(variance=0.5)
    point = np.zeros((1, 3))
    model = AugmentedSVGP(no_gp, noise, point, num_data=N, effects=[groups, linear])
    gpflow.set_trainable(model.inducing_variable, False)
    fit(model, (rows, Y), progress=False)

    def minus_restricted(log_variances: AnyNDArray) -> float:
        of_group, of_noise = np.exp(log_variances)
        V = of_group * (X[:, 1:2] == X[:, 1]) + of_noise * np.eye(N)
        VX, Vy = np.linalg.solve(V, fixed), np.linalg.solve(V, Y)
        information = fixed.T @ VX
        quadratic = Y.T @ Vy - (fixed.T @ Vy).T @ np.linalg.solve(information, fixed.T @ Vy)
        return float(np.linalg.slogdet(V)[1] + np.linalg.slogdet(information)[1] + quadratic)

    expected = np.exp(scipy.optimize.minimize(minus_restricted, np.zeros(2), tol=1e-10).x)
    found = [groups.variance.numpy(), noise.variance.numpy()]
    np.testing.assert_allclose(found, expected, rtol=3e-3)


@pytest.mark.slow
def test_gibbs_draws_have_the_moments_of_gaussian_process_regression() -> None:
    noise = likelihoods.Gaussian(variance=0.09)
    model = AugmentedSVGP(kernel(), noise, Z, num_data=N, effects=some_effects())
    draws = sample_posterior(model, (X, Y), num_samples=500, progress=False)
    chol = np.linalg.cholesky(model.prior_covariance()[0].numpy())
    u = draws.posterior["u"].values.reshape(-1, len(chol))
    cross = model.cross_covariance(X)[0][0].numpy()
    K = by_hand(X, X) + 0.09 * np.eye(N)
    np.testing.assert_allclose(u.mean(0), cross @ np.linalg.solve(K, Y)[:, 0], atol=0.1)


@pytest.mark.replicate
def test_ranks_of_true_effects_among_gibbs_draws_are_uniform() -> None:
    """
    Simulation-based calibration (Talts et al. 2018), with 500 replicates as chains of one model.

    Effects and y are drawn from the model; the truth is a draw from the posterior, so that no
    burn-in is needed.
    """
    replicates, thinned = 500, 19
    model = AugmentedSVGP(kernel(), likelihoods.Logistic(), Z, num_data=N, effects=some_effects())
    sampler = SparseGibbsKernel(model, (X, np.ones((N, 1))))
    v, f = sampler.initial_state(replicates, seed=[3, 1])
    is_one = np.random.default_rng(5).uniform(size=f.shape) < 1.0 / (1.0 + np.exp(-f))
    sampler.rows = sampler.rows[0], tf.constant(2.0 * is_one - 1.0)

    @tf.function(autograph=False)
    def run() -> tf.Tensor:
        return tfp.mcmc.sample_chain(
            thinned,
            [v, f],
            kernel=sampler,
            num_burnin_steps=10,
            num_steps_between_results=9,
            trace_fn=None,
            seed=[1, 2],
        )[0]

    draws = run().numpy()
    for coefficient in (len(Z), len(Z) + G, -1):  # of each effect; v is u up to its prior scale
        ranks = (draws[:, :, coefficient, 0] < v.numpy()[:, coefficient, 0]).sum(0)
        assert scipy.stats.chisquare(np.bincount(ranks, minlength=thinned + 1)).pvalue > 1e-3


def test_in_float32_the_elbo_is_close() -> None:
    found = []
    for dtype in (np.float32, np.float64):
        with gpflow.config.as_context(gpflow.config.Config(float=dtype, jitter=1e-4)):
            model = AugmentedSVGP(
                kernel(), likelihoods.Laplace(), Z.astype(dtype), effects=some_effects()
            )
            found.append(float(model.elbo((X.astype(dtype), Y.astype(dtype)))))
    np.testing.assert_allclose(*found, rtol=1e-4)


def test_neighbours_that_are_all_rows_predict_as_the_full_gp() -> None:
    """Their kernels are evaluated for many small sets of rows at a time."""
    noise, whole = likelihoods.Gaussian(variance=0.09), effects.added(kernel(), some_effects(), 5)
    full = AugmentedVGP((X, Y), whole, noise)
    polish(full, progress=False)
    nearest = AugmentedNNGP((X, Y), whole, noise, N)
    nearest.prediction_neighbors = N
    rows = X[:5] + np.eye(5)[0] * 0.1
    for found, expected in zip(nearest.predict_f(rows), full.predict_f(rows), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-4)
    batches = np.random.default_rng(4).choice([0.0, 1.0, 2.0], size=(2, 3, 1))
    group = effects.Grouped(0, variance=2.0)
    np.testing.assert_array_equal(group(batches), 2.0 * (batches == np.swapaxes(batches, 1, 2)))
    np.testing.assert_array_equal(
        group(batches, batches), 2.0 * (batches[..., 0][..., None, None] == batches[..., 0])
    )


def test_fit_tells_of_rows_whose_level_was_not_given() -> None:
    groups = effects.Grouped(1, levels=[0.0, 1.0, 2.0])
    model = AugmentedSVGP(kernel(), likelihoods.Laplace(), Z, num_data=N, effects=[groups])
    gpflow.set_trainable(model.inducing_variable, False)
    unknown = np.sum(X[:, 1] > 2.0)
    said = str(fit(model, (X, Y), progress=False))
    assert f"{unknown} of {N} rows have a level in column 1 of X" in said


def test_a_frozen_float32_model_predicts() -> None:
    model = AugmentedSVGP(kernel(), likelihoods.Laplace(), Z, num_data=N, effects=some_effects())
    polish(model, (X, Y), progress=False)
    frozen = gpflow.utilities.freeze_as_float32(model)
    found, expected = frozen.predict_f(X.astype(np.float32)), model.predict_f(X)
    np.testing.assert_allclose(found[0], expected[0], atol=2e-3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: effects.Grouped(-1), "column of effects.Grouped must be .*Found: \\[-1\\]"),
        (lambda: effects.Linear([2, 2]), "columns of effects.Linear must be distinct"),
        (lambda: effects.Grouped(None), "column of effects.Grouped must be .*Found: \\[None\\]"),
        (lambda: effects.Linear([0.5]), "columns of effects.Linear must be whole numbers"),
        (lambda: effects.Grouped(1, levels=[[1.0]]), r"levels .* must be finite numbers, \[G\]"),
        (lambda: effects.Grouped(1, levels=[np.nan]), "1 not finite"),
    ],
)
def test_effects_of_wrong_columns_and_levels_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


ONE = effects.Linear([3])


@pytest.mark.parametrize(
    ("kernel", "chosen", "message"),
    [
        (Matern32(), [effects.Grouped(1, levels=[0.0])], "Matern32 must act on other columns"),
        (kernel(), effects.Linear([3]), "effects must be a list of"),
        (kernel(), [effects.Linear([7])], "columns of X, from 0 to 4. Found: 7"),
        (kernel(), [ONE, ONE], "effects must hold every effect once"),
        (kernel() + ONE, [effects.Linear([4])], "and the kernel none of them"),
        (kernel(), [effects.Grouped(1, levels=[0.0]), effects.Linear([1])], "Linear must act on"),
        (kernel(), [effects.Grouped(1)], "levels of effects.Grouped must be given"),
        (kernel(), [kernel()], r"effects must be a list of .* Found: \['Matern32'\]"),
        (
            gpflow.kernels.SharedIndependent(kernel(), 2),
            [effects.Linear([3])],
            "kernel must have a single output for a model with effects",
        ),
    ],
)
def test_models_with_effects_that_do_not_fit_are_refused(
    kernel: Any, chosen: list[Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        AugmentedSVGP(kernel, likelihoods.Laplace(), Z, effects=chosen)


# ---- offsets ----


def counts_with_exposure() -> tuple[AnyNDArray, AnyNDArray]:
    """Two covariates and log exposure [N, 3], and counts whose mean is proportional to it."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(N, 3))
    return x, rng.poisson(2.0 * np.exp(np.sin(x[:, :1]) + x[:, 2:])).astype(float)


def model_with_offset(kind: type, offset: Any, **how: Any) -> Any:
    data, smooth = counts_with_exposure(), Matern32(0.7, active_dims=[0, 1])
    how = {"mean_function": offset, **how}
    if kind is AugmentedSVGP:
        return kind(smooth, likelihoods.NegativeBinomial(2.0), data[0][:9], num_data=N, **how)
    return kind(data, smooth, likelihoods.NegativeBinomial(2.0), **how)


@pytest.mark.briefly("AugmentedVGP")
@pytest.mark.parametrize("kind", [AugmentedSVGP, AugmentedVGP, AugmentedNNGP])
def test_an_offset_is_log_exposure_added_to_f(kind: type) -> None:
    """E[y] is proportional to the exposure that Xnew has, whatever the data were."""
    (x, y), constant = counts_with_exposure(), gpflow.mean_functions.Constant(0.3)
    model = model_with_offset(kind, constant + effects.Offset(2))
    if kind is not AugmentedNNGP:
        AugmentedNaturalGradient().minimize(model, (x, y) if kind is AugmentedSVGP else None)
        f, variance = model.predict_f(x * [1.0, 1.0, 0.0])
        args = x, f + x[:, 2:], variance, y
        expected = tf.reduce_sum(model.likelihood.variational_expectations(*args))
        expected -= model.prior_kl()
        data = (x, y) if kind is AugmentedSVGP else None
        np.testing.assert_allclose(model.elbo(data), expected, rtol=1e-6)
    at_one, at_five = (
        model.predict_y(np.column_stack([x[:4, :2], np.full(4, np.log(E))]))[0] for E in (1.0, 5.0)
    )
    np.testing.assert_allclose(at_five, 5.0 * at_one, rtol=1e-8)


def test_models_with_other_offsets_share_no_compiled_function() -> None:
    x, y = counts_with_exposure()
    found = []
    for offset in (effects.Offset(2), effects.Offset(2, [0.5])):
        model = model_with_offset(AugmentedSVGP, offset)
        AugmentedNaturalGradient().minimize(model, (x, y))
        found.append(model.predict_f(x[:1] * [1.0, 1.0, 0.0] + [0.0, 0.0, 8.0])[0].numpy().item())
    f = [each - shift for each, shift in zip(found, (8.0, 4.0), strict=True)]
    assert np.max(np.abs(f)) < 2.0


def test_an_offset_of_the_count_alone_leaves_the_gate() -> None:
    (x, _), smooth = counts_with_exposure(), Matern32(active_dims=[0])
    model = AugmentedSVGP(
        smooth,
        likelihoods.ZeroInflated(likelihoods.NegativeBinomial(), gate="gp"),
        x[:9],
        num_latent_gps=2,
        num_data=N,
        mean_function=effects.Offset(2, weights=[1.0, 0.0]),
    )
    expected = np.column_stack([x[:, 2], np.zeros(N)])
    np.testing.assert_allclose(model.predict_f(x)[0], expected, atol=1e-12)
    with pytest.raises(ValueError, match=r"weights.*one, or 1, as f has.*Found: 2"):
        model_with_offset(AugmentedVGP, effects.Offset(2, [1.0, 0.0]))


@pytest.mark.parametrize("kind", [AugmentedSVGP, AugmentedVGP, AugmentedNNGP])
def test_a_kernel_on_the_column_of_an_offset_is_refused(kind: type) -> None:
    offset = gpflow.mean_functions.Constant() + effects.Offset(1)
    with pytest.raises(ValueError, match=r"must not act on column 1 of X.*Found: Matern32"):
        model_with_offset(kind, offset)
    with pytest.raises(ValueError, match=r"must be one of X, from 0 to 2\. Found: 3"):
        model_with_offset(kind, effects.Offset(3))


def test_a_linear_effect_of_the_offset_asks_whether_its_coefficient_is_one() -> None:
    model_with_offset(AugmentedVGP, effects.Offset(2), effects=[effects.Linear([2])])


@pytest.mark.parametrize("weights", [[], [np.nan], 1.0])
def test_bad_weights_and_columns(weights: Any) -> None:
    with pytest.raises(ValueError, match=r"weights of effects\.Offset must be finite numbers"):
        effects.Offset(0, weights)
    with pytest.raises(ValueError, match=r"column of effects\.Offset must be whole numbers"):
        effects.Offset(-1)
