"""``update``: learning from new rows without the old ones, with fixed or moved inducing points."""

import copy
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
import sklearn.datasets
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray
from gpflow.inducing_variables import (
    InducingPoints,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)

import gpflow_aaci
from gpflow_aaci import AugmentedSVGP, AugmentedVGP, data, likelihoods, polish, update

Data = tuple[AnyNDArray, AnyNDArray]

NOISE = 0.1
X_NEW = np.random.default_rng(5).uniform(-2.0, 2.0, size=(30, 2))


def waves(rows: int = 400, columns: int = 1, low: float = -2.0, high: float = 2.0) -> Data:
    rng = np.random.default_rng(1)
    X = rng.uniform(low, high, size=(rows, 2))
    f = np.sin(2.0 * X[:, :1] + np.arange(columns)) + 0.5 * X[:, 1:]
    return X, f + np.sqrt(NOISE) * rng.normal(size=f.shape)


def make(
    likelihood: gpflow.likelihoods.Likelihood | None = None, M: int = 30, **options: Any
) -> AugmentedSVGP:
    kernel = gpflow.kernels.SquaredExponential(1.3, lengthscales=[0.8, 1.5])
    return AugmentedSVGP(
        options.pop("kernel", kernel),
        likelihood or likelihoods.Gaussian(NOISE),
        options.pop("Z", waves()[0][:M].copy()),
        mean_function=gpflow.functions.Constant(0.2),
        **options,
    )


def chunks(data: Data, number: int, seed: int = 0) -> Iterator[Data]:
    order = np.random.default_rng(seed).permutation(len(data[0]))
    for rows in np.array_split(order, number):
        yield data[0][rows], data[1][rows]


def distance(a: Any, b: Any) -> float:
    return float(np.max(np.abs(np.asarray(a) - np.asarray(b))))


def apart(a: AugmentedSVGP, b: AugmentedSVGP) -> float:
    """The largest difference between the predictions of f by two models."""
    pairs = zip(a.predict_f(X_NEW), b.predict_f(X_NEW), strict=True)
    return max(distance(*pair) for pair in pairs)


# ---- Gaussian noise: exact ----


@pytest.mark.slow
def test_under_gaussian_noise_twenty_chunks_in_any_order_are_all_rows_at_once() -> None:
    """The result is GPflow's SGPR, and one natural-gradient step's; the bounds sum to SGPR's."""
    all_rows = waves()
    batch, model = make(), make()
    gpflow.optimizers.NaturalGradient(1.0).minimize(
        batch.training_loss_closure(all_rows, compile=False), [(batch.q_mu, batch.q_sqrt)]
    )
    sgpr = gpflow.models.SGPR(
        all_rows,
        model.kernel,
        model.inducing_variable,
        mean_function=model.mean_function,
        noise_variance=NOISE,
    )
    begin = model.q_mu.numpy(), model.q_sqrt.numpy()
    for seed in (0, 1):
        model.q_mu.assign(begin[0])
        model.q_sqrt.assign(begin[1])
        results = [update(model, chunk) for chunk in chunks(all_rows, 20, seed)]
        assert distance(model.q_mu, batch.q_mu) < 1e-8
        assert distance(model.q_sqrt, batch.q_sqrt) < 1e-8
        for ours, theirs in zip(model.predict_f(X_NEW), sgpr.predict_f(X_NEW), strict=True):
            assert distance(ours, theirs) < 1e-8
        assert sum(result.bound for result in results) == pytest.approx(float(sgpr.elbo()), 1e-9)
        assert [result.rows for result in results] == [20] * 20
        assert max(result.steps for result in results) <= 3
        assert min(result.gain for result in results) >= 0.0


