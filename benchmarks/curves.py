"""The curves that ``tensorboard --logdir`` shows."""

import shutil
from pathlib import Path

import pandas as pd
import tensorflow as tf

from .kept import slug


def write_curves(table: pd.DataFrame, step: str, output: Path, run: str) -> None:
    """
    Every column of ``table`` against its column ``step``, in a folder of the run's own.

    :param output: of the experiment; the folder is inside its ``tensorboard``.
    """
    folder = output / "tensorboard" / slug(run)
    shutil.rmtree(folder, ignore_errors=True)  # TensorBoard would join it with an earlier run
    with tf.summary.create_file_writer(str(folder)).as_default():
        for row in table.to_dict("records"):
            for name, value in row.items():
                if name != step:
                    tf.summary.scalar(str(name), value, step=int(row[step]))
