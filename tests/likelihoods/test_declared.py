"""The arguments that a likelihood declares make its constructor, its Parameters and its page."""

import copy
import inspect
import pickle

import gpflow
import numpy as np
import pytest
import scipy.special
import tensorflow as tf
from gpflow.base import AnyNDArray

from gpflow_aaci import check_likelihood
from gpflow_aaci.likelihoods import (
    AugmentedLikelihood,
    Binomial,
    Cauchy,
    CoxProcess,
    Gaussian,
    Heteroscedastic,
    Interval,
    Laplace,
    LogisticTree,
    Matern,
    Matern52,
    MultivariateStudentT,
    Ordinal,
    ResidualLikelihood,
    StudentT,
    Unaugmented,
    Weibull,
)
from gpflow_aaci.likelihoods.declared import Argument, further_column, positive, within


class Huberised(ResidualLikelihood):
    """C e^{1 − √(1 + r/s²)}, a likelihood of a user."""

    scale = positive(1.0, "s, in units of y")

    def log_C(self, Y):
        return -tf.math.log(2.0 * scipy.special.k1e(1.0) * self.scale) + tf.zeros_like(Y)

    def log_phi(self, r):
        x = r / tf.cast(tf.square(self.scale), r.dtype)
        return -x / (1.0 + tf.sqrt(1.0 + x))

    def noise_variance(self):
        return tf.square(self.scale) * scipy.special.kv(2, 1.0) / scipy.special.kv(1, 1.0)


class Pair(Huberised):
    """A likelihood with an argument more."""

    share = within(0.5, "π", 1.0)
    with_exposure = further_column("exposure", "whether Y has exposures.")


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (StudentT, "(scale=1.0, df=3.0, **kwargs)"),
        (Cauchy, "(scale=1.0, **kwargs)"),
        (Matern, "(nu=1.5, scale=1.0, **kwargs)"),
        (Matern52, "(scale=1.0, **kwargs)"),
        (Interval, "(link='probit', scale=1.0, **kwargs)"),
        (Heteroscedastic, "(base, max_precision=1.0, **kwargs)"),
        (LogisticTree, "(num_classes, tree=None, **kwargs)"),
        (Ordinal, "(bin_edges, sigma=1.0, link='probit', **kwargs)"),
        (Weibull, "(max_rate=1.0, shape=1.0, with_censoring=False, **kwargs)"),
        (Pair, "(scale=1.0, share=0.5, with_exposure=False, **kwargs)"),
    ],
)
def test_a_constructor_has_the_declared_arguments_in_their_order(kind, shown):
    assert str(inspect.signature(kind)) == shown


@pytest.mark.parametrize("kind", [Gaussian, MultivariateStudentT])
def test_a_constructor_of_a_class_itself_is_shown(kind):
    assert inspect.signature(kind) == inspect.signature(kind.__init__).replace(
        parameters=list(inspect.signature(kind.__init__).parameters.values())[1:]
    )


def test_the_page_of_a_class_says_what_each_argument_is():
    lines = inspect.getdoc(Pair).splitlines()
    assert lines[0] == "A likelihood with an argument more."
    assert lines[2:] == [
        ":param scale: s, in units of y, positive. A ``Parameter`` is shared.",
        ":param share: π, in (0, 1). A ``Parameter`` is shared.",
        ":param with_exposure: whether Y has exposures.",
    ]


def test_a_likelihood_that_declares_its_scale_is_right():
    Y: AnyNDArray = np.linspace(-3.0, 3.0, 7)[:, None]
    check_likelihood(Huberised(0.7), Y, progress=False)


def test_declared_arguments_are_taken_by_place_and_by_name():
    by_place, by_name = Pair(2.0, 0.25), Pair(share=0.25, scale=2.0)
    for likelihood in by_place, by_name:
        assert np.isclose(likelihood.scale, 2.0)
        assert np.isclose(likelihood.share, 0.25)
        assert len(likelihood.trainable_variables) == 2


def test_a_parameter_is_shared_and_keeps_its_transform():
    scale = gpflow.Parameter(2.0, transform=gpflow.utilities.positive(0.5))
    assert Huberised(scale).scale is scale


