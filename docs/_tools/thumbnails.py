"""Thumbnails of the gallery: one panel of a figure, as three would be too small to read."""

from pathlib import Path

import numpy as np
from PIL import Image

# Script: the number of the figure, of the panel, and how many panels are side by side.
PANELS = {
    "plot_01_the_crash": (1, 1, 2),
    "plot_02_an_outlier": (1, 3, 3),
    "plot_03_your_own_likelihood": (1, 3, 3),
    "plot_04_which_likelihood": (1, 1, 3),
    "plot_04_which_likelihood_discrete": (2, 1, 3),
    "plot_05_large_data_and_streams": (1, 2, 2),
    "plot_06_classes_and_counts": (2, 1, 2),
    "plot_07_exact_sampling": (3, 2, 3),
    "plot_10_trieste_and_gpflux": (2, 2, 2),
    "plot_11_two_modes": (1, 1, 2),
    "plot_12_is_it_any_good": (1, 3, 3),
    "plot_14_preferences": (1, 1, 2),
    "plot_15_choices": (1, 1, 2),
    "plot_16_parts_of_an_additive_model": (1, 3, 3),
    "plot_17_thompson_sampling": (1, 1, 1),
    "plot_18_dose_response": (1, 2, 3),
    "plot_21_which_inputs_matter": (1, 2, 2),
}
SIZE = (600, 450)


def panel(image: Image.Image, number: int, panels: int) -> Image.Image:
    """Cut out a panel, at the widest gaps near where the panels of equal width would end."""
    is_white = (np.asarray(image.convert("L")) > 250).all(0)
    cuts = [0]
    for end in range(1, panels):
        middle, reach = image.width * end / panels, 0.08 * image.width
        gaps, begin = [], None
        for x in range(int(middle - reach), int(middle + reach)):
            if is_white[x] and begin is None:
                begin = x
            if not is_white[x] and begin is not None:
                gaps.append((x - begin, (x + begin) // 2))
                begin = None
        cuts.append(max(gaps)[1] if gaps else int(middle))
    cuts.append(image.width)
    return image.crop((cuts[number - 1], 0, cuts[number], image.height))


def write_thumbnails(folder: Path) -> None:
    """Write the thumbnails of all scripts with figures in ``folder``, that of their images."""
    for first in sorted(folder.glob("sphx_glr_*_001.png")):
        script = first.name.removeprefix("sphx_glr_").removesuffix("_001.png")
        figure, number, panels = PANELS.get(script, (1, 1, 1))
        path = first.with_name(f"sphx_glr_{script}_{figure:03}.png")
        if not path.exists():
            continue
        image = panel(Image.open(path).convert("RGB"), number, panels)
        scale = min(SIZE[0] / image.width, SIZE[1] / image.height)
        image = image.resize((round(scale * image.width), round(scale * image.height)))
        canvas = Image.new("RGB", SIZE, "white")
        canvas.paste(image, ((SIZE[0] - image.width) // 2, (SIZE[1] - image.height) // 2))
        canvas.save(folder / "thumb" / f"sphx_glr_{script}_thumb.png")
