"""Command line: ``python -m benchmarks run configs/quickstart.toml``."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

from pathlib import Path
from typing import Annotated

import typer

from . import collapsed_cost, convergence, long_run, step_time
from .config import ConfigError, Convergence, LongRun, StepTime, load_config
from .report import convergence_figure, memory_figure, print_table, summary_table, write_summary
from .time_to import TOLERANCE, speed_up_table

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def main() -> None:
    """Benchmarks of gpflow_aaci against GPflow, each described by a TOML file in configs/."""


@app.command()
def run(
    config_path: Annotated[Path, typer.Argument(metavar="CONFIG", help="a TOML file")],
    data_dir: Annotated[Path, typer.Option(help="where relative paths of data begin")] = Path(),
    quiet: Annotated[bool, typer.Option("--quiet", help="no progress bar, no table")] = False,
) -> None:
    """Run an experiment; write metrics.csv, summary.md and figures to its output folder."""
    try:
        config = load_config(config_path)
        config.output.mkdir(parents=True, exist_ok=True)
        if isinstance(config, Convergence):
            metrics = convergence.run(config, data_dir, quiet)
            table, figure = summary_table(metrics), "convergence.png"
            tables = {
                "Each method at the grid point that ends lowest; medians over seeds.": table,
                f"Seconds until the test NLL stays within {TOLERANCE} nats of the best final NLL "
                "of all methods, each at its soonest grid point; medians over seeds.": (
                    speed_up_table(metrics)
                ),
            }
            convergence_figure(metrics, config.output / figure)
        elif isinstance(config, LongRun):
            metrics = long_run.run(config, quiet)
            table, figure = long_run.summary(metrics), "memory.png"
            tables = {"": table}
            memory_figure(metrics, config.output / figure)
        else:
            measure = step_time.run if isinstance(config, StepTime) else collapsed_cost.run
            metrics = table = measure(config, quiet)
            tables, figure = {"": table}, None
    except ConfigError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from error
    metrics.to_csv(config.output / "metrics.csv", index=False)
    write_summary(tables, config_path.stem, config.output / "summary.md", figure)
    if not quiet:
        print_table(table, config_path.stem)
        typer.echo(f"Written to {config.output}/")


if __name__ == "__main__":
    app()