@pytest.mark.slow
def test_nearly_noise_free_rows_on_an_ill_conditioned_kernel_are_added_to_1e_8() -> None:
    X, _ = waves(1000)
    all_rows = X, np.sin(X.sum(1, keepdims=True))
    kernel = gpflow.kernels.SquaredExponential(lengthscales=4.0)  # K_ZZ has condition number 1e7
    models = [make(likelihoods.Gaussian(1e-4), M=60, kernel=kernel) for _ in range(2)]
    assert np.linalg.cond(models[0].prior_covariance()[0]) > 1e7
    gpflow_aaci.AugmentedNaturalGradient().minimize(models[0], all_rows)
    for chunk in chunks(all_rows, 20):
        update(models[1], chunk)
    assert apart(*models) < 1e-8


SEVERAL: dict[str, Callable[[], dict[str, Any]]] = {
    "shared kernel": lambda: {"num_latent_gps": 2},
    "not whitened": lambda: {"num_latent_gps": 2, "whiten": False},
    "separate kernels and points": lambda: {
        "num_latent_gps": 2,
        "kernel": gpflow.kernels.SeparateIndependent(
            [gpflow.kernels.Matern32(), gpflow.kernels.SquaredExponential(2.0)]
        ),
        "Z": SeparateIndependentInducingVariables(
            [InducingPoints(waves()[0][:20]), InducingPoints(waves()[0][30:50])]
        ),
    },
}


@pytest.mark.by_default("not whitened")
@pytest.mark.parametrize("name", SEVERAL)
def test_so_are_those_of_several_latent_gps(name: str) -> None:
    all_rows = waves(columns=2)
    batch, model = (make(**SEVERAL[name]()) for _ in range(2))
    gpflow_aaci.AugmentedNaturalGradient().minimize(batch, all_rows)
    for chunk in chunks(all_rows, 4):
        update(model, chunk)
    assert apart(model, batch) < 1e-8


# ---- any noise ----


def kl(q: AugmentedSVGP, p: AugmentedSVGP) -> float:
    laws = [
        tfp.distributions.MultivariateNormalTriL(tf.transpose(m.q_mu), m.q_sqrt) for m in (q, p)
    ]
    return float(tf.reduce_sum(tfp.distributions.kl_divergence(*laws)))


def objective(q: AugmentedSVGP, past: AugmentedSVGP, rows: Data) -> float:
    X, Y = rows
    Fmu, Fvar = q.predict_f(X)
    terms = q.likelihood.variational_expectations(X, Fmu, Fvar, Y)
    return float(tf.reduce_sum(terms)) - kl(q, past)


def labels(rows: Data) -> Data:
    return rows[0], (rows[1] > 0.0).astype(float)


NOISES: dict[str, tuple[Callable[[], Any], Callable[[Data], Data]]] = {
    "StudentT": (lambda: likelihoods.StudentT(0.2, df=3.0), lambda rows: rows),
    "Logistic": (likelihoods.Logistic, labels),
    "Laplace": (lambda: likelihoods.Laplace(0.3), lambda rows: rows),
    "Switched": (
        lambda: gpflow.likelihoods.SwitchedLikelihood(
            [gpflow.likelihoods.Gaussian(0.1), gpflow.likelihoods.StudentT(0.2)]
        ),
        lambda rows: (rows[0], np.hstack([rows[1], np.arange(len(rows[1]))[:, None] % 2.0])),
    ),
}


