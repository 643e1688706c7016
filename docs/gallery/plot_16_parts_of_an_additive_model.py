"""
Additive models: what each input does
=====================================

What does each input do? A GP of several inputs predicts well, but does not say. In an additive
model f is a sum of parts, each of one input or of two, and each can be drawn with its interval, as
users of mgcv know it. Here it is a sum under counts: ozone in New York, on 111 days of 1973
(Chambers, Cleveland, Kleiner and Tukey, *Graphical Methods for Data Analysis*, 1983).
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from gpflow.kernels import SquaredExponential

import gpflow_aaci
from gpflow_aaci.criticism import shares, shares_of_parts
from gpflow_aaci.kernels import OrthogonalAdditive
from gpflow_aaci.plots import plot_parts
from gpflow_aaci.predictions import predict_component

# Ozone in parts per billion, sunshine in langleys, wind in miles per hour, temperature in °F.
TABLE = """
41 190 7.4 67, 36 118 8 72, 12 149 12.6 74, 18 313 11.5 62, 23 299 8.6 65, 19 99 13.8 59, 8 19
20.1 61, 16 256 9.7 69, 11 290 9.2 66, 14 274 10.9 68, 18 65 13.2 58, 14 334 11.5 64, 34 307 12
66, 6 78 18.4 57, 30 322 11.5 68, 11 44 9.7 62, 1 8 9.7 59, 11 320 16.6 73, 4 25 9.7 61, 32 92
12 61, 23 13 12 67, 45 252 14.9 81, 115 223 5.7 79, 37 279 7.4 76, 29 127 9.7 82, 71 291 13.8
90, 39 323 11.5 87, 23 148 8 82, 21 191 14.9 77, 37 284 20.7 72, 20 37 9.2 65, 12 120 11.5 73,
13 137 10.3 76, 135 269 4.1 84, 49 248 9.2 85, 32 236 9.2 81, 64 175 4.6 83, 40 314 10.9 83, 77
276 5.1 88, 97 267 6.3 92, 97 272 5.7 92, 85 175 7.4 89, 10 264 14.3 73, 27 175 14.9 81, 7 48
14.3 80, 48 260 6.9 81, 35 274 10.3 82, 61 285 6.3 84, 79 187 5.1 87, 63 220 11.5 85, 16 7 6.9
74, 80 294 8.6 86, 108 223 8 85, 20 81 8.6 82, 52 82 12 86, 82 213 7.4 88, 50 275 7.4 86, 64 253
7.4 83, 59 254 9.2 81, 39 83 6.9 81, 9 24 13.8 81, 16 77 7.4 82, 122 255 4 89, 89 229 10.3 90,
110 207 8 90, 44 192 11.5 86, 28 273 11.5 82, 65 157 9.7 80, 22 71 10.3 77, 59 51 6.3 79, 23 115
7.4 76, 31 244 10.9 78, 44 190 10.3 78, 21 259 15.5 77, 9 36 14.3 72, 45 212 9.7 79, 168 238 3.4
81, 73 215 8 86, 76 203 9.7 97, 118 225 2.3 94, 84 237 6.3 96, 85 188 6.3 94, 96 167 6.9 91, 78
197 5.1 92, 73 183 2.8 93, 91 189 4.6 93, 47 95 7.4 87, 32 92 15.5 84, 20 252 10.9 80, 23 220
10.3 78, 21 230 10.9 75, 24 259 9.7 73, 44 236 14.9 81, 21 259 15.5 76, 28 238 6.3 77, 9 24 10.9
71, 13 112 11.5 71, 46 237 6.9 78, 18 224 13.8 67, 13 27 10.3 76, 24 238 10.3 68, 16 201 8 82,
13 238 12.6 64, 23 14 9.2 71, 36 139 10.3 81, 7 49 10.3 69, 14 20 16.6 63, 30 193 6.9 70, 14 191
14.3 75, 18 131 8 76, 20 223 11.5 68
"""
days = pd.DataFrame(
    [[float(value) for value in day.split()] for day in TABLE.replace("\n", " ").split(",")],
    columns=["ozone", "sunshine", "wind", "temperature"],
)
X, Y = days[["sunshine", "wind", "temperature"]], days[["ozone"]]

# %%
# The kernel ``OrthogonalAdditive`` makes f = constant + three main effects + three interactions of
# two inputs. Every column has its own kernel, here with a lengthscale of the order of its spread;
# ``fit`` learns the lengthscales, and the variances of main effects and of interactions. The parts
# add up on the scale of the logarithm: the expected ozone is r·exp(f).


def fitted(kernel):
    """A negative binomial model, in which the spread of y grows with its mean."""
    likelihood = gpflow_aaci.likelihoods.NegativeBinomial(5.0)
    model = gpflow_aaci.AugmentedVGP((X, Y), kernel, likelihood)
    result = gpflow_aaci.fit(model, progress=False)
    elpd = gpflow_aaci.loo(model).elpd_loo
    return model, f"ELBO {result.elbo:.1f}, leave-one-out log density {elpd:.1f}"


columns = [SquaredExponential(lengthscales=2.0 * spread) for spread in X.std()]
main_effects, line = fitted(OrthogonalAdditive(columns, X, max_interaction=1))
print(f"Main effects only:     {line}")
model, line = fitted(OrthogonalAdditive(columns, X, max_interaction=2))
print(f"With interactions:     {line}")

# %%
# ``plot_parts`` draws the main effects: the mean of each, its 95 % interval, and the days as ticks.
# Each has mean 0 over the days, as in mgcv, so that it is read as "more or less than on average".
# In the second row are the same effects in a sum of three kernels of GPflow. There, a constant can
# be moved from one part to another, and the data cannot tell: every interval includes the
# uncertainty of such a constant, and hides how well the shape of the effect is known.

kernels = [
    SquaredExponential(lengthscales=2.0 * spread, active_dims=[d])
    for d, spread in enumerate(X.std())
]
plain, line = fitted(gpflow.kernels.Sum(kernels))
print(f"A sum of three kernels: {line}")
figure, axes = plt.subplots(2, 3, figsize=(10, 5.6), layout="constrained")
plot_parts(model, X, axes=axes[0])
plot_parts(plain, X, axes=axes[1])
axes[0, 1].set_title("OrthogonalAdditive")
axes[1, 1].set_title("sum of SquaredExponential kernels")
plt.show()

# %%
# How much of what f has learnt is due to each input? ``shares`` are Sobol indices, for inputs that
# are drawn independently: alone, and with all interactions. ``shares_of_parts`` are over the days
# as they were, on which wind and temperature are correlated: hot days have little wind, and
# the interaction takes back some of what both main effects add. So its covariance is negative.

print(shares(model, X).round(3))
print(shares_of_parts(model, X).round(3))

# %%
# An interaction is a part of two columns: what their main effects leave out. In the middle, where
# the days are, it is known well. In the corners there are no days, and the standard deviation is as
# large as the mean.

wind, temperature = np.meshgrid(np.linspace(3.0, 18.0, 40), np.linspace(60.0, 95.0, 40))
at = np.stack([np.full(wind.size, X["sunshine"].mean()), wind.ravel(), temperature.ravel()], -1)
mean, variance = (part.numpy().reshape(wind.shape) for part in predict_component(model, at, (1, 2)))
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
levels = np.linspace(-0.5, 0.5, 11)
drawn = left.contourf(wind, temperature, mean, levels, cmap="RdBu_r", extend="both")
figure.colorbar(drawn, ax=left, label="mean")
figure.colorbar(
    right.contourf(wind, temperature, np.sqrt(variance), cmap="Greys"),
    ax=right,
    label="standard deviation",
)
for ax in (left, right):
    ax.plot(X["wind"], X["temperature"], "k.", ms=3)
    ax.set(xlabel="wind", ylabel="temperature", xlim=(3.0, 18.0), ylim=(60.0, 95.0))
plt.show()
