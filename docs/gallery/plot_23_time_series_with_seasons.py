"""
Time series with seasons
========================

A year's pattern repeats itself, becomes larger, and stands on a trend. A sum of kernels says so:
one part for the trend, one for the season, and each is predicted with its interval. Student-t noise
keeps single months that went wrong from bending either. The data are the passengers of
international airlines in each month of 1949 to 1960, in thousands (Box and Jenkins, *Time Series
Analysis*, 1970; ``AirPassengers`` of R), with two months spoilt. The last two years are held out.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_aaci
from gpflow_aaci.likelihoods import StudentT
from gpflow_aaci.predictions import predict_component, predict_y_quantile

numbers = """
112 118 132 129 121 135 148 148 136 119 104 118 115 126 141 135 125 149 170 170 158 133 114 140
145 150 178 163 172 178 199 199 184 162 146 166 171 180 193 181 183 218 230 242 209 191 172 194
196 196 236 235 229 243 264 272 237 211 180 201 204 188 235 227 234 264 302 293 259 229 203 229
242 233 267 269 270 315 364 347 312 274 237 278 284 277 317 313 318 374 413 405 355 306 271 306
315 301 356 348 355 422 465 467 404 347 305 336 340 318 362 348 363 435 491 505 404 359 310 337
360 342 406 396 420 472 548 559 463 407 362 405 417 391 419 461 472 535 622 606 508 461 390 432
"""
passengers = np.array([float(number) for number in numbers.split()])
years = 1949.0 + np.arange(144) / 12.0
recorded = passengers.copy()
recorded[[40, 77]] /= 10.0  # a digit was lost

# %%
# Seasons grow with the level, so y is the logarithm. f is a line (the mean function), a curve that
# leaves and rejoins it, and a season: a kernel that repeats itself after exactly one year, times
# one with a long lengthscale, by which the shape of the season drifts. Without this factor the ELBO
# is lower here, and the forecast worse.

level = np.log(passengers[:120]).mean()
X, Y = years[:, None] - 1954.0, np.log(recorded)[:, None] - level
fit, held_out = slice(0, 120), slice(120, 144)

kernels = gpflow.kernels
curve = kernels.Matern52(variance=0.1, lengthscales=5.0)
repeats = kernels.Periodic(kernels.SquaredExponential(variance=0.1), period=1.0)
drifts = kernels.Matern52(lengthscales=10.0)
for fixed in (repeats.period, drifts.variance):
    gpflow.set_trainable(fixed, False)
model = gpflow_aaci.AugmentedVGP(
    (X[fit], Y[fit]),
    curve + repeats * drifts,
    StudentT(scale=0.05, df=4.0),
    mean_function=gpflow.functions.Linear(),
)
print(gpflow_aaci.fit(model, progress=False))
df = model.likelihood.df.numpy()
print(f"noise of {model.likelihood.scale.numpy():.1%} and {df:.1f} degrees of freedom")

# %%
# The forecast, with central 90 % intervals. The interval is exact under exp, which only rises.

low, median, high = np.exp(level + predict_y_quantile(model, X, [0.05, 0.5, 0.95]).numpy()[..., 0])
inside = (low < passengers) & (passengers < high)
print(f"{inside[held_out].sum()} of 24 months that were held out are inside")
error = np.abs(median / passengers - 1.0)[held_out]
print(f"median error of the forecast: {np.median(error):.1%}")

BLUE, RED = "#0072B2", "#D55E00"
figure, ax = plt.subplots(figsize=(8.0, 3.6), layout="constrained")
ax.fill_between(years, low, high, color=BLUE, alpha=0.25, label="central 90 %")
ax.plot(years, median, color=BLUE, lw=1, label="median")
ax.plot(years[fit], recorded[fit], "k.", ms=3, label="fitted")
ax.plot(years[held_out], passengers[held_out], ".", color=RED, ms=4, label="held out")
ax.set(xlabel="year", ylabel="thousand passengers")
ax.legend(loc="upper left", fontsize=8)
plt.show()

# %%
# The parts: the line with the curve is the trend, and the season of the last fitted year is the
# second summand of the kernel. Both are factors, as f is a logarithm.

figure, axes = plt.subplots(1, 2, figsize=(8.0, 3.2), layout="constrained")
last_year = np.linspace(4.0, 5.0, 100)[:, None]
for ax, x, part, line in ((axes[0], X, 0, model.mean_function), (axes[1], last_year, 1, None)):
    mean, variance = predict_component(model, x, part)
    middle = (mean + line(x) if line else mean).numpy()[:, 0]
    half = 1.645 * np.sqrt(variance.numpy()[:, 0])
    at = x[:, 0] + 1954.0 if line else 12.0 * (x[:, 0] - 4.0)
    ax.fill_between(at, np.exp(middle - half), np.exp(middle + half), color=BLUE, alpha=0.25)
    ax.plot(at, np.exp(middle), color=BLUE)
axes[0].axvline(1959.0, color="black", lw=0.8, ls=":")
axes[0].set(title="Trend, and its forecast from 1959", xlabel="year", ylabel="factor")
axes[1].set(title="Season of 1958", xlabel="months since the New Year")
plt.show()

# %%
# Had nobody known of the season, a search would have found it: all kernels that are named, then the
# best one plus and times each, and so on while the log density of months that are left out rises.
# The differences stand beside their standard errors. Leaving out single months asks how well a
# kernel interpolates; the forecast above is a question of its own.

named = {
    "line": kernels.Linear(),
    "curve": kernels.Matern52(variance=0.1, lengthscales=5.0),
    "season": kernels.Periodic(kernels.SquaredExponential(variance=0.1), period=1.0),
}
gpflow.set_trainable(named["season"].period, False)
search = gpflow_aaci.criticism.compare_kernels(
    (X[fit], Y[fit]), named, StudentT(scale=0.05, df=4.0), depth=3, progress=False
)
print(search.table.round(1).head(6).to_string())