@pytest.mark.slow
@pytest.mark.by_default("StudentT")
@pytest.mark.parametrize("name", NOISES)
def test_q_is_the_best_for_the_new_rows_and_a_kl_to_the_q_before(name: str) -> None:
    """The objective is made of GPflow's expectations and TFP's KL, and is lower beside q."""
    make_noise, observe = NOISES[name]
    rows = observe(waves(120))
    model = make(make_noise(), M=10)
    first, second = tuple(p[:60] for p in rows), tuple(p[60:] for p in rows)
    update(model, first)
    past = copy.deepcopy(model)
    result = update(model, second)
    assert result.bound == pytest.approx(objective(model, past, second), 1e-9)
    assert result.start == pytest.approx(objective(past, past, second), 1e-9)
    assert result.gain > 0.0
    best_mu, best_sqrt = model.q_mu.numpy(), model.q_sqrt.numpy()
    rng = np.random.default_rng(0)
    for _ in range(5):
        step = np.tril(rng.normal(size=best_sqrt.shape)), rng.normal(size=best_mu.shape)
        slopes = []
        for size in (1e-4, -1e-4):
            model.q_sqrt.assign(best_sqrt + size * best_sqrt @ step[0])
            model.q_mu.assign(best_mu + size * best_sqrt[0] @ step[1])
            slopes.append(objective(model, past, second) - result.bound)
        assert max(slopes) < 0.0  # a maximum,
        assert abs(slopes[0] - slopes[1]) < 0.02 * abs(sum(slopes))  # and stationary


@pytest.mark.slow
def test_the_first_update_of_a_new_model_is_a_polish() -> None:
    """This holds even if q(u) is initially N(0, I), which is not the prior."""
    rows = labels(waves(100))
    model, polished = (make(likelihoods.Logistic(), M=10, whiten=False) for _ in range(2))
    result = update(model, rows)
    assert result.bound == pytest.approx(polish(polished, rows).elbo, rel=1e-8)
    assert apart(model, polished) < 1e-4


@pytest.mark.slow
def test_coupled_latent_gps_gain() -> None:
    """A kernel mixes the latent GPs, which are updated in turn if joint Newton steps fail."""
    kernel = gpflow.kernels.LinearCoregionalization(
        [gpflow.kernels.Matern32(), gpflow.kernels.SquaredExponential()],
        W=np.array([[1.0, 0.4], [-0.6, 1.0]]),
    )
    Z = SharedIndependentInducingVariables(InducingPoints(waves()[0][:10]))
    noise = likelihoods.StudentT(0.3, df=3.0)
    model = make(noise, kernel=kernel, Z=Z, num_latent_gps=2)
    first, second = chunks(waves(120, columns=2), 2)
    update(model, first)
    past = copy.deepcopy(model)
    result = update(model, second)
    assert result.bound == pytest.approx(objective(model, past, second), 1e-9)
    assert result.gain > 1.0


def nll(model: AugmentedSVGP, rows: Data) -> float:
    return -float(tf.reduce_mean(model.predict_log_density(rows)))


@pytest.mark.slow
def test_classes_in_chunks_are_nearly_those_of_all_rows() -> None:
    X, y = sklearn.datasets.load_iris(return_X_y=True)
    X = (X - X.mean(0)) / X.std(0)
    rows = X, y[:, None].astype(float)
    batch, model = (
        AugmentedSVGP(
            gpflow.kernels.SquaredExponential(4.0, lengthscales=2.0),
            likelihoods.LogisticSoftmax(3),
            X[::10].copy(),
            num_latent_gps=3,
            mean_function=gpflow.functions.Constant(-np.log(3.0)),
        )
        for _ in range(2)
    )
    polish(batch, rows)
    for chunk in chunks(rows, 5):
        update(model, chunk)
    assert abs(nll(model, rows) - nll(batch, rows)) < 0.02


REAL: dict[str, tuple[Callable[[], Data], Callable[[], Any]]] = {
    "diabetes": (
        lambda: sklearn.datasets.load_diabetes(return_X_y=True),
        lambda: likelihoods.StudentT(0.7, df=4.0),
    ),
    "breast cancer": (
        lambda: sklearn.datasets.load_breast_cancer(return_X_y=True),
        likelihoods.Logistic,
    ),
}


