"""The README's picture, drawn by a script of the gallery: ``python docs/pictures.py``."""

import os
import runpy
import warnings
from pathlib import Path

os.environ["MPLBACKEND"] = "Agg"

import matplotlib.pyplot as plt
from PIL import Image

HERE = Path(__file__).parent


def main() -> None:
    (HERE / "pictures").mkdir(exist_ok=True)
    path = HERE / "pictures" / "crash.png"
    plt.show = lambda: None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_path(str(HERE / "gallery" / "plot_01_the_crash.py"))
    plt.gcf().savefig(path, dpi=100)
    Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)  # a third as large


if __name__ == "__main__":
    main()