def test_what_is_held_fixed_follows_a_parameter_that_is_trained():
    assert not Ordinal([0.0, 1.0]).sigma.trainable
    sigma = gpflow.Parameter(1.0, transform=gpflow.utilities.positive())
    assert Ordinal([0.0, 1.0], sigma).sigma.trainable


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Huberised(-1.0), ValueError, r"^Huberised: scale must be finite and above"),
        (lambda: Huberised("2.0"), ValueError, r"^Huberised: scale must be finite"),
        (lambda: Binomial("5"), ValueError, r"^Binomial: total_count must be a whole number"),
        (lambda: Binomial(10**400), ValueError, r"^Binomial: total_count must be a whole number"),
        (lambda: Ordinal(["a"]), ValueError, r"^Ordinal: bin_edges must be one or more finite"),
        (lambda: Heteroscedastic(StudentT(), latent_dim=3), TypeError, "argument 'latent_dim'"),
        (lambda: LogisticTree(3, observation_dim=5), TypeError, "argument 'observation_dim'"),
        (lambda: Huberised("a"), ValueError, r"^Huberised: scale must be finite .* Found: 'a'"),
        (lambda: Pair(1.0, "a"), ValueError, r"^Pair: share must be one number .* Found: 'a'"),
        (lambda: Pair(1.0, 1.5), ValueError, r"^Pair: share must be one number in \(0, 1\)"),
        (lambda: Interval("cloglog"), ValueError, r"^Interval: link must be one of"),
        (
            lambda: Laplace(1.0, 2.0),
            TypeError,
            "^Laplace: too many .*arguments: scale",
        ),
        (lambda: Laplace(scal=1.0), TypeError, "^Laplace: .* unexpected keyword argument 'scal'"),
        (lambda: Ordinal(), TypeError, "^Ordinal: missing a required argument: 'bin_edges'"),
        (lambda: Laplace(1.0, scale=2.0), TypeError, "multiple values for argument 'scale'"),
    ],
)
def test_what_is_not_accepted_is_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("likelihood", "latent_dim"),
    [
        (Pair(with_exposure=True), 1),
        (Pair(), None),
        (CoxProcess(3.0), 1),
        (Interval(), 1),
    ],
)
def test_rows_with_further_columns_have_one_f(likelihood, latent_dim):
    assert likelihood.latent_dim == latent_dim


def test_an_argument_declared_anew_keeps_its_place_and_a_repeated_one_moves():
    class Anew(StudentT):
        scale = positive(0.1, "σ in metres")

    class Repeated(StudentT):
        scale = StudentT.scale

    assert str(inspect.signature(Anew)) == "(scale=0.1, df=3.0, **kwargs)"
    assert str(inspect.signature(Repeated)) == "(df=3.0, scale=1.0, **kwargs)"


def test_a_value_in_place_of_a_declaration_is_no_argument():
    class Fixed(Pair):
        share = 0.3

    assert list(inspect.signature(Fixed).parameters) == ["scale", "with_exposure", "kwargs"]
    assert Fixed().share == 0.3
    assert isinstance(Pair.share, Argument)


def test_a_likelihood_derived_from_two_has_the_arguments_of_both():
    class Other(ResidualLikelihood):
        power = positive(2.0, "p")

    class Both(Other, Huberised):
        pass

    assert list(inspect.signature(Both).parameters) == ["scale", "power", "kwargs"]


def test_a_constructor_written_by_hand_passes_declared_arguments_on():
    class Named(Huberised):
        def __init__(self, unit, **kwargs):
            super().__init__(scale=2.0 * unit, **kwargs)

    assert np.isclose(Named(3.0).scale, 6.0)
    assert list(inspect.signature(Named).parameters) == ["unit", "kwargs"]


def test_an_argument_that_is_not_kept_is_no_attribute():
    assert not hasattr(Pair(with_exposure=True), "with_exposure")
    assert not hasattr(LogisticTree(3), "tree")


def test_the_class_says_how_many_latent_gps_and_columns_there_are():
    class Two(AugmentedLikelihood):
        latent_dim, observation_dim = 2, 1
        largest = positive(1.0, "λ")

        def bound(self, X, Fmu, Fvar, Y):
            return self.largest * Fmu[..., 0]

        def _conditional_mean(self, X, F):
            return F[..., :1]

        def _conditional_variance(self, X, F):
            return F[..., :1]

        def _predict_mean_and_var(self, X, Fmu, Fvar):
            return Fmu[..., :1], Fvar[..., :1]

    for likelihood in Two(2.0), Heteroscedastic(StudentT()):
        assert (likelihood.latent_dim, likelihood.observation_dim) == (2, 1)
    assert (LogisticTree(4).latent_dim, LogisticTree(4).observation_dim) == (3, None)


def test_a_class_of_gpflow_keeps_its_own_constructor():
    class Mixed(Unaugmented, gpflow.likelihoods.HeteroskedasticTFPConditional):
        pass

    assert Mixed(scale_transform=None).latent_dim == 2


def test_an_argument_that_is_read_too_early_is_named():
    class Early(Huberised):
        def __init__(self):
            self.scale  # noqa: B018
            super().__init__()

    with pytest.raises(AttributeError, match="Early has no attribute scale: this is an argument"):
        Early()


@pytest.mark.parametrize("again", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_a_likelihood_can_be_copied_and_pickled(again):
    for likelihood in Weibull(2.0, 1.5, True), Ordinal([0.0, 1.0]), LogisticTree(3):
        found = again(likelihood)
        assert (found.given, found.latent_dim) == (likelihood.given, likelihood.latent_dim)
        for one, other in zip(found.parameters, likelihood.parameters, strict=True):
            np.testing.assert_array_equal(one, other)


def test_hooks_of_a_user_are_given_one_type_of_float():
    class Mine(Laplace):
        def _predict_log_density(self, X, Fmu, Fvar, Y):
            return tf.reduce_sum(-tf.abs(Y - Fmu) - Fvar, -1)

    f, Y = np.zeros((2, 1)), np.array([[0], [3]])
    np.testing.assert_array_equal(Mine().predict_log_density(f, f, f, Y), [0.0, -3.0])