@pytest.mark.by_default("diabetes")
@pytest.mark.parametrize("name", REAL)
@pytest.mark.slow
def test_twenty_updates_predict_as_well_as_all_rows_in_any_order(name: str) -> None:
    load, make_noise = REAL[name]
    X, y = load()
    is_real = len(np.unique(y)) > 2
    X, Y = (X - X.mean(0)) / X.std(0), ((y - y.mean()) / y.std() if is_real else y)[:, None]
    order = np.random.default_rng(0).permutation(len(X))
    test, train = order[:100], order[100:]
    kernel = gpflow.kernels.SquaredExponential(2.0, lengthscales=[6.0] * X.shape[1])
    model = AugmentedSVGP(kernel, make_noise(), X[train[:30]])
    batch = AugmentedSVGP(kernel, model.likelihood, X[train[:30]])
    rows, held_out = (X[train], Y[train].astype(float)), (X[test], Y[test].astype(float))
    polish(batch, rows)
    untouched, found = (model.q_mu.numpy(), model.q_sqrt.numpy()), []
    for seed in (0, 1):
        model.q_mu.assign(untouched[0])
        model.q_sqrt.assign(untouched[1])
        for chunk in chunks(rows, 20, seed):
            update(model, chunk)
        found.append(nll(model, held_out))
    assert abs(np.array(found) - nll(batch, held_out)).max() < 0.02
    assert np.ptp(found) < 0.01


@pytest.mark.slow
def test_what_is_known_may_be_no_density() -> None:
    """An outlier of Student-t noise makes q wider than the prior, so that q/p is not integrable."""
    noise = likelihoods.StudentT(0.5, df=3.0)
    Z = np.linspace(-2.0, 2.0, 5)[:, None]
    model = AugmentedSVGP(gpflow.kernels.Matern32(), noise, Z)
    update(model, (np.array([[0.0]]), np.array([[4.0]])))
    S = model.q_sqrt[0].numpy() @ model.q_sqrt[0].numpy().T
    assert np.linalg.eigvalsh(S).max() > 1.2
    past = copy.deepcopy(model)
    new = np.array([[0.1], [1.0]]), np.array([[0.7], [-0.2]])
    result = update(model, new, inducing_variable=Z + 0.1)
    assert result.moving <= 0.0
    assert result.gain > 0.0
    assert nll(model, new) < nll(past, new)


# ---- inducing points that move ----


def paper(
    model: AugmentedSVGP, Z_new: AnyNDArray, rows: Data
) -> tuple[AnyNDArray, AnyNDArray, float]:
    """
    Mean and covariance of q(b), and the bound: the paper's closed form, with explicit inverses.
    """
    K = [m.numpy() for m in (model.kernel(model.inducing_variable.Z), model.kernel(Z_new))]
    K_aa, K_bb = (k + gpflow.config.default_jitter() * np.eye(len(k)) for k in K)
    R = model.q_sqrt[0].numpy()
    chol = np.linalg.cholesky(K_aa)
    m_a, S_a = chol @ model.q_mu.numpy(), chol @ R @ R.T @ chol.T
    inv = np.linalg.inv
    D = inv(inv(S_a) - inv(K_aa))
    X, Y = rows
    y_hat = np.vstack([Y - 0.2, D @ inv(S_a) @ m_a])
    inputs = np.vstack([X, model.inducing_variable.Z.numpy()])
    K_fb = model.kernel(inputs, Z_new).numpy()
    N = len(X)
    noise = np.zeros([len(inputs)] * 2)
    noise[:N, :N], noise[N:, N:] = NOISE * np.eye(N), D
    H = K_fb @ inv(K_bb)
    covariance = inv(inv(K_bb) + H.T @ inv(noise) @ H)
    mean = covariance @ H.T @ inv(noise) @ y_hat
    Q = H @ K_fb.T
    root = np.linalg.cholesky(Q + noise)
    law = tfp.distributions.MultivariateNormalTriL(np.zeros(len(y_hat)), root)
    bound = float(law.log_prob(y_hat[:, 0]))
    bound -= 0.5 * np.sum(model.kernel(X, full_cov=False) - np.diag(Q)[:N]) / NOISE
    # q(a)/p(a) is exp(constant) N(D S⁻¹m; a, D), and a | b varies.
    bound -= 0.5 * np.trace(inv(D) @ (K_aa - Q[N:, N:]))
    logdet = lambda A: np.linalg.slogdet(A)[1]  # noqa: E731
    bound += 0.5 * (logdet(K_aa) - logdet(S_a) + logdet(D) + len(D) * np.log(2.0 * np.pi))
    past_mean = D @ inv(S_a) @ m_a
    bound += 0.5 * float((past_mean.T @ inv(D) @ past_mean - m_a.T @ inv(S_a) @ m_a).item())
    return mean, covariance, float(bound)


