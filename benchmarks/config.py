"""What a config file may say, and a clear message where it says something else."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class ConfigError(Exception):
    """A config that cannot be run; the message says which key, and what is accepted."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LikelihoodConfig(_Strict):
    name: Literal[
        "Gaussian", "StudentT", "Laplace", "Matern32", "Matern52", "Logistic", "BayesianSVM"
    ]
    parameters: dict[str, PositiveFloat] = {}
    trainable: bool = True


class Problem(_Strict):
    data: str = Field(description="breast_cancer, diabetes, or the path of a CSV file")
    target: str | int | None = Field(
        None, description="the target column of a CSV file; a number where it has no header"
    )
    positive: str | float | None = Field(
        None,
        description="the class that counts as 1, against the rest; the larger of two unless given",
    )
    name: str | None = Field(None, description="in tables and figures")
    likelihood: LikelihoodConfig


class Alternating(_Strict):
    kind: Literal["alternating"]
    step_size: list[Annotated[float, Field(gt=0, le=1)] | Literal["adaptive", "robbins-monro"]] = [
        "adaptive"
    ]
    learning_rate: list[PositiveFloat] = [0.03]


class NatGrad(_Strict):
    kind: Literal["natgrad"]
    gamma: list[Annotated[float, Field(gt=0, le=1)]] = [0.1]
    ramp: bool = Field(
        False, description="raise gamma from 1e-5 by 10^0.1 a step; times 1e-3 where a step fails"
    )
    learning_rate: list[PositiveFloat] = [0.03]


class Adam(_Strict):
    kind: Literal["adam"]
    learning_rate: list[PositiveFloat] = [0.03]


class Collapsed(_Strict):
    kind: Literal["collapsed"]
    objective: list[Literal["standard", "augmented"]] = ["standard"]


Method = Annotated[Alternating | Collapsed | NatGrad | Adam, Field(discriminator="kind")]


class Convergence(_Strict):
    experiment: Literal["convergence"]
    output: Path
    problem: list[Problem] = Field(min_length=1)
    method: list[Method] = Field(min_length=1)
    num_inducing: PositiveInt = 200
    batch_size: PositiveInt = 100
    steps: PositiveInt = Field(50_000, description="most steps of one run")
    seconds: PositiveFloat = Field(45.0, description="most training seconds of one run")
    test_fraction: float = Field(0.1, gt=0, lt=1)
    seeds: list[int] = Field(
        [0],
        min_length=1,
        description="of split, inducing points and batches. Grids are run at the first; at the "
        "others only what was best or fastest there",
    )


class StepTime(_Strict):
    experiment: Literal["step_time"]
    output: Path
    num_inducing: PositiveInt = 200
    batch_size: PositiveInt = 100
    num_data: PositiveInt = 10_000
    input_dim: PositiveInt = 9
    rounds: PositiveInt = 15
    steps_per_round: PositiveInt = 40


class CollapsedCost(_Strict):
    experiment: Literal["collapsed_cost"]
    output: Path
    num_inducing: PositiveInt = 200
    num_data: PositiveInt = 10_000
    input_dim: PositiveInt = 9
    rounds: PositiveInt = 25


class LongRun(_Strict):
    experiment: Literal["long_run"]
    output: Path
    steps: PositiveInt = 100_000
    num_inducing: PositiveInt = 30
    batch_size: PositiveInt = 100
    num_data: PositiveInt = 5_000
    input_dim: PositiveInt = 3


Config = Convergence | StepTime | CollapsedCost | LongRun

_EXPERIMENTS: dict[str, type[Config]] = {
    "convergence": Convergence,
    "step_time": StepTime,
    "collapsed_cost": CollapsedCost,
    "long_run": LongRun,
}


def load_config(path: Path) -> Config:
    """
    The experiment that the TOML file at ``path`` describes.

    :raises ConfigError: for a missing file, a TOML error, an unknown key or a wrong value.
    """
    try:
        raw = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}).") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not TOML ({error}).") from error
    experiment = raw.get("experiment")
    if experiment not in _EXPERIMENTS:
        accepted = ", ".join(_EXPERIMENTS)
        raise ConfigError(f"{path}: experiment must be one of {accepted}. Found: {experiment!r}.")
    model = _EXPERIMENTS[experiment]
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(f"{path}:\n" + "\n".join(_explain(error, model))) from error


def _explain(error: ValidationError, model: type[BaseModel]) -> list[str]:
    lines = []
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"])
        line = f"  {where}: {problem['msg']}. Found: {problem['input']!r}."
        if problem["type"] == "extra_forbidden" and len(problem["loc"]) == 1:
            line += f" Accepted here: {', '.join(model.model_fields)}."
        lines.append(line)
    return lines
