"""
Preferences
===========

*Which of two?* People say which of two things they prefer more reliably than how much they like
one. A GP of the utility f is learnt from pairs: P(x is preferred to x′) = σ(f(x) − f(x′)). The
kernel ``Difference`` makes this an ordinary classification problem, and Bayesian optimisation asks
for the pairs that are worth asking for.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_aaci
from gpflow_aaci.kernels import Difference


def utility(x):
    """What the person prefers by, and does not tell: highest at 0.72."""
    return 6.0 * np.exp(-(((x - 0.72) / 0.15) ** 2)) + 3.0 * np.exp(-(((x - 0.2) / 0.1) ** 2))


def answer(pairs, rng):
    """1 where the first of the two is preferred, by a person who is not always sure."""
    gain = utility(pairs[:, :1]) - utility(pairs[:, 1:])
    return (gain + rng.logistic(size=gain.shape) > 0.0).astype(float)


# %%
# Eight pairs at random; then the next pair is, twenty times, the best input so far and the highest
# point of a draw of the utility (Thompson sampling, as González et al., ICML 2017, use it).

rng = np.random.default_rng(0)
grid = np.linspace(0.0, 1.0, 201)[:, None]
pairs = rng.uniform(size=(8, 2))
answers = answer(pairs, rng)
for number in range(21):
    model = gpflow_aaci.AugmentedSVGP(
        Difference(gpflow.kernels.Matern52(variance=9.0, lengthscales=0.2), input_dim=1),
        gpflow_aaci.likelihoods.Logistic(),
        np.linspace(0.0, 1.0, 30)[:, None],
        num_data=len(pairs),
    )
    gpflow_aaci.polish(model, (pairs, answers), progress=False)
    mean, variance = (part.numpy()[:, 0] for part in model.predict_f(grid))
    best = grid[np.argmax(mean), 0]
    if number in (0, 5, 20):
        print(f"{len(pairs):2} pairs: x = {best:.2f}, of utility {utility(best):.2f}")
    if number < 20:
        draw = model.predict_f_samples(grid, full_cov=True).numpy()[:, 0]
        pairs = np.vstack([pairs, [best, grid[np.argmax(draw), 0]]])
        answers = np.vstack([answers, answer(pairs[-1:], rng)])
print(
    f"The highest utility is {utility(grid).max():.2f}, at {grid[np.argmax(utility(grid)), 0]:.2f}"
)

# %%
# The utility is known up to a constant: both curves are shifted to a mean of 0. Where no pair has
# been asked for, it is not known at all. On the right, whether 0.72 is preferred to x.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained")
x, sd = grid[:, 0], np.sqrt(variance)
shift = mean.mean()
left.fill_between(x, mean - shift - 2.0 * sd, mean - shift + 2.0 * sd, color="#0072B2", alpha=0.2)
left.plot(x, mean - shift, color="#0072B2", label="learnt, ± 2 sd")
left.plot(x, utility(x) - utility(x).mean(), "k--", label="true")
left.plot(pairs[:, 1], np.full(len(pairs), left.get_ylim()[0]), "k|", label="asked for")
left.set(xlabel="x", ylabel="utility")
left.legend()
against = np.hstack([np.full_like(grid, 0.72), grid])
p, _ = model.predict_y(against)
right.plot(x, p, color="#0072B2", label="predicted")
right.plot(x, 1.0 / (1.0 + np.exp(utility(x) - utility(0.72))), "k--", label="true")
right.set(xlabel="x", ylabel="P(0.72 is preferred to x)")
right.legend()
plt.show()
