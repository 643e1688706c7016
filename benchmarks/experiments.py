"""Every kind of experiment: how it is run, and what is shown of its results."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from . import (
    augmentation_gap,
    convergence,
    figures,
    long_run,
    omega_throughput,
    sampling,
    sampling_report,
    step_time,
)
from .config import (
    AugmentationGap,
    Convergence,
    LongRun,
    OmegaThroughput,
    Sampling,
    Single,
    StepTime,
)
from .report import Report, best_runs, papers_runs, summary_table
from .time_to import TOLERANCES, speed_up_table


class Experiment(NamedTuple):
    """``run(config, data folder, quiet)`` and ``report(metrics)``."""

    run: Callable[[Any, Path, bool], pd.DataFrame]
    report: Callable[[pd.DataFrame], Report]


def _convergence_report(metrics: pd.DataFrame) -> Report:
    tolerances = " and ".join(map(str, TOLERANCES))
    tables = {
        "Each method at the grid point that ends lowest, chosen by the test NLL for every method "
        "alike: from the whole grid at the first seed, from its best and soonest there at the "
        "others; medians over seeds.": summary_table(metrics),
        f"Seconds until the test NLL stays within {tolerances} nats of the best final NLL of all "
        "methods, each at its soonest of these grid points; medians over seeds. The speed-up is "
        "over the better of GPflow's two methods.": speed_up_table(metrics),
    }
    pictures = {"convergence": figures.convergence(best_runs(metrics))}
    papers = papers_runs(metrics)
    if papers.method.nunique() > 1:
        caption = (
            "The same at the settings of the paper's scripts alone (learning rate 0.001, "
            "Robbins-Monro steps, the ramp), to the best final NLL among them."
        )
        tables[caption] = speed_up_table(papers)
        pictures["convergence_papers_settings"] = figures.convergence(papers)
    return Report(tables, pictures)


def _gap_report(metrics: pd.DataFrame) -> Report:
    caption = "Both bounds converged in q, all else fixed; medians over seeds."
    tables = {caption: augmentation_gap.summary(metrics)}
    return Report(tables, {"augmentation_gap": figures.augmentation_gap(metrics)})


def _long_run_report(metrics: pd.DataFrame) -> Report:
    return Report({"": long_run.summary(metrics)}, {"memory": figures.memory(metrics)})


def _plain_report(metrics: pd.DataFrame) -> Report:
    return Report({"": metrics}, {})


EXPERIMENTS: dict[type[Single], Experiment] = {
    Convergence: Experiment(convergence.run, _convergence_report),
    AugmentationGap: Experiment(augmentation_gap.run, _gap_report),
    StepTime: Experiment(step_time.run, _plain_report),
    LongRun: Experiment(long_run.run, _long_run_report),
    Sampling: Experiment(sampling.run, sampling_report.report),
    OmegaThroughput: Experiment(omega_throughput.run, omega_throughput.report),
}
