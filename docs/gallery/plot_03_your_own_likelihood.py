"""
A likelihood of your own
========================

The pseudo-Huber loss is quadratic for small residuals and straight for large ones. As a likelihood
it is neither in GPflow nor in this package, and takes ten lines. The package derives the rest.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import scipy.special
import tensorflow as tf
import tensorflow_probability as tfp

import gpflow_aaci
from gpflow_aaci.likelihoods import ResidualLikelihood
from gpflow_aaci.likelihoods.declared import positive

# %%
# Noise that is added to f is written p(y|f) = C φ(r), r = (y − f)². The condition is that φ is
# completely monotone: it decreases, its slope increases, and so on: the signs of all its
# derivatives alternate. Then φ is an average of Gaussian noise over precisions 2ω,
#
#   φ(r) = ∫ exp(−r ω) p(ω) dω,
#
# and given ω, the auxiliary variable, q(u) has a closed form. With s the scale, pseudo-Huber is
# φ(r) = exp(1 − √(1 + r/s²)). (Below it is written so that no digits are lost where r is small.)


class PseudoHuber(ResidualLikelihood):
    scale = positive(1.0, "s")  # an argument, and a Parameter that is learnt

    def log_C(self, Y):  # ∫ exp(1 − √(1 + u²)) du = 2e K₁(1), a Bessel function
        return -tf.math.log(2.0 * scipy.special.k1e(1.0) * self.scale) + tf.zeros_like(Y)

    def log_phi(self, r):  # of real r, and of complex r
        x = r / tf.cast(self.scale**2, r.dtype)
        return -x / (1.0 + tf.sqrt(1.0 + x))

    def noise_variance(self):  # for predict_y
        return self.scale**2 * scipy.special.kv(2, 1.0) / scipy.special.kv(1, 1.0)


# %%
# Is it right? ``check_likelihood`` checks the signs of four derivatives of φ, the normalisation,
# the bound, the distribution of ω, and Bayes' rule. It prints nothing if all is right.

Y_try = np.linspace(-3.0, 3.0, 7)[:, None]
gpflow_aaci.check_likelihood(PseudoHuber(0.7), Y_try, progress=False)

# %%
# Here are two wrong likelihoods. A loss that grows with the fourth power of the residual has
# lighter tails than any average of Gaussian noise. The other likelihood lacks the scale in C.


class FourthPower(PseudoHuber):
    def log_phi(self, r):
        return -tf.square(r / tf.cast(self.scale**2, r.dtype))


class ForgottenScale(PseudoHuber):
    def log_C(self, Y):
        return -np.log(2.0 * scipy.special.k1e(1.0)) + tf.zeros_like(Y)


for wrong in FourthPower(0.7), ForgottenScale(0.7):
    try:
        gpflow_aaci.check_likelihood(wrong, Y_try, progress=False)
    except ValueError as error:
        print(*str(error).split(". "), sep=".\n", end="\n\n")

# %%
# It can be used in any model, ours or GPflow's own. Its scale is learnt with the hyperparameters.

rng = np.random.default_rng(5)
X = np.sort(rng.uniform(0.0, 10.0, (120, 1)), 0)
Y = np.sin(X) + 0.3 * X + 0.1 * rng.laplace(size=X.shape)
Y[rng.choice(120, 8, replace=False)] += rng.normal(0.0, 2.0, (8, 1))


def fitted(likelihood):
    model = gpflow_aaci.AugmentedVGP((X, Y), gpflow.kernels.SquaredExponential(), likelihood)
    result = gpflow_aaci.fit(model, progress=False)
    print(f"{type(likelihood).__name__}: ELBO {result.elbo:.1f} nats")
    return model


ours = fitted(PseudoHuber())
gaussian = fitted(gpflow_aaci.likelihoods.Gaussian())
gpflow.utilities.print_summary(ours.likelihood)

# %%
# The left panel shows the three losses. The middle one shows the density of ω at r = 0 and r = 4s²,
# as the package computes it from log φ alone (dots) and in closed form, inverse Gaussian (lines):
# the larger the residual, the smaller the precision 2ω. The right panel shows both fits.

X_new = np.linspace(-0.3, 10.3, 200)[:, None]
residual = np.linspace(-5.0, 5.0, 201)[:, None]
unit = PseudoHuber()
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")

for likelihood, label, colour in (
    (gpflow_aaci.likelihoods.Gaussian(), "Gaussian", "#0072B2"),
    (unit, "PseudoHuber", "#D55E00"),
    (gpflow_aaci.likelihoods.StudentT(df=3.0), "StudentT", "#009E73"),
):
    log_p = likelihood.log_prob(X[:1], np.zeros_like(residual), residual).numpy()
    left.plot(residual, log_p.max() - log_p, color=colour, label=label)
left.set(xlabel="(y − f) / scale", ylabel="−log p(y|f), from its least [nats]", ylim=(-0.3, 6.0))
left.legend()

omega = np.geomspace(0.02, 4.0, 200)
for c, colour in (0.0, "#D55E00"), (2.0, "#56B4E9"):
    known = tfp.distributions.InverseGaussian(0.5 / np.sqrt(1.0 + c**2), np.float64(0.5))
    middle.plot(omega, known.prob(omega), color=colour)
    found = unit.tilted(np.full(20, c)).prob(omega[::10])
    middle.plot(omega[::10], found, ".", color=colour, label=f"r = {c**2:g}s²")
middle.set(xlabel="ω [1/s²]", ylabel="density of ω given r", xscale="log")
middle.legend()

for model, label, colour in (gaussian, "Gaussian", "#0072B2"), (ours, "PseudoHuber", "#D55E00"):
    mean, variance = model.predict_f(X_new)
    sd = np.sqrt(variance)
    right.plot(X_new, mean, color=colour, label=f"f, {label}")
    right.fill_between(
        X_new[:, 0], (mean - 2 * sd)[:, 0], (mean + 2 * sd)[:, 0], color=colour, alpha=0.2, lw=0
    )
right.plot(X, Y, "k.", markersize=3, label="y")
right.plot(X_new, np.sin(X_new) + 0.3 * X_new, "k:", linewidth=1, label="truth")
right.set(xlabel="x", ylabel="f, mean ± 2 sd")
right.legend(fontsize="small")
plt.show()
