"""A kernel on a column of words, and models on frames that hold words."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import Constant, Kernel, Matern52, SquaredExponential
from gpflow.utilities import parameter_dict

from gpflow_aaci import (
    AugmentedNNGP,
    AugmentedSVGP,
    AugmentedVGP,
    choose,
    effects,
    fit,
    fit_collapsed,
    kmeans_plusplus,
    likelihoods,
    loo,
    polish,
    predictions,
    train,
    update,
)
from gpflow_aaci.kernels import Categorical, Difference, levels_of
from gpflow_aaci.plots import plot_fit

N = 45
CITIES = ["Ulm", "Bonn", "Kiel"]
RNG = np.random.default_rng(0)
CODES = np.arange(N) % 3
FRAME = pd.DataFrame({"size": RNG.uniform(-2.0, 2.0, N), "city": np.array(CITIES)[CODES]})
X = np.column_stack([FRAME["size"], CODES])
Y = np.sin(2.0 * X[:, :1]) + 0.5 * CODES[:, None] + 0.2 * RNG.standard_t(3, size=(N, 1))
COUNTS = np.round(np.exp(np.clip(Y, -1.0, 2.0)))
W, KAPPA = RNG.normal(size=(3, 2)), np.array([0.3, 0.7, 0.2])


def of_cities(rank: int = 0, levels: Any = CITIES) -> Kernel:
    return Matern52(0.8, 1.3, active_dims=[0]) * Categorical(1, levels, rank)


def sparse(Z: Any = X[:9], rank: int = 1, **kwargs: Any) -> AugmentedSVGP:
    return AugmentedSVGP(of_cities(rank), likelihoods.StudentT(), Z, num_data=N, **kwargs)


# ---- the kernel ----


def with_rank(rank: int) -> tuple[Categorical, AnyNDArray]:
    """A kernel of numbers 2, 5 and 7 in column 1, and its covariance of these levels by hand."""
    kernel = Categorical(1, [7.0, 2.0, 5.0, 2.0], rank)
    if rank == 0:
        kernel.correlation.assign(0.3)
        return kernel, np.array([[1.0, 0.3, 0.3], [0.3, 1.0, 0.3], [0.3, 0.3, 1.0]])
    kernel.W.assign(W[:, :rank])
    kernel.kappa.assign(KAPPA)
    return kernel, W[:, :rank] @ W[:, :rank].T + np.diag(KAPPA)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_the_covariance_is_that_of_the_levels_of_both_rows(rank: int) -> None:
    kernel, B = with_rank(rank)
    at, at_others = np.array([0, 2, 1, 1, 0]), np.array([1, 0, 2])
    rows, others = (
        np.column_stack([np.zeros(len(each)), np.array([2.0, 5.0, 7.0])[each]])
        for each in (at, at_others)
    )
    np.testing.assert_allclose(kernel(rows), B[np.ix_(at, at)], atol=1e-12)
    np.testing.assert_allclose(kernel(rows, others), B[np.ix_(at, at_others)], atol=1e-12)
    np.testing.assert_allclose(kernel(rows, full_cov=False), np.diag(B)[at], atol=1e-12)
    np.testing.assert_allclose(kernel(np.stack([rows, rows]))[1], kernel(rows), atol=1e-12)
    phi = kernel.features(tf.constant(rows)).numpy()
    np.testing.assert_allclose(phi @ phi.T, kernel(rows), atol=1e-12)


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_the_covariance_of_levels_is_positive_definite_wherever_a_search_may_go(rank: int) -> None:
    rng = np.random.default_rng(1)
    kernel = Categorical(0, list("abcdefg"), rank)
    for _ in range(20):
        for variable in kernel.trainable_variables:
            variable.assign(3.0 * rng.normal(size=variable.shape))
        B = kernel.level_covariance().numpy()
        assert np.linalg.eigvalsh(B)[0] > -1e-12 * np.max(B)


def test_the_kernel_of_rank_0_is_the_hamming_kernel_which_is_one_of_rank_1() -> None:
    """k = ρ for different words, 1 for the same: W = √ρ 1 and kappa = 1 − ρ."""
    hamming, low_rank = Categorical(0, CITIES), Categorical(0, CITIES, rank=1)
    hamming.correlation.assign(0.3)
    low_rank.W.assign(np.full([3, 1], np.sqrt(0.3)))
    low_rank.kappa.assign(np.full(3, 0.7))
    codes = CODES[:, None].astype(float)
    np.testing.assert_allclose(hamming(codes), np.where(codes == codes.T, 1.0, 0.3), atol=1e-12)
    np.testing.assert_allclose(hamming(codes), low_rank(codes), atol=1e-12)


def test_levels_are_all_categories_in_their_order_or_words_as_they_appear() -> None:
    grades = pd.Categorical(["high", "low"], ["low", "middle", "high"])
    assert Categorical(0, grades).levels.tolist() == ["low", "middle", "high"]
    assert Categorical(0, pd.Series(grades)).levels.tolist() == ["low", "middle", "high"]
    assert Categorical(0, FRAME["city"]).levels.tolist() == CITIES
    assert Categorical(0, pd.cut([1.0, 5.0], [0, 2, 8])).levels.tolist() == ["(0, 2]", "(2, 8]"]
    assert Categorical(0, [3, 1, 3]).levels.tolist() == [1.0, 3.0]
    assert Categorical(0, pd.Categorical([3, 1])).levels.tolist() == [1.0, 3.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Categorical(-1, CITIES), "column must be an integer of at least 0"),
        (lambda: Categorical(0, CITIES, rank=-1), "rank must be an integer of at least 0"),
        (lambda: Categorical(0, []), "levels of kernels.Categorical must be .* or words"),
        (lambda: Categorical(0, [1.0, np.nan]), "levels of kernels.Categorical .*1 not finite"),
        (lambda: Categorical(0, np.array(["a", None], object)), "levels of .*1 .*no words"),
        (lambda: effects.Grouped(0, levels=[["a"]]), r"levels .*Found: shape \[1, 1\]"),
        (lambda: levels_of(SquaredExponential() * Categorical(1, CITIES)), "act on other columns"),
        (
            lambda: levels_of(of_cities() + Categorical(1, CITIES[::-1])),
            "levels of column 1 must be the same in all parts",
        ),
    ],
)
def test_what_makes_no_kernel_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


# ---- models ----


def with_any_q(model: Any) -> Any:
    rng = np.random.default_rng(4)
    model.q_mu.assign(rng.normal(size=model.q_mu.shape))
    model.q_sqrt.assign(0.5 * model.q_sqrt)
    return model


def all_of(model: Any, X: Any, Y: Any) -> list[Any]:
    """What methods of a model, and functions of it, return for data."""
    data = None if isinstance(model, AugmentedVGP) else (X, Y)
    return [
        model.elbo(data),
        loo(model, data).loo_i.values,
        *model.predict_y(X),
        model.predict_log_density((X, Y)),
        predictions.sample_functions(model, 2, num_features=20)(X),
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:q is not at its optimum")
@pytest.mark.parametrize("is_sparse", [True, False])
def test_words_are_their_places_among_the_levels(is_sparse: bool) -> None:
    found = []
    for inputs in (FRAME, X):
        noise = likelihoods.NegativeBinomial()
        model: Any
        if is_sparse:
            model = AugmentedSVGP(of_cities(1), noise, inputs[:9], num_data=N)
        else:
            model = AugmentedVGP((inputs, COUNTS), of_cities(1), noise)
        with_any_q(model)
        found.append(all_of(model, inputs, COUNTS))
    for of_words, of_codes in zip(*found, strict=True):
        np.testing.assert_allclose(of_words, of_codes, rtol=1e-10, atol=1e-12)


def test_the_order_of_the_levels_does_not_matter() -> None:
    found = []
    for order in ([0, 1, 2], [2, 0, 1]):
        kernel = of_cities(2, np.array(CITIES)[order])
        kernel.kernels[1].W.assign(W[order])
        kernel.kernels[1].kappa.assign(KAPPA[order])
        codes = np.argsort(order)[CODES]
        data = np.column_stack([X[:, 0], codes]), Y
        found.append(gpflow.models.GPR(data, kernel, noise_variance=0.1).predict_f(data[0]))
        full = AugmentedVGP((FRAME, Y), kernel, likelihoods.Gaussian())
        np.testing.assert_array_equal(full.data[0], data[0])
    np.testing.assert_allclose(*found, atol=1e-10)


def test_levels_that_are_independent_are_regressions_of_their_own() -> None:
    """B = I, and GPflow's GPR of the rows of each level."""
    kernel = of_cities(1)
    kernel.kernels[1].W.assign(np.zeros([3, 1]))
    kernel.kernels[1].kappa.assign(np.ones(3))
    model = AugmentedVGP((FRAME, Y), kernel, likelihoods.Gaussian(variance=0.1))
    polish(model, progress=False)
    for level, city in enumerate(CITIES):
        rows = level == CODES
        own = Matern52(0.8, 1.3, active_dims=[0])
        alone = gpflow.models.GPR((X[rows], Y[rows]), own, noise_variance=0.1)
        new = pd.DataFrame({"size": np.linspace(-2.0, 2.0, 5), "city": city})
        expected = alone.predict_f(np.column_stack([new["size"], np.zeros(5)]))
        for ours, theirs in zip(model.predict_f(new), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.slow
def test_a_fit_learns_which_levels_are_alike() -> None:
    """Simulated: two of the levels have one function, and the third minus that function."""
    rng = np.random.default_rng(3)
    x, codes = rng.uniform(-2.0, 2.0, 90), np.arange(90) % 3
    sign = np.array([1.0, 1.0, -1.0])[codes]
    y = sign * np.sin(2.0 * x) + 0.1 * rng.standard_t(3, size=90)
    frame = pd.DataFrame({"x": x, "city": np.array(CITIES)[codes]})
    model = AugmentedVGP((frame, y[:, None]), of_cities(1), likelihoods.StudentT())
    fit(model, progress=False)
    B = model.kernel.kernels[1].level_covariance().numpy()
    R = B / np.sqrt(np.outer(np.diag(B), np.diag(B)))
    assert R[0, 1] > 0.9
    assert max(R[0, 2], R[1, 2]) < -0.9


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fit", "train"])
def test_inducing_points_move_but_keep_their_levels(method: str) -> None:
    model = sparse(FRAME[:9])
    before = model.inducing_variable.Z.numpy()
    np.testing.assert_array_equal(before, X[:9])
    if method == "fit":
        fit_collapsed(model, (FRAME, Y), progress=False)
    else:
        train(model, (FRAME, Y), num_steps=30, progress=False)
    after = model.inducing_variable.Z.numpy()
    np.testing.assert_array_equal(after[:, 1], before[:, 1])
    assert np.max(np.abs(after[:, 0] - before[:, 0])) > 1e-3


def test_unseen_words_are_refused_with_the_known_ones_before_anything_changes() -> None:
    model, nearest = sparse(), AugmentedNNGP((FRAME, Y), of_cities(), likelihoods.StudentT())
    full = AugmentedVGP((FRAME, Y), of_cities(), likelihoods.StudentT())
    new = FRAME.assign(city=["Rom", *FRAME["city"][1:]])
    before = {key: value.numpy() for key, value in parameter_dict(model).items()}
    known = "'Ulm', 'Bonn', 'Kiel'. Found: 'Rom'"
    of_data: list[Callable[[Any], Any]] = [
        lambda X: AugmentedVGP((X, Y), of_cities(), likelihoods.StudentT()),
        lambda X: nearest.add(X, Y),
        lambda X: model.predict_log_density((X, Y)),
        *(lambda X, f=f: f(model, (X, Y)) for f in (fit, fit_collapsed, train, update, loo)),
    ]
    of_inputs: list[Callable[[Any], Any]] = [
        *(each.predict_f for each in (model, full, nearest)),
        model.predict_y,
        lambda X: predictions.predict_y_quantile(model, X, 0.5),
        lambda X: predictions.predict_y_samples(full, X, 3),
    ]
    for door in (*of_data, *of_inputs):
        with pytest.raises(ValueError, match=rf"^column 'city' of X.* must hold .*{known}"):
            door(new)
        with pytest.raises(ValueError, match=r"column 1 of X.* 0 for 'Ulm', 1 for 'Bonn'"):
            door(np.where(X == 2.0, 3.0, X))
    for key, value in parameter_dict(model).items():
        np.testing.assert_array_equal(value, before[key])
    with pytest.raises(ValueError, match="column 1 of inducing_variable must hold levels"):
        sparse(X[:9] + 0.25)


def test_words_that_no_part_of_the_kernel_knows_are_refused_with_the_remedy() -> None:
    remedy = r"column 'city' of X .*kernels.Categorical\(column=1, .*effects.Grouped\(column=1, "
    with pytest.raises(ValueError, match=remedy):
        AugmentedVGP((FRAME, Y), Matern52(active_dims=[0]), likelihoods.StudentT())
    missing = FRAME.assign(city=[None, *FRAME["city"][1:]])
    with pytest.raises(ValueError, match="column 'city' of X must have no missing values"):
        sparse().elbo((missing, Y))


def test_a_category_without_rows_is_predicted_by_the_levels_that_have_some() -> None:
    """Under the Hamming kernel its f correlates by ρ with the f of each other level."""
    frame = FRAME.assign(city=pd.Categorical(FRAME["city"], [*CITIES, "Rom"]))
    levels = frame["city"]
    model = AugmentedVGP((frame, Y), of_cities(0, levels), likelihoods.Gaussian(variance=0.1))
    polish(model, progress=False)
    new = pd.DataFrame({"size": [0.5], "city": ["Rom"]})
    mean, _ = model.predict_f(new)
    smooth = Matern52(0.8, 1.3)
    same = 0.5 + 0.5 * (CODES[:, None] == CODES)
    K = smooth(X[:, :1]).numpy() * same + 0.1 * np.eye(N)
    expected = 0.5 * smooth(np.array([[0.5]]), X[:, :1]).numpy() @ np.linalg.solve(K, Y)
    np.testing.assert_allclose(mean, expected, atol=1e-5)


def test_effects_of_groups_may_be_words() -> None:
    found = []
    for inputs, levels in ((FRAME, FRAME["city"]), (X, CODES)):
        groups = effects.Grouped(1, levels=levels)
        smooth = Matern52(0.8, 1.3, active_dims=[0]) * Constant(active_dims=[0])
        noise = likelihoods.Logistic()
        model = AugmentedSVGP(smooth, noise, X[:9], num_data=N, effects=[groups])
        labels = (Y > 0.0).astype(float)
        with_any_q(model)
        part = predictions.predict_component(model, inputs[:3], groups)
        found.append([model.elbo((inputs, labels)), *part])
    for of_words, of_codes in zip(*found, strict=True):
        np.testing.assert_allclose(of_words, of_codes, rtol=1e-10)


def test_pairs_of_items_may_have_words() -> None:
    pairs = pd.concat([FRAME, FRAME[::-1].reset_index(drop=True)], axis=1)
    codes = np.hstack([X, X[::-1]])
    first = (Y[::-1] < Y).astype(float)
    kernel = Difference(of_cities(), input_dim=2)
    Z = kmeans_plusplus(FRAME, 9, kernel=kernel)
    model = AugmentedSVGP(kernel, likelihoods.Logistic(), Z, num_data=N)
    np.testing.assert_allclose(model.elbo((pairs, first)), model.elbo((codes, first)), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:q is not at its optimum")
def test_gpflow_s_own_model_takes_words_in_the_functions_of_this_package() -> None:
    noise = gpflow.likelihoods.StudentT()
    stock = gpflow.models.SVGP(of_cities(1), noise, X[:9], num_data=N)
    np.testing.assert_allclose(*(loo(stock, (each, Y)).elpd_loo for each in (FRAME, X)))


def test_words_work_in_single_precision() -> None:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32, jitter=1e-4)):
        model = sparse(FRAME[:9].astype({"size": "float32"}))
        with_any_q(model)
        found = [model.elbo((each, Y)) for each in (FRAME, X.astype(np.float32))]
    assert found[0].dtype == tf.float32
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_kmeans_takes_rows_and_any_two_levels_are_equally_far_apart() -> None:
    Z = kmeans_plusplus(FRAME, 12, kernel=of_cities())
    assert {tuple(z) for z in Z} <= {tuple(x) for x in X}
    words = pd.DataFrame({"letter": list("abcdefgh") * 9})
    letters = Categorical(0, words["letter"])
    assert sorted(kmeans_plusplus(words, 8, kernel=letters).ravel()) == list(range(8))


@pytest.mark.slow
def test_choose_takes_words() -> None:
    choice = choose((FRAME, Y), of_cities(), likelihoods.StudentT(), num_inducing=9, progress=False)
    assert set(choice.sparse.inducing_variable.Z.numpy()[:, 1]) <= {0.0, 1.0, 2.0}
    np.testing.assert_allclose(*(choice.model.predict_y(each)[0] for each in (FRAME, X)))


def test_a_figure_names_the_levels() -> None:
    model = AugmentedVGP((FRAME, Y), of_cities(), likelihoods.StudentT())
    ax = plot_fit(model, input_dim=1)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == CITIES
    plot_fit(model, input_dim=0)  # the line is at a level
