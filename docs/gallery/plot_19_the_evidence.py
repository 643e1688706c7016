"""
Choosing a likelihood by its evidence
=====================================

*What an ELBO hides.* Which noise do the data prefer? The evidence log p(y) would say, but a
variational fit returns an ELBO, which is below it by an unknown amount. ``evidence`` finds a lower
and an upper end of log p(y), and so tells whether a comparison by ELBOs can be believed.

The data are the flow of the Nile at Aswan in 100 years, in units of 10^8 cubic metres (Cobb 1978,
Biometrika 65). In 1899 the first dam was begun, and in 1913 the flow was very small.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_aaci
from gpflow_aaci import likelihoods
from gpflow_aaci.criticism import evidence

# fmt: off
flow = np.array([
    1120, 1160, 963, 1210, 1160, 1160, 813, 1230, 1370, 1140, 995, 935, 1110, 994, 1020, 960,
    1180, 799, 958, 1140, 1100, 1210, 1150, 1250, 1260, 1220, 1030, 1100, 774, 840, 874, 694,
    940, 833, 701, 916, 692, 1020, 1050, 969, 831, 726, 456, 824, 702, 1120, 1100, 832, 764,
    821, 768, 845, 864, 862, 698, 845, 744, 796, 1040, 759, 781, 865, 845, 944, 984, 897, 822,
    1010, 771, 676, 649, 846, 812, 742, 801, 1040, 860, 874, 848, 890, 744, 749, 838, 1050, 918,
    986, 797, 923, 975, 815, 1020, 906, 901, 1170, 912, 746, 919, 718, 714, 740,
], dtype=float)[:, None]
# fmt: on
year = np.arange(1871.0, 1971.0)[:, None]
data = (year - year.mean()) / year.std(), (flow - flow.mean()) / flow.std()

# %%
# Four models differ in their noise. The evidence is computed at the hyperparameters that ``fit``
# has found, so that models of more parameters have an advantage, as with the ELBO.

noises = {
    "Gaussian": likelihoods.Gaussian(variance=0.5),
    "Student-t": likelihoods.StudentT(scale=0.5, df=4.0),
    "Laplace": likelihoods.Laplace(scale=0.5),
    "logistic": likelihoods.LogisticNoise(scale=0.4),
}
models, found = {}, {}
for name, noise in noises.items():
    model = gpflow_aaci.AugmentedVGP(data, gpflow.kernels.Matern32(lengthscales=0.5), noise)
    gpflow_aaci.fit(model, progress=False)
    models[name], found[name] = model, evidence(model, progress=False)
    print(f"{name}: {found[name]}")

# %%
# With Gaussian noise the posterior is Gaussian, and all numbers agree with GPflow's exact ones.

gaussian = models["Gaussian"]
gpr = gpflow.models.GPR(data, gaussian.kernel, noise_variance=gaussian.likelihood.variance.numpy())
print(f"GPflow's GPR: {gpr.log_marginal_likelihood():.2f}")

# %%
# The augmented bound would put the noises in another order. The ELBO of Laplace noise is half a nat
# too low; the ELBOs of the others can be believed. Three of the noises are as good as each other:
# the data do not say which is better.

BLUE, RED, GREEN = "#0072B2", "#D55E00", "#009E73"
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
for row, result in enumerate(found.values()):
    low = result.lower - 2.0 * result.lower_error
    high = result.upper + 2.0 * result.upper_error
    ax.plot([low, high], [row, row], "o-", color=BLUE, ms=7, lw=4)
    ax.plot(result.elbo, row, "|", color=RED, ms=16, mew=2)
    ax.plot(result.augmented_elbo, row, "|", color=GREEN, ms=16, mew=2)
ax.plot([], [], "o-", color=BLUE, lw=4, label="log p(y), between its ends")
ax.plot([], [], "|", color=RED, ms=10, mew=2, label="ELBO")
ax.plot([], [], "|", color=GREEN, ms=10, mew=2, label="augmented bound")
ax.set_yticks(range(len(found)), found)
ax.margins(y=0.2)
ax.set_xlabel("nats")
ax.invert_yaxis()
ax.legend(loc="upper left", bbox_to_anchor=(0.0, 1.25), ncols=3, frameon=False)
plt.show()
