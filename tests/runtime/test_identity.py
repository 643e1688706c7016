"""A checkpoint can be resumed only by the model that wrote it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow_probability as tfp

from gpflow_aaci import AugmentedSVGP, fit_collapsed, likelihoods, train
from gpflow_aaci.inference import RobbinsMonro
from gpflow_aaci.runtime.compiled import forget_compiled
from gpflow_aaci.runtime.structure import facts

X = np.linspace(-2.0, 2.0, 40)[:, None] * [1.0, 0.5]
Y = np.sin(2.0 * X[:, :1]) + 0.1 * np.random.default_rng(0).standard_t(3, size=(40, 1))


def make(
    Z: Any = slice(0, 40, 5),
    df: float | None = 3.0,
    active_dims: Any = None,
    fixed: bool = True,
    **kwargs: Any,
) -> AugmentedSVGP:
    kernel = gpflow.kernels.SquaredExponential(active_dims=active_dims)
    likelihood: Any = likelihoods.Laplace()
    if df is not None:
        likelihood = gpflow.likelihoods.StudentT(df=df)  # its df is a number, not a Parameter
    kwargs = {"num_data": 40} | kwargs
    model = AugmentedSVGP(kernel, likelihood, X[Z].copy(), **kwargs)
    gpflow.set_trainable(model.inducing_variable, not fixed)
    return model


def with_prior(rate: float = 1.0, on: Any = gpflow.base.PriorOn.CONSTRAINED) -> AugmentedSVGP:
    model = make()
    prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(rate))
    model.kernel.lengthscales = gpflow.Parameter(
        model.kernel.lengthscales, prior=prior, prior_on=on
    )
    return model


def transformed() -> AugmentedSVGP:
    model = make()
    model.kernel.variance = gpflow.Parameter(1.0, transform=tfp.bijectors.Exp())
    return model


def fixed_variance(value: float) -> AugmentedSVGP:
    model = make()
    model.kernel.variance.assign(value)
    gpflow.set_trainable(model.kernel.variance, False)
    return model


DIFFERENT: dict[str, tuple[Callable[[], AugmentedSVGP], str]] = {
    "Z that is fixed": (lambda: make(Z=slice(2, 40, 5)), "inducing_variable.Z"),
    "Z that is learnt": (lambda: make(fixed=False), "inducing_variable.Z"),
    "df": (lambda: make(df=30.0), "likelihood.df"),
    "likelihood": (lambda: make(df=None), "likelihood"),
    "active_dims": (lambda: make(active_dims=[0]), "kernel._active_dims"),
    "prior": (with_prior, "kernel.lengthscales.prior"),
    "num_data": (lambda: make(num_data=400), "num_data"),
    "whiten": (lambda: make(whiten=False), "whiten"),
    "transform": (transformed, "kernel.variance.transform"),
    "fixed variance": (lambda: fixed_variance(1.0), "kernel.variance"),
    "mean function": (
        lambda: make(mean_function=gpflow.mean_functions.Constant()),
        "mean_function",
    ),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder with a checkpoint of ``make()`` for each kind."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("fit_collapsed", "train")}
    fit_collapsed(make(), (X, Y), tolerance=0.1, checkpoint_dir=folders["fit_collapsed"])
    train(make(), (X, Y), num_steps=3, checkpoint_dir=folders["train"], progress=False)
    return folders


@pytest.mark.by_default("Z that is learnt-train", "transform-train", "prior-train")
@pytest.mark.slow
@pytest.mark.parametrize("route", ["fit_collapsed", "train"])
@pytest.mark.parametrize("name", DIFFERENT)
def test_a_checkpoint_of_another_model_is_refused(
    folders: dict[str, Path], route: str, name: str
) -> None:
    """Fixed parts of the models differ. The message says which, and the model does not change."""
    another, differs = DIFFERENT[name]
    model, fresh = another(), another()
    with pytest.raises(ValueError, match=f"to another run: model differs: {differs}"):
        _fit(route, model, folders[route])
    for a, b in zip(model.variables, fresh.variables, strict=True):
        np.testing.assert_array_equal(a, b)


def test_two_priors_of_a_kind_are_two() -> None:
    """They differ in their parameters, or in what they are on."""
    assert facts(with_prior(1.0)) == facts(with_prior(1.0))
    assert facts(with_prior(1.0)) != facts(with_prior(2.0))
    on = gpflow.base.PriorOn
    assert facts(with_prior(on=on.CONSTRAINED)) != facts(with_prior(on=on.UNCONSTRAINED))
    assert facts(fixed_variance(1.0)) != facts(fixed_variance(2.0))


def test_what_is_learnt_does_not_count() -> None:
    model = make(fixed=False)
    before = facts(model)
    for variable in model.trainable_variables:
        variable.assign(variable + 0.1)
    assert facts(model) == before


@pytest.mark.slow
def test_settings_count_too(folders: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match=r"tolerance is 0.2 here\. Found: 0.1"):
        fit_collapsed(make(), (X, Y), tolerance=0.2, checkpoint_dir=folders["fit_collapsed"])
    assert facts(RobbinsMonro(0.6)) != facts(RobbinsMonro(0.7))


@pytest.mark.slow
@pytest.mark.by_default("train")
@pytest.mark.parametrize("route", ["fit_collapsed", "train"])
def test_what_no_digest_sees_the_objective_does(tmp_path: Path, route: str) -> None:
    """The kernel reads a global variable, so that the objective at the stored values differs."""
    model = make()
    _fit(route, model, tmp_path)
    again, fresh = make(), make()
    original = gpflow.kernels.SquaredExponential.K_r2
    try:
        gpflow.kernels.SquaredExponential.K_r2 = lambda self, r2: 0.5 * original(self, r2)
        forget_compiled()  # as in a new process, where nothing is compiled yet
        with pytest.raises(ValueError, match=r"to another run: the (objective|ELBO) at its"):
            _fit(route, again, tmp_path)
    finally:
        gpflow.kernels.SquaredExponential.K_r2 = original
        forget_compiled()
    for a, b in zip(again.variables, fresh.variables, strict=True):
        np.testing.assert_array_equal(a, b)


def _fit(route: str, model: AugmentedSVGP, folder: Path) -> None:
    if route == "train":
        train(model, (X, Y), num_steps=3, checkpoint_dir=folder, progress=False)
    else:
        fit_collapsed(model, (X, Y), tolerance=0.1, checkpoint_dir=folder)
