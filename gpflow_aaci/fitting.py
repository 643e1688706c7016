"""``fit_collapsed`` and ``polish``: full-batch routes that leave minibatches behind."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import scipy.optimize
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData
from gpflow.utilities import to_default_float

from .augmentation import optimal_expected_aug_loglik
from .checkpoints import check_objective, describe, latest_checkpoint, save_checkpoint
from .coordinates import Coordinates
from .identity import digest
from .models import AugmentedModel, AugmentedVGP, hyperparameters, local, refresh_posteriors
from .profile import Chunks, Compiled, Profile, Q, State, flat, make_chunks, spec
from .progress import progress_bar

_FIRST_SUBSET, _GROWTH = 1_000, 4  # rows, and how much larger each further subset is
_ITERATIONS = 10  # of L-BFGS in a round; on all rows each round has twice as many, up to
_MOST_ITERATIONS = 160
_LIKELIHOOD_ITERATIONS = 5  # of L-BFGS on the likelihood's own parameters before a round
_MAX_ROUNDS = 20  # on all rows
_CLOSED_FORM_STEPS = 3  # between two rounds on the augmented bound
_INNER_TOLERANCE = 1e-6  # nats per datum that one more step on q must gain

_FILE = "state.npz"

Objective = Literal["standard", "augmented"]


class FitProgress(NamedTuple):
    """Where ``fit_collapsed`` is: passed to its callback."""

    rows: int  # in use; 0 when all is compiled and nothing has been learnt
    objective: float  # on these rows, scaled to all of them
    evaluations: int


class FitResult(NamedTuple):
    """What ``fit_collapsed`` has done."""

    objective: float  # on all rows, log prior included
    start: float  # the same before
    evaluations: int
    converged: bool  # False where the most rounds were reached


class PolishResult(NamedTuple):
    """What ``polish`` has done to the standard ELBO."""

    elbo: float
    start: float
    steps: int

    @property
    def gain(self) -> float:
        """Nats of standard ELBO gained; never negative."""
        return self.elbo - self.start


def fit_collapsed(
    model: AugmentedModel,
    data: RegressionData | None = None,
    *,
    objective: Objective = "standard",
    tolerance: float = 1e-4,
    seed: int = 0,
    callback: Callable[[FitProgress], None] = lambda progress: None,
    checkpoint_dir: str | Path | None = None,
    progress: bool = True,
) -> FitResult:
    """
    Fit q(u) and every trainable hyperparameter of ``model`` by L-BFGS, with q(u) maximised out.

    Rounds of ten iterations on a random subset that grows fourfold from 1,000 rows to all of
    them, then ever longer ones on all rows until one gains less than ``tolerance`` a datum. Kernel,
    mean function, likelihood and, where they are trainable, inducing points are fitted; priors
    count. ``q_mu`` and ``q_sqrt`` are managed here, trainable or not; where nothing else is
    trainable they alone are fitted. An evaluation that fails is survived, and the model never ends
    below where it began::

        gpflow.set_trainable(model.inducing_variable, False)
        fit_collapsed(model, (X, Y))

    :param data: X [N, D], Y [N, P]; none for ``AugmentedVGP``.
    :param objective: "standard", the profile of GPflow's ELBO (:mod:`~gpflow_aaci.profile`);
        "augmented", the collapsed augmented bound jointly in the hyperparameters and log c.
    :param callback: called when all is compiled and, with the model up to date, after every round
        and, where the objective is "standard", every iteration of L-BFGS. What it raises ends the
        fit with what has been learnt, as Ctrl-C does.
    :param checkpoint_dir: a checkpoint is kept there after every round, and the same call goes on
        from it.
    :param progress: whether a bar shows rows, objective and evaluations.
    :raises ValueError: for bad data, an unknown objective, and a checkpoint that is damaged or of
        another run, before anything is changed.
    :raises OSError: where a checkpoint cannot be written. The model keeps what it has learnt.
    """
    if objective not in ("standard", "augmented"):
        raise ValueError(f'objective must be "standard" or "augmented". Found: {objective!r}.')
    X, Y, scale = (value.numpy() for value in model.checked_batch(data))
    directory = None if checkpoint_dir is None else Path(checkpoint_dir)
    run = {
        "model": describe(model),
        "data": digest([X, Y]),
        "objective": objective,
        "tolerance": tolerance,
        "seed": seed,
    }
    resumed = None if directory is None else latest_checkpoint(directory, run)
    with progress_bar(progress, unit="evaluation", desc="compiling") as bar:
        fit = _Fit(model, objective, num_data=float(scale) * len(X))
        everything = make_chunks(X, Y)
        fit.trace()
        here = fit.here(everything)
        state = _State(here, here, here.objective)
        if resumed is not None:
            state = _State.read(resumed)
            fit.check(resumed, everything, state.best, here)

        def say(rows: int, objective: float) -> None:
            bar.set_description(f"{rows or 'no'} rows", refresh=False)
            bar.set_postfix(objective=f"{objective:.6g}", refresh=False)
            bar.update(fit.evaluations - bar.n)
            callback(FitProgress(rows, objective, fit.evaluations))

        fit.evaluations, fit.is_exact = state.evaluations, state.is_exact
        kept = state.best if state.converged else state.point
        say(0, state.point.objective)
        order = np.random.default_rng(seed).permutation(len(X))

        def report(point: _Point) -> None:
            nonlocal kept
            kept = point
            fit.move_to(point)
            say(rows, point.objective)

        try:
            fit.move_to(kept)
            for rows, iterations in list(_schedule(model, len(X)))[state.rounds :]:
                if state.converged:
                    break
                subset = order[:rows]
                chunks = everything if rows == len(X) else make_chunks(X[subset], Y[subset])
                point = fit.round(chunks, iterations, report)
                report(point)
                best, converged = state.best, False
                if rows == len(X):
                    gain = point.objective - best.objective
                    best = kept = point if _better(point, best) else best
                    if gain < tolerance * fit.num_data:
                        converged = gain > 0.0 or fit.is_exact
                        fit.is_exact = True  # the fast products may be what is in the way
                state = _State(
                    point,
                    best,
                    state.start,
                    state.rounds + 1,
                    fit.evaluations,
                    fit.is_exact,
                    converged,
                )
                if directory is not None:
                    save_checkpoint(directory, state.rounds, run, state.write)
        finally:  # also where the user interrupts: never in the middle of a line search
            fit.move_to(kept)
            refresh_posteriors(model)
        return FitResult(state.best.objective, state.start, fit.evaluations, state.converged)


def polish(
    model: AugmentedModel,
    data: RegressionData | None = None,
    *,
    max_steps: int = 100,
    progress: bool = True,
) -> PolishResult:
    """
    Close the augmentation gap of q(u) at fixed hyperparameters.

    Safeguarded Newton steps on the standard ELBO, each kept only if it gains; see
    :mod:`~gpflow_aaci.profile`. Hyperparameters stay as they are.

    :param data: X [N, D], Y [N, P]; none for ``AugmentedVGP``.
    :param progress: whether a bar shows steps and ELBO.
    :raises ValueError: for bad data, before anything is changed.
    """
    X, Y, scale = model.checked_batch(data)
    with progress_bar(progress, unit="step", total=max_steps) as bar:

        def say(state: State) -> None:
            bar.set_postfix(ELBO=f"{state.elbo:.6g}", refresh=False)
            bar.update()

        profile = Profile(Compiled(model, []), make_chunks(X, Y), float(scale))
        start = profile.state(Q(*model.whitened_q(profile.L)))
        least_gain = 1e-3 * _INNER_TOLERANCE * float(scale) * len(X)
        state, steps = profile.maximise(start.q, least_gain, max_steps, say)
    if state.elbo > start.elbo:
        model.assign_whitened_q(*state.q, profile.L)
        refresh_posteriors(model)
    return PolishResult(max(state.elbo, start.elbo), start.elbo, steps)


class _Point(NamedTuple):
    """Somewhere to come back to."""

    x: AnyNDArray  # the hyperparameters' coordinates
    q: Q
    objective: float


class _State(NamedTuple):
    """Where the rounds are: what a checkpoint keeps."""

    point: _Point  # where the next round begins
    best: _Point  # on all rows
    start: float
    rounds: int = 0
    evaluations: int = 0
    is_exact: bool = False
    converged: bool = False

    def write(self, folder: Path) -> None:
        points: dict[str, AnyNDArray] = {}
        for name, point in (("point", self.point), ("best", self.best)):
            arrays = (point.x, point.q.mu, point.q.sqrt, point.objective)
            points |= {f"{name}_{i}": np.asarray(array) for i, array in enumerate(arrays)}
        np.savez(folder / _FILE, rest=np.asarray(self[2:], np.float64), **points)

    @classmethod
    def read(cls, folder: Path) -> "_State":
        with np.load(folder / _FILE) as arrays:
            points = []
            for name in ("point", "best"):
                x, mu, sqrt, objective = (arrays[f"{name}_{i}"] for i in range(4))
                points.append(_Point(x, Q(tf.constant(mu), tf.constant(sqrt)), float(objective)))
            start, rounds, evaluations, is_exact, converged = arrays["rest"].tolist()
        flags = bool(is_exact), bool(converged)
        return cls(points[0], points[1], start, int(rounds), int(evaluations), *flags)


def _better(a: _Point, b: _Point) -> bool:
    return np.isfinite(a.objective) and not a.objective <= b.objective


class _Fit:
    """One call of ``fit_collapsed``: where the model is, and how it moves."""

    def __init__(self, model: AugmentedModel, objective: Objective, num_data: float) -> None:
        self.model, self.objective, self.num_data = model, objective, num_data
        self.variables = hyperparameters(model)
        own = {id(variable) for variable in model.likelihood.trainable_variables}
        self.likelihood_variables = [v for v in self.variables if id(v) in own]
        self.coordinates = Coordinates(model.parameters, self.variables)
        self.likelihood_coordinates = Coordinates(model.parameters, self.likelihood_variables)
        self.exact = Compiled(model, self.variables)
        self.fast = Compiled(model, self.variables, tf.float32)
        self.is_exact = False
        self.q = Q(*model.whitened_q(self.exact.factor()))
        self.evaluations = 0
        compile_ = tf.function(autograph=False, reduce_retracing=True)
        self._augmented = compile_(self._augmented_terms)
        self._likelihood_terms = compile_(self._expected_log_likelihood)
        self._likelihood_prior = compile_(self._log_likelihood_prior)

    def trace(self) -> None:
        """Trace for any number of rows."""
        X, Y = spec(None, self.model.input_dim), spec(None, self.model.num_latent_gps)
        marginal = spec(self.model.num_latent_gps, None)
        for compiled in (self.exact, self.fast):
            compiled.trace(collapsed=self.objective == "augmented")
        if self.likelihood_variables:
            self._likelihood_terms.get_concrete_function(X, Y, marginal, marginal, spec())
            self._likelihood_prior.get_concrete_function()
        if self.objective == "augmented":
            self._augmented.get_concrete_function(X, Y, marginal, marginal)

    def here(self, chunks: Chunks) -> _Point:
        """The current point."""
        try:
            value = self._value(chunks, self.q)
        except tf.errors.InvalidArgumentError:
            value = -np.inf
        return _Point(self.coordinates.pack(), self.q, value)

    def check(self, path: Path, chunks: Chunks, stored: _Point, here: _Point) -> None:
        """
        :raises ValueError: unless the objective at ``stored`` is what ``path`` says it was.
        """
        before = [variable.numpy() for variable in self.variables]
        self.coordinates.unpack(stored.x)
        self.q = stored.q
        objective = self.here(chunks).objective
        for variable, value in zip(self.variables, before, strict=True):
            variable.assign(value)  # to the last bit, which unpack(pack()) is not
        self.q = here.q
        check_objective(path, "objective", stored.objective, objective)

    def move_to(self, point: _Point) -> None:
        """Make ``point`` the model's."""
        self.coordinates.unpack(point.x)
        self.q = point.q
        self.model.assign_whitened_q(*point.q, self.exact.factor())

    def round(self, chunks: Chunks, iterations: int, report: Callable[[_Point], None]) -> _Point:
        """Iterations of L-BFGS from the current point; the best point seen. Moves the variables."""
        self._likelihood_step(chunks)
        start = self.here(chunks)
        if self.objective == "standard":
            end = self._standard_round(chunks, start, iterations, report)
        else:
            end = self._augmented_round(chunks, start, iterations)
        if end is start:
            return start
        self.coordinates.unpack(end.x)
        end = end._replace(objective=self._value(chunks, end.q))  # never trust a fast value
        return end if _better(end, start) else start

    def _likelihood_step(self, chunks: Chunks) -> None:
        """
        The likelihood's own parameters at the marginals of f (an ECME step; Liu and Rubin 1994).

        They cost N-vectors only, and spare L-BFGS their zigzag with everything else.
        """
        if not self.likelihood_variables:
            return
        own = self.likelihood_coordinates
        before = own.pack()
        profile = self._profile(chunks)
        terms = profile.state(self.q).terms
        scale = to_default_float(profile.scale)

        def loss(x: AnyNDArray) -> tuple[float, AnyNDArray]:
            own.unpack(x)
            value, gradients = self._likelihood_prior()
            value, gradient = float(value), flat(gradients)
            for (X, Y), t in zip(chunks, terms, strict=True):
                part, gradients = self._likelihood_terms(X, Y, t.mu, t.var, scale)
                value, gradient = value + float(part), gradient + flat(gradients)
            return -value, -own.gradient(x, gradient)

        end = self._lbfgs(loss, before, _LIKELIHOOD_ITERATIONS)
        better = loss(end)[0] < loss(before)[0]
        own.unpack(end if better else before)

    def _log_likelihood_prior(self) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            value = self.model.log_prior_density()
        return value, self._likelihood_gradient(tape, value)

    def _expected_log_likelihood(
        self, X: tf.Tensor, Y: tf.Tensor, mu: tf.Tensor, var: tf.Tensor, scale: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Of the chosen objective."""
        with tf.GradientTape() as tape:
            if self.objective == "standard":
                Fmu, Fvar = tf.transpose(mu) + self.model.mean_function(X), tf.transpose(var)
                likelihood = self.model.likelihood
                value = tf.reduce_sum(likelihood.variational_expectations(X, Fmu, Fvar, Y))
            else:
                value = self._augmented_terms(X, Y, mu, var)
            value *= scale
        return value, self._likelihood_gradient(tape, value)

    def _likelihood_gradient(self, tape: tf.GradientTape, value: tf.Tensor) -> list[tf.Tensor]:
        sources = local(self.likelihood_variables)
        return tape.gradient(value, sources, unconnected_gradients="zero")

    def _standard_round(
        self, chunks: Chunks, start: _Point, iterations: int, report: Callable[[_Point], None]
    ) -> _Point:
        best = start

        def loss(x: AnyNDArray) -> tuple[float, AnyNDArray]:
            nonlocal best
            self.coordinates.unpack(x)
            profile = self._profile(chunks)
            state, _ = profile.maximise(best.q, _INNER_TOLERANCE * self.num_data)
            log_prior, gradient = profile.gradient(state)
            point = _Point(x.copy(), state.q, state.elbo + log_prior)
            if np.all(np.isfinite(gradient)) and _better(point, best):
                best = point
            return -point.objective, -self.coordinates.gradient(x, gradient)

        if self.variables:
            self._lbfgs(loss, start.x, iterations, lambda: report(best))
        else:  # q alone
            self.evaluations += 1
            loss(start.x)
        return best

    def _augmented_round(self, chunks: Chunks, start: _Point, iterations: int) -> _Point:
        c_chunks = self._closed_form_steps(self._profile(chunks), self.q)
        size, rows = len(start.x), [len(Y) for _, Y in chunks]

        def c_of(x: AnyNDArray) -> list[tf.Tensor]:
            with np.errstate(over="ignore"):  # an evaluation that fails, like any other
                c = np.exp(x[size:]).reshape(sum(rows), -1)
            return tf.split(to_default_float(c), rows)

        def loss(x: AnyNDArray) -> tuple[float, AnyNDArray]:
            self.coordinates.unpack(x[:size])
            value, gradient, log_c_gradient = self._profile(chunks).collapsed(c_of(x))
            gradient = self.coordinates.gradient(x[:size], gradient)
            return -value, -np.concatenate([gradient, log_c_gradient])

        log_c = np.log(np.concatenate(c_chunks)).ravel()
        x = self._lbfgs(loss, np.concatenate([start.x, log_c]), iterations)
        self.coordinates.unpack(x[:size])
        try:
            profile = self._profile(chunks)
            q = profile.optimum_given_c(c_of(x))
            q = profile.optimum_given_c(self._closed_form_steps(profile, q))
        except tf.errors.InvalidArgumentError:
            return start
        return _Point(x[:size], q, np.nan)

    def _closed_form_steps(self, profile: Profile, q: Q) -> list[tf.Tensor]:
        """The c of every chunk, some closed-form steps from ``q`` on."""
        c = profile.posterior_c(profile.state(q))
        for _ in range(_CLOSED_FORM_STEPS - 1):
            c = profile.posterior_c(profile.state(profile.optimum_given_c(c)))
        return c

    def _lbfgs(
        self,
        loss: Callable[[AnyNDArray], tuple[float, AnyNDArray]],
        x: AnyNDArray,
        iterations: int,
        after_iteration: Callable[[], None] = lambda: None,
    ) -> AnyNDArray:
        """SciPy's L-BFGS-B, for which an evaluation that fails is merely a bad one."""
        worst = 0.0

        def survived(x: AnyNDArray) -> tuple[float, AnyNDArray]:
            nonlocal worst
            self.evaluations += 1
            try:
                value, gradient = loss(x)
            except tf.errors.InvalidArgumentError:  # a Cholesky, most likely
                value, gradient = np.nan, np.zeros_like(x)
            if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
                return 2.0 * abs(worst) + 1.0, np.zeros_like(x)
            worst = max(worst, value)
            return value, gradient

        return scipy.optimize.minimize(
            survived,
            x,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": iterations},
            callback=lambda x: after_iteration(),
        ).x

    def _profile(self, chunks: Chunks, exact: bool = False) -> Profile:
        rows = sum(len(X) for X, _ in chunks)
        compiled = self.exact if exact or self.is_exact else self.fast
        return Profile(compiled, chunks, self.num_data / rows)

    def _value(self, chunks: Chunks, q: Q) -> float:
        """The objective and the log prior at the current hyperparameters."""
        profile = self._profile(chunks, exact=True)
        state = profile.state(q)
        log_prior = float(self.model.log_prior_density())
        if self.objective == "standard":
            return state.elbo + log_prior
        pairs = zip(chunks, state.terms, strict=True)
        bound = sum(float(self._augmented(X, Y, t.mu, t.var)) for (X, Y), t in pairs)
        return profile.scale * bound - float(self.exact.kl(q)) + log_prior

    def _augmented_terms(
        self, X: tf.Tensor, Y: tf.Tensor, mu: tf.Tensor, var: tf.Tensor
    ) -> tf.Tensor:
        Fmu, Fvar = tf.transpose(mu) + self.model.mean_function(X), tf.transpose(var)
        return tf.reduce_sum(optimal_expected_aug_loglik(self.model.likelihood, Fmu, Fvar, Y))


def _schedule(model: AugmentedModel, num_rows: int) -> Iterator[tuple[int, int]]:
    """Rows and iterations of every round. (AugmentedVGP has its Z at its data: no subsets.)"""
    rows = num_rows if isinstance(model, AugmentedVGP) else _FIRST_SUBSET
    while rows < num_rows:
        yield rows, _ITERATIONS
        rows *= _GROWTH
    for doubled in range(_MAX_ROUNDS):
        yield num_rows, min(_ITERATIONS * 2**doubled, _MOST_ITERATIONS)
