"""Datasets of batches from Parquet files; needs ``pip install "gpflow_aaci[parquet]"``."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float


def from_parquet(
    paths: str | Path | Sequence[str | Path],
    inputs: Sequence[str],
    outputs: Sequence[str],
    batch_size: int = 10_000,
) -> tf.data.Dataset:
    """
    Make a dataset of batches X [B, D], Y [B, P], in the order of the files and their rows::

        dataset = gpflow_aaci.data.from_parquet("rides.parquet", ["lat", "lon"], ["minutes"])
        gpflow_aaci.fit_collapsed(model, dataset)

    :param paths: one file or several.
    :param inputs: the names of the D numeric columns for X.
    :param outputs: the names of the P numeric columns for Y.
    :param batch_size: B, the number of rows in a batch. The last batch of each file may be smaller.
    :raises ValueError: if a file does not have one of the columns, or if one does not hold numbers.
        A missing value raises an error only when the dataset is read.
    """
    import pyarrow.parquet

    files = [Path(p) for p in ([paths] if isinstance(paths, str | Path) else paths)]
    columns = [*inputs, *outputs]
    for path in files:
        schema = pyarrow.parquet.read_schema(path)
        known = schema.names
        missing = [name for name in columns if name not in known]
        if missing:
            raise ValueError(
                f"inputs and outputs must be columns of {path.name}: {', '.join(known)}. "
                f"Found: {', '.join(missing)}."
            )
        kinds = {name: schema.field(name).type for name in columns}
        others = [f"{name}, {kind}" for name, kind in kinds.items() if not _is_number(kind)]
        if others:
            raise ValueError(
                f"inputs and outputs must be columns of numbers in {path.name}. "
                f"Found: {'; '.join(others)}."
            )
    dtype = default_float()

    def batches() -> Iterator[tuple[AnyNDArray, AnyNDArray]]:
        for path in files:
            with pyarrow.parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size, columns=columns):
                    parts = [batch.column(name) for name in columns]
                    empty = [n for n, part in zip(columns, parts, strict=True) if part.null_count]
                    if empty:
                        raise ValueError(
                            f"every row of {path.name} must have a value. Found: missing values "
                            f"in {', '.join(empty)}."
                        )
                    rows = np.stack([part.to_numpy(zero_copy_only=False) for part in parts], -1)
                    rows = rows.astype(dtype)
                    yield rows[:, : len(inputs)], rows[:, len(inputs) :]

    shapes = [None, len(inputs)], [None, len(outputs)]
    signature = tuple(tf.TensorSpec(shape, dtype) for shape in shapes)
    return tf.data.Dataset.from_generator(batches, output_signature=signature)


def _is_number(kind: Any) -> bool:
    """Whether a column of this type of Arrow holds numbers or truth values, or nothing at all."""
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    accepted = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return any(accepts(kind) for accepts in (*accepted, types.is_null))