def test_moved_inducing_points_have_the_papers_posterior_and_bound() -> None:
    gpflow.config.set_default_jitter(1e-4)  # explicit inverses need it
    first, second = chunks(waves(200), 2)
    model = make(M=12)
    update(model, first)
    Z_new = model.inducing_variable.Z.numpy() + 0.3
    mean, covariance, bound = paper(model, Z_new, second)
    result = update(model, second, inducing_variable=Z_new)
    chol = np.linalg.cholesky(model.prior_covariance()[0])
    root = chol @ model.q_sqrt[0].numpy()
    assert distance(chol @ model.q_mu.numpy(), mean) < 1e-7
    assert distance(root @ root.T, covariance) < 1e-7
    assert result.bound == pytest.approx(bound, abs=1e-5)
    assert result.moving < -1e-3
    assert distance(model.inducing_variable.Z, Z_new) == 0.0


def test_inducing_points_in_another_order_lose_nothing() -> None:
    rows = waves(50)
    kept, moved = (make(M=20) for _ in range(2))
    for model in (kept, moved):
        update(model, waves())
    Z = kept.inducing_variable.Z.numpy()
    update(kept, rows)
    result = update(moved, rows, inducing_variable=Z[::-1].copy())
    assert abs(result.moving) < 1e-7
    assert apart(moved, kept) < 1e-8


SPLIT: dict[str, Callable[[AnyNDArray], Any]] = {
    "array": lambda Z: Z,
    "shared": lambda Z: SharedIndependentInducingVariables(InducingPoints(Z)),
    "separate": lambda Z: SeparateIndependentInducingVariables(
        [InducingPoints(Z), InducingPoints(Z[::-1].copy())]
    ),
}


@pytest.mark.by_default("")
@pytest.mark.parametrize("kind", SPLIT)
def test_every_kind_of_inducing_points_moves(kind: str) -> None:
    """A model with two latent GPs gives the same as two models with one."""
    rows = waves(100, columns=2)
    Z = waves()[0][:15]
    options: dict[str, Any] = {"num_latent_gps": 2, "Z": SPLIT[kind](Z)}
    if kind != "array":
        own = [gpflow.kernels.Matern32(1.3), gpflow.kernels.Matern32(1.3)]
        options["kernel"] = gpflow.kernels.SeparateIndependent(own)
    else:
        options["kernel"] = gpflow.kernels.Matern32(1.3)
    model = make(**options)
    update(model, rows)
    update(model, rows, inducing_variable=SPLIT[kind](Z + 0.2))
    for column in (0, 1):
        alone, of_one = make(kernel=gpflow.kernels.Matern32(1.3), Z=Z), rows[1][:, [column]]
        update(alone, (rows[0], of_one))
        update(alone, (rows[0], of_one), inducing_variable=Z + 0.2)
        for ours, theirs in zip(model.predict_f(X_NEW), alone.predict_f(X_NEW), strict=True):
            assert distance(np.asarray(ours)[:, [column]], theirs) < 1e-8


