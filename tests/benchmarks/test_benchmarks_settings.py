"""The benchmark of the settings of fit: which ones, what is changed, and what its table says."""

import contextlib
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import settings
from benchmarks.config import ConfigError, Settings, load_config
from gpflow_aaci.inference import objective, rescues
from gpflow_aaci.inference import settings as of_package
from gpflow_aaci.inference.settings import SETTINGS

CONFIGS = Path(__file__).parents[2] / "configs"
CONFIG = CONFIGS / "settings.toml"


@pytest.mark.parametrize("run", ["settings", "settings_more"])
def test_every_setting_that_names_a_run_is_tried_by_it(run: str) -> None:
    """The last word of a setting's comment names a run's config."""
    source = Path(of_package.__file__).read_text()
    last_words = dict(re.findall(r"^    (\w+): .*; (\w+)$", source, re.M))
    assert set(last_words) == set(SETTINGS._fields)
    config = load_config(CONFIGS / f"{run}.toml")
    assert isinstance(config, Settings)
    tried = {name for problems in config.problems for name in problems.settings}
    assert {name for name, word in last_words.items() if word == run} == tried
    assert {f"{word}.toml" for word in last_words.values()} <= {p.name for p in CONFIGS.iterdir()}


def test_each_setting_is_halved_and_doubled_and_whole_ones_stay_whole() -> None:
    config = load_config(CONFIG)
    assert isinstance(config, Settings)
    tried: dict[str, set[float]] = {}
    for _, _, setting, value in settings._tasks(config):
        tried.setdefault(setting, set()).add(value)
    for setting in set(tried) - {settings._AS_THEY_ARE}:
        default = getattr(SETTINGS, setting)
        assert tried[setting] == {default / 2, default * 2}, setting
        assert {type(value) for value in tried[setting]} == {type(default)}, setting


def test_a_changed_setting_is_read_everywhere_and_put_back() -> None:
    with contextlib.suppress(RuntimeError), settings._changed("no_signal", 7.0):
        assert rescues.SETTINGS.no_signal == objective.SETTINGS.no_signal == 7.0
        raise RuntimeError
    assert rescues.SETTINGS is objective.SETTINGS is SETTINGS


def test_a_value_ends_lower_only_beyond_half_a_nat_and_a_thousandth_a_datum() -> None:
    def fits(setting: str, value: float, seconds: float, *reached: float) -> list[dict]:
        rest = {"setting": setting, "value": value, "kind": "all rows", "rows": 100}
        rest |= {"seconds": seconds, "converged": True}
        return [{**rest, "problem": f"{n}", "reached": r} for n, r in enumerate(reached)]

    rows = [
        *fits(settings._AS_THEY_ARE, 1.0, 2.0, -1.0, -1.0, -1.0),
        *fits("loosened", 50.0, 1.0, -1.0049, -1.006, -0.99),  # allowed, lower, higher
        *fits("loosened", 200.0, 4.0, np.nan, -1.0, -1.0),  # an end without a value is lower
    ]
    (table,) = settings.report(pd.DataFrame(rows)).tables.values()
    assert list(table.lower) == [1, 1]
    assert list(table.higher) == [1, 0]
    np.testing.assert_allclose(table["seconds over those as it is"], [0.5, 2.0])


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(ConfigError, match=r"not fields of FitSettings: loose"):
        load_config(CONFIG, ['problems.0.settings=["loose"]'])
