"""Student-t and Cauchy noise, and multivariate Student-t noise with one ω for a row of Y."""

import abc
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType
from gpflow.config import default_float
from gpflow.utilities import to_default_float

from ...distributions.parameters import CheckedSampling
from ...special import student_t_cdf
from ...validation import check_count
from ..base import AugmentedLikelihood, Site
from ..declared import positive
from ..integrals.gamma_mixtures import jensen_gap, student_t_predictive_cdf
from ..integrals.quadrature import log_expectation
from .residual import AdditiveNoise, ResidualLikelihood


class GammaLaw(CheckedSampling, tfp.distributions.Gamma):
    """TFP's distribution, which also checks its arguments before it draws."""


class _StudentTNoise(AdditiveNoise, abc.ABC):
    """Noise whose marginal distribution is Student's t in every column of Y."""

    _num_columns = 1.0  # P, the number of columns that share one ω

    scale = positive(1.0, "σ")
    df = positive(3.0, "ν, degrees of freedom", above=1.0)  # so that y has a mean

    # Both may be plain numbers, if the likelihood was converted from GPflow's StudentT.

    def _scale(self, dtype: tf.DType) -> tf.Tensor:
        return tf.cast(to_default_float(self.scale), dtype)

    def _df(self, dtype: tf.DType) -> tf.Tensor:
        return tf.cast(to_default_float(self.df), dtype)

    def _df_and_shape(self, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
        """ν and (ν + P)/2."""
        df = self._df(dtype)
        return df, (df + self._num_columns) / 2.0

    def _log_C(self, dtype: tf.DType) -> tf.Tensor:
        """log [Γ((ν+P)/2) / (Γ(ν/2) (νπ)^{P/2} σ^P)], []."""
        df, shape = self._df_and_shape(dtype)
        log_unit = 0.5 * tf.math.log(df * np.pi) + tf.math.log(self._scale(dtype))
        log_C = tf.math.lgamma(shape) - tf.math.lgamma(df / 2.0)
        return log_C - self._num_columns * log_unit

    def noise_variance(self) -> tf.Tensor:
        """σ²ν/(ν−2), infinite for ν ≤ 2."""
        scale = tf.convert_to_tensor(self.scale, dtype_hint=default_float())
        df = self._df(scale.dtype)
        finite = df > 2.0
        excess = tf.where(finite, df - 2.0, tf.ones_like(df))
        infinity = tf.constant(np.inf, scale.dtype)
        return tf.where(finite, tf.square(scale) * df / excess, infinity)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        """f, or NaN for ν ≤ 1, as y has no mean then."""
        return tf.where(self._df(F.dtype) > 1.0, F, tf.constant(np.nan, F.dtype))

    def _cdf(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return student_t_cdf((Y - F) / self._scale(F.dtype), self._df(F.dtype))

    def _log_survival(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return tf.math.log(student_t_cdf((F - Y) / self._scale(F.dtype), self._df(F.dtype)))

    def _predict_cdf(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        scale, df = self._scale(Fmu.dtype), self._df(Fmu.dtype)
        return student_t_predictive_cdf(Y - Fmu, Fvar, scale, df)


class StudentT(_StudentTNoise, ResidualLikelihood):
    """
    Student's t with location f; h² = ((y − f)/σ)², φ(r) = (1 + r/ν)^{−(ν+1)/2}.

    C = Γ((ν+1)/2) / (Γ(ν/2) √(νπ) σ).
    """

    def log_C(self, Y: TensorType) -> tf.Tensor:
        return self._log_C(Y.dtype) + tf.zeros_like(Y)

    def alpha(self, Y: TensorType) -> tf.Tensor:
        return tf.square(Y / self._scale(Y.dtype))

    def beta(self, Y: TensorType) -> tf.Tensor:
        return 2.0 * Y / tf.square(self._scale(Y.dtype))

    def gamma(self, Y: TensorType) -> tf.Tensor:
        return 1.0 / tf.square(self._scale(Y.dtype)) + tf.zeros_like(Y)

    def log_phi(self, r: TensorType, Y: TensorType | None = None) -> tf.Tensor:
        df, shape = self._df_and_shape(r.dtype)
        return -shape * tf.math.log1p(r / df)

    def _tilted(self, c: tf.Tensor, Y: TensorType | None = None) -> tfp.distributions.Distribution:
        """Gamma((ν+1)/2, rate ν + c²)."""
        df, shape = self._df_and_shape(c.dtype)
        return GammaLaw(shape, df + tf.square(c))

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        law = tfp.distributions.StudentT(self._df(F.dtype), F, self._scale(F.dtype))
        return law.sample(seed=seed)


class Cauchy(StudentT):
    """1/(πσ (1 + ((y − f)/σ)²)): Student's t with one degree of freedom; y has no mean."""

    scale = positive(1.0, "σ, half the width at half height")
    df = 1.0


class MultivariateStudentT(_StudentTNoise, AugmentedLikelihood):
    r"""
    Multivariate Student-t noise for P columns: outliers affect all columns of a row together.

    p(y|f) = C φ(r), r = ‖y − f‖²/σ², φ(r) = (1 + r/ν)^{−(ν+P)/2} and
    C = Γ((ν+P)/2) / (Γ(ν/2) (νπ)^{P/2} σ^P).
    φ(r) = E e^{−rω}, ω ~ Gamma((ν+P)/2, rate ν): given the single ω of a row, its P latent GPs
    are independent and Gaussian. :class:`StudentT`, by contrast, has an ω for each column; for
    P = 1 the two are equal.
    """

    def __init__(self, scale: Any, df: Any, num_outputs: int, **kwargs: Any) -> None:
        """
        :param scale: σ, positive.
        :param df: ν, degrees of freedom, positive; learnable, and kept above 1 if it begins
            there, so that y has a mean. A ``Parameter`` is shared, with its own transform.
        :param num_outputs: P ≥ 1; ``num_latent_gps`` of the model.
        :raises ValueError: if an argument is not as described.
        """
        check_count("MultivariateStudentT: num_outputs", num_outputs, 1)
        P = int(num_outputs)
        super().__init__(scale, df, latent_dim=P, observation_dim=P, **kwargs)
        self._num_columns = float(P)

    def bound(self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """log C + log φ(E r)."""
        expected_r = self._expected_r(Fmu, Fvar, Y)
        df, shape = self._df_and_shape(Fmu.dtype)
        return self._log_C(Fmu.dtype) - shape * tf.math.log1p(expected_r / df)

    def auxiliary_law(
        self, X: TensorType | None, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tfp.distributions.Distribution:
        """Gamma((ν+P)/2, rate ν + E r), one for a row: [..., N, 1]."""
        df, shape = self._df_and_shape(Fmu.dtype)
        return GammaLaw(shape, df + self._expected_r(Fmu, Fvar, Y)[..., None])

    def log_joint(
        self, X: TensorType | None, auxiliary: Any, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log C − rω + log π(ω), [..., N, 1]."""
        r = self._expected_r(F, tf.zeros_like(F), Y)[..., None]
        df, shape = self._df_and_shape(F.dtype)
        return self._log_C(F.dtype) - r * auxiliary + GammaLaw(shape, df).log_prob(auxiliary)

    def site(self, X: TensorType | None, auxiliary: Any, Y: TensorType) -> Site:
        """Potential 2ωy/σ², precision 2ω/σ²."""
        scale = self._scale(auxiliary.dtype)
        precision = 2.0 * auxiliary / tf.square(scale) + tf.zeros_like(Y)
        return precision * Y, precision

    def expected_log_prob(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """The bound plus its Jensen gap, (ν+P)/2 · (log(1 + E r/ν) − E log(1 + r/ν))."""
        df, shape = self._df_and_shape(Fmu.dtype)
        variance = df * tf.square(self._scale(Fmu.dtype))
        lost = jensen_gap((Y - Fmu) / tf.sqrt(variance), Fvar / variance)
        return (self.bound(X, Fmu, Fvar, Y) + shape * lost)[..., None]

    def predictive_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """log ∫ Π_p N(y_p | m_p, v_p + σ²/λ) Gamma(λ; ν/2, ν/2) dλ, over u = log λ."""
        df, variance = self._df(Fmu.dtype), tf.square(self._scale(Fmu.dtype))
        residual = tf.square(Y - Fmu)

        def log_joint(u: tf.Tensor) -> tf.Tensor:
            of_y = Fvar + variance * tf.exp(-u)[..., None]
            log_normal = -0.5 * (tf.math.log(2.0 * np.pi * of_y) + residual / of_y)
            prior = tfp.distributions.ExpGamma(df / 2.0, df / 2.0).log_prob(u)
            return prior + tf.reduce_sum(log_normal, -1)

        # The rule needs a Gaussian weight; this one is about as wide as the distribution of u.
        zero = tf.zeros_like(residual[..., 0])
        width = 2.0 / (df + 1.0) + zero
        law = tfp.distributions.Normal(zero, tf.sqrt(width))
        peak = _most_probable_log_precision(df, residual / variance, Fvar / variance)
        log_p = log_expectation(lambda u: log_joint(u) - law.log_prob(u), zero, width, [peak], 3)
        return log_p[..., None]

    def draw_y(self, F: TensorType, seed: Any) -> tf.Tensor:
        """f + σε/√λ, one λ ~ Gamma(ν/2, ν/2) for a row."""
        seeds = tfp.random.split_seed(seed, n=2, salt="multivariate_student_t")
        half_df = self._df(F.dtype) / 2.0
        precision = GammaLaw(half_df, half_df).sample(tf.shape(F[..., :1]), seed=seeds[0])
        noise = tf.random.stateless_normal(tf.shape(F), seeds[1], dtype=F.dtype)
        return F + self._scale(F.dtype) * noise / tf.sqrt(precision)

    def _expected_r(self, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """Σ_p E(y_p − f_p)²/σ², [..., N]."""
        expected = tf.reduce_sum(tf.square(Y - Fmu) + Fvar, -1)
        return expected / tf.square(self._scale(Fmu.dtype))


_FIXED_POINTS = 20


def _most_probable_log_precision(df: tf.Tensor, r: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """
    u = log λ [...] near the maximum of p(y, λ), with r and v [..., P] in units of σ².

    There λ = (ν + Σ_p s_p) / (ν + Σ_p r_p s_p²), s_p = 1/(1 + λv_p). This equation is iterated,
    and λ rises from its solution at v = 0. (Another solution may lie near λ = 1, the mode of the
    prior.)
    """
    precision = (df + float(r.shape[-1])) / (df + tf.reduce_sum(r, -1))
    for _ in range(_FIXED_POINTS):
        share = 1.0 / (1.0 + precision[..., None] * v)
        of_y = tf.reduce_sum(r * tf.square(share), -1)
        precision = (df + tf.reduce_sum(share, -1)) / (df + of_y)
    return tf.stop_gradient(tf.math.log(precision))