@pytest.mark.by_default("StudentT")
@pytest.mark.parametrize("name", ["StudentT", "Logistic"])
@pytest.mark.slow
def test_inputs_that_grow_rightwards_are_followed(name: str) -> None:
    """
    After five parts, with inducing points spread over all inputs so far, q is as good as a batch q.
    """
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.0, 10.0, size=(500, 1)), axis=0)
    rows = NOISES[name][1]((X, np.sin(1.5 * X) + 0.3 * rng.standard_t(4, size=X.shape)))
    M, kernel = 15, gpflow.kernels.SquaredExponential(1.0, lengthscales=1.0)
    everywhere = np.linspace(0.0, 10.0, M)[:, None]
    model = AugmentedSVGP(kernel, NOISES[name][0](), everywhere * 0.2)
    batch = AugmentedSVGP(kernel, model.likelihood, everywhere)
    stay = AugmentedSVGP(kernel, model.likelihood, everywhere * 0.2)
    polish(batch, rows)
    for number in range(5):
        part = tuple(p[number * 100 : (number + 1) * 100] for p in rows)
        update(model, part, inducing_variable=everywhere * (number + 1) / 5.0)
        update(stay, part)
    assert nll(model, rows) < nll(batch, rows) + 0.02
    assert nll(stay, rows) > nll(batch, rows) + 0.1


# ---- state ----


def test_what_is_known_survives_saving(tmp_path: Any) -> None:
    """It survives copying, too."""
    first, second = chunks(waves(), 2)
    model = make()
    update(model, first)
    tf.train.Checkpoint(model).write(str(tmp_path / "model"))
    loaded, copied = make(), copy.deepcopy(model)
    tf.train.Checkpoint(loaded).read(str(tmp_path / "model")).assert_consumed()
    others = loaded, copied
    results = [update(each, second) for each in (model, *others)]
    assert all(apart(model, other) == 0.0 for other in others)
    assert len(set(results)) == 1


@pytest.mark.slow
def test_num_data_is_the_number_of_rows_that_q_has_seen() -> None:
    rows = waves(90)
    first, second = chunks(rows, 2)
    for given in (90, tf.Variable(90.0, dtype=tf.float64, trainable=False)):
        model = make(M=5, num_data=given)  # a given number is overwritten
        update(model, first)
        assert float(model.num_data) == 45
        update(model, second)
        assert float(model.num_data) == 90
        assert isinstance(model.num_data, tf.Variable) == isinstance(given, tf.Variable)
    fitted = make(M=5, num_data=45)
    gpflow_aaci.AugmentedNaturalGradient().minimize(fitted, first)
    update(fitted, second)
    assert fitted.num_data == 90
    scaled = float(fitted.augmented_elbo(rows))
    fitted.num_data = None
    assert scaled == float(fitted.augmented_elbo(rows))
    update(fitted, second)
    assert fitted.num_data is None


def test_posteriors_that_were_handed_out_follow() -> None:
    model = make(M=5)
    posterior = model.posterior()
    update(model, waves(50))
    assert distance(posterior.predict_f(X_NEW)[0], model.predict_f(X_NEW)[0]) < 1e-10


