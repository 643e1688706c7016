"""Command line: ``python -m benchmarks run configs/quickstart.toml``."""

import contextlib
import importlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Annotated

import pandas as pd
import typer

from . import keep_tensorflow_quiet
from .cache import read_metrics
from .config import ConfigError, Single, load_config, parts
from .launch import launched
from .report import print_table, write_environment, write_report

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)

_ConfigPath = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG",
        help="The TOML file that describes the experiment, such as configs/quickstart.toml.",
    ),
]
_Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY.PATH=VALUE",
        help="Override a field of the file with a value in TOML, e.g. --set kernel.ard=false. "
        "May be repeated.",
    ),
]
_Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress bar and no table.")]


@app.callback()
def main() -> None:
    """Benchmarks of gpflow_aaci against GPflow, each described by a TOML file in configs/."""


@app.command()
def run(
    config_path: _ConfigPath,
    overrides: _Overrides = None,
    data_dir: Annotated[
        Path, typer.Option(help="The folder that is searched for data files.")
    ] = Path(),
    quiet: _Quiet = False,
) -> None:
    """Run an experiment and write the results to its output folder. Finished runs are kept."""
    with _clear_errors():
        experiments = parts(load_config(config_path, overrides or ()))
        for part in experiments:
            _make_writable(part.output)
        for part in experiments:
            metrics = _module(part).run(part, data_dir, quiet)
            resolved = part.model_dump_json(indent=2, exclude={"output"})
            (part.output / "config.json").write_text(resolved + "\n")
            write_environment(metrics, part.output)
            metrics = metrics.drop(columns="sha256", errors="ignore")
            metrics.to_csv(part.output / "metrics.csv", index=False)
            _report(part, config_path.stem, quiet)


@app.command()
def launch(
    config_path: _ConfigPath,
    workers: Annotated[
        int, typer.Option(min=1, help="The number of processes on this machine.")
    ] = 2,
    overrides: _Overrides = None,
    all_addresses: Annotated[
        bool,
        typer.Option(
            "--all-addresses",
            help="Listen on all network addresses, not only on this machine's own.",
        ),
    ] = False,
) -> None:
    """Run an experiment on several workers on this machine, and show the output of worker 0."""
    with _clear_errors():
        for part in parts(load_config(config_path, overrides or ())):
            if part.experiment != "scaling":
                found = f"Found: {part.experiment!r}."
                raise ConfigError(f'launch is for the experiment "scaling". {found}')
        code = launched(config_path, workers, overrides or [], all_addresses)
    raise typer.Exit(code)


@app.command()
def report(config_path: _ConfigPath, overrides: _Overrides = None, quiet: _Quiet = False) -> None:
    """Write the summary and the figures again from metrics.csv, without training."""
    with _clear_errors():
        for part in parts(load_config(config_path, overrides or ())):
            _report(part, config_path.stem, quiet)


@app.command("list")
def list_() -> None:
    """List the configs in configs/ and the minutes that each is expected to take on two cores."""
    rows = []
    for path in sorted((Path(__file__).parents[1] / "configs").glob("*.toml")):
        what = path.read_text().partition("\n")[0].removeprefix("#").strip()  # its first comment
        with _clear_errors():
            minutes = load_config(path).minutes
        rows.append(
            {"config": path.name, "what": what, "minutes": f"{minutes:g}" if minutes else ""}
        )
    print_table(pd.DataFrame(rows), "configs/")


def _module(part: Single) -> ModuleType:
    """The experiment's module, which has ``run(config, folder, quiet)`` and ``report(metrics)``."""
    return importlib.import_module(f"benchmarks.{part.experiment}")


def _report(part: Single, title: str, quiet: bool) -> None:
    """Write, and print unless ``quiet``, everything that depends on metrics.csv alone."""
    path = part.output / "metrics.csv"
    if not path.is_file():
        raise ConfigError(f"{path} does not exist: `python -m benchmarks run` makes it.")
    _make_writable(part.output)
    made = _module(part).report(read_metrics(path))
    write_report(made, title, part.output)
    if not quiet:
        for caption, table in made.tables.items():
            print_table(table, caption or title)
        typer.echo(f"Written to {part.output}/")


def _make_writable(folder: Path) -> None:
    """Make the folder if it does not exist, and check that a file can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        found = f"Found: {folder} ({error.strerror})."
        raise ConfigError(f"output must be a folder that can be written. {found}") from error


@contextlib.contextmanager
def _clear_errors() -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from error


if __name__ == "__main__":
    keep_tensorflow_quiet()
    app()
