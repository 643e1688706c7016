"""The README's pictures, drawn by the gallery's scripts: ``python docs/pictures.py``."""

import os
import runpy
import warnings
from pathlib import Path
from typing import Any

os.environ["MPLBACKEND"] = "Agg"

import matplotlib.pyplot as plt
from PIL import Image

HERE = Path(__file__).parent
SCRIPTS = {
    "crash": "plot_01_the_crash.py",
    "outlier": "plot_02_an_outlier.py",
    "own": "plot_03_your_own_likelihood.py",
}


def main() -> None:
    (HERE / "pictures").mkdir(exist_ok=True)
    for name, script in SCRIPTS.items():
        path = HERE / "pictures" / f"{name}.png"
        drawn: list[Any] = []

        def keep(drawn: list[Any] = drawn) -> None:
            drawn.append(plt.gcf())

        plt.show = keep
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runpy.run_path(str(HERE / "gallery" / script))
        drawn[-1].savefig(path, dpi=100)
        Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)  # a third as large
        plt.close("all")


if __name__ == "__main__":
    main()