@pytest.mark.slow
def test_datasets_and_frames_are_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset needs one pass, and may be longer than a chunk, or than num_data."""
    rows = labels(waves(100))
    frames = pd.DataFrame(rows[0], columns=["a", "b"]), pd.Series(rows[1][:, 0])
    whole, framed, batched = (make(likelihoods.Logistic(), M=8, num_data=10) for _ in range(3))
    result = update(whole, rows)
    assert update(framed, frames) == result
    monkeypatch.setattr(data.datasets, "CHUNK", 40)
    dataset = tf.data.Dataset.from_tensor_slices(rows).batch(7)
    in_chunks = update(batched, dataset, progress=False)
    assert in_chunks.rows == 100
    assert in_chunks.bound == pytest.approx(result.bound, rel=1e-10)
    assert apart(batched, whole) < 1e-8
    assert batched.num_data == 100


@pytest.mark.slow
def test_float32_is_close_to_float64() -> None:
    found = []
    gpflow.config.set_default_jitter(1e-4)
    for dtype in (np.float64, np.float32):
        gpflow.config.set_default_float(dtype)
        rows = tuple(part.astype(dtype) for part in waves(100))
        model = make(likelihoods.StudentT(0.3, df=4.0), Z=rows[0][:10].copy())
        results = [update(model, chunk) for chunk in chunks(rows, 2)]
        update(model, rows, inducing_variable=rows[0][10:20].copy())
        found.append((sum(r.bound for r in results), model.predict_f(X_NEW.astype(dtype))[0]))
    assert found[1][1].dtype == tf.float32
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-3)
    assert distance(found[0][1], found[1][1]) < 1e-2


# ---- compiled once ----


class Counted(likelihoods.Gaussian):
    """Counts how often Python evaluates the bound, which compiled code does not."""

    looks = 0

    def _variational_expectations(self, *args: Any) -> tf.Tensor:
        Counted.looks += 1
        return super()._variational_expectations(*args)


@pytest.mark.slow
def test_updates_of_any_size_are_compiled_once_for_a_model() -> None:
    model = make(Counted(NOISE), M=5)
    X, Y = waves(100)
    update(model, (X[:7], Y[:7]))
    looks = Counted.looks
    assert looks > 0
    for size in (7, 7, 8, 1, 100):
        update(model, (X[:size], Y[:size]))
        update(model, (X[:size], Y[:size]), inducing_variable=X[size % 50 :][:5])
    assert Counted.looks == looks


@pytest.mark.slow
def test_hyperparameters_and_parts_that_change_are_seen() -> None:
    """Compiled code reads new hyperparameters; after other changes it is compiled anew."""
    rows = waves(60)
    model = make(M=6)
    update(model, rows)

    def replaced(model: AugmentedSVGP) -> None:
        model.kernel = gpflow.kernels.Matern32(0.7)
        model.mean_function = gpflow.functions.Constant(-1.0)

    for change in (lambda m: m.kernel.lengthscales.assign([0.5, 0.6]), replaced):
        change(model)
        fresh = copy.deepcopy(model)
        update(model, rows)
        update(fresh, rows)
        assert apart(model, fresh) == 0.0


LOOP = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import gc, tracemalloc
import gpflow
import numpy as np
import gpflow_aaci

X = np.linspace(-2.0, 2.0, 2000)[:, None]
model = gpflow_aaci.AugmentedSVGP(
    gpflow.kernels.Matern32(), gpflow_aaci.likelihoods.Gaussian(), X[:5].copy(), num_data=7
)

def resident():
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

def updates(number):
    for i in range(number):
        rows = np.random.default_rng(i).permutation(2000)[: 90 + i % 20]
        gpflow_aaci.update(model, (X[rows], np.sin(X[rows])))

updates(100)
tracemalloc.start()
before, traced = resident(), tracemalloc.get_traced_memory()[0]
updates(200)
print((resident() - before), (tracemalloc.get_traced_memory()[0] - traced) / 1e6)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_is_flat() -> None:
    """The growth in MB over 200 updates, after the first 100, is small."""
    command = [sys.executable, "-c", LOOP]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    resident, traced = map(float, process.stdout.split()[-2:])
    assert resident < 8.0
    assert traced < 1.0


# ---- bad input ----


def spoilt(rows: Data, bad: float) -> Data:
    Y = rows[1].copy()
    Y[3] = bad
    return rows[0], Y


ROWS = waves(20)
Z_OF_FIVE = ROWS[0][:5]
BAD: dict[str, tuple[Callable[[], tuple[Any, dict[str, Any]]], str]] = {
    "NaN": (lambda: (spoilt(ROWS, np.nan), {}), "Y must be finite"),
    "columns": (lambda: ((ROWS[0][:, :1], ROWS[1]), {}), "X must have as many columns"),
    "rows": (lambda: ((ROWS[0][1:], ROWS[1]), {}), "N"),
    "none": (lambda: ((ROWS[0][:0], ROWS[1][:0]), {}), "at least one row"),
    "no pair": (lambda: (ROWS[0], {}), "data must be a pair"),
    "nothing": (lambda: (None, {}), "data must be given"),
    "NaN in a later batch": (
        lambda: (tf.data.Dataset.from_tensor_slices(spoilt(ROWS, np.nan)).batch(2), {}),
        "batch 1 of data: Y must be finite",
    ),
    "endless": (
        lambda: (tf.data.Dataset.from_tensor_slices(ROWS).batch(2).repeat(), {}),
        "one pass over the rows",
    ),
    "more points": (
        lambda: (ROWS, {"inducing_variable": ROWS[0][:6]}),
        "the model's number of points",
    ),
    "a vector": (lambda: (ROWS, {"inducing_variable": ROWS[0][0]}), "the model's number of points"),
    "points at NaN": (
        lambda: (ROWS, {"inducing_variable": Z_OF_FIVE * np.nan}),
        "inducing_variable must be finite",
    ),
    "another kind of points": (
        lambda: (
            ROWS,
            {
                "inducing_variable": gpflow.inducing_variables.Multiscale(
                    Z_OF_FIVE, np.ones_like(Z_OF_FIVE)
                )
            },
        ),
        "inducing_variable must be points",
    ),
    "steps": (lambda: (ROWS, {"max_steps": -1}), "max_steps must be"),
}


@pytest.fixture(scope="module")
def known() -> AugmentedSVGP:
    """A model that has been updated, which tests must not change."""
    model = make(Z=Z_OF_FIVE, num_data=60)
    gpflow_aaci.AugmentedNaturalGradient().minimize(model, waves(60))
    return model


def state(model: AugmentedSVGP) -> list[Any]:
    return [*(variable.numpy() for variable in model.variables), model.num_data]


def is_same(before: list[Any], after: list[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("name", BAD)
def test_what_is_bad_is_named_before_anything_changes(known: AugmentedSVGP, name: str) -> None:
    before = state(known)
    make_bad, message = BAD[name]
    rows, options = make_bad()
    with pytest.raises(Exception, match=message) as error:
        update(known, rows, **options)
    assert "Found" in str(error.value) or name == "rows"
    assert is_same(before, state(known))


def test_labels_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="Y"):
        update(make(likelihoods.Logistic(), M=5), ROWS)


def test_models_that_keep_their_data_are_refused() -> None:
    vgp = AugmentedVGP(ROWS, gpflow.kernels.Matern32(), likelihoods.StudentT())
    stock = gpflow.models.SVGP(gpflow.kernels.Matern32(), gpflow.likelihoods.Gaussian(), Z_OF_FIVE)
    for model, name in ((vgp, "AugmentedVGP, which stores"), (stock, "SVGP")):
        with pytest.raises(ValueError, match=f"AugmentedSVGP.*Found: {name}"):
            update(model, ROWS)


def failing(error: BaseException) -> Callable[..., Any]:
    def fail(*args: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("the kernel is ill")])
def test_an_update_that_fails_half_way_leaves_the_model_as_it_was(
    known: AugmentedSVGP, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Inducing points that have already moved are moved back."""
    before = state(known)
    monkeypatch.setattr("gpflow_aaci.inference.profile.Profile.maximise", failing(error))
    with pytest.raises(type(error)):
        update(known, ROWS, inducing_variable=Z_OF_FIVE + 0.1)
    assert is_same(before, state(known))


def test_where_no_finite_bound_is_found_the_model_is_as_it_was(known: AugmentedSVGP) -> None:
    """The squares of Y overflow."""
    before = state(known)
    with pytest.raises(ValueError, match="the bound on the new rows must be finite"):
        update(known, (ROWS[0], np.full_like(ROWS[1], 1e200)))
    assert is_same(before, state(known))
