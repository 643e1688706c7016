"""From a table with gaps to one that a model takes."""

from typing import Any

from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import FunctionTransformer


def table_encoder(X: Any) -> ColumnTransformer:
    """
    What the estimators do with the gaps of a table: steps chosen by the dtypes of its columns.

    - ``numbers``: columns without gaps stay as they are, as no estimator and no kernel that
      :func:`gpflow_aaci.kernels.start` makes needs them scaled.
    - ``gaps``: the median stands for a number that is missing, and a further column is 1 there.
    - ``words``: text and pandas categories stay words, of which :class:`kernels.Categorical
      <gpflow_aaci.kernels.Categorical>` learns how alike they are.
    - ``missing_words``: where one is missing, the word "missing" stands for it.

    The estimators do this by themselves with a frame that has gaps. For a GPflow model::

        encoder = table_encoder(frame)
        print([(step, columns) for step, _, columns in encoder.transformers])
        X = encoder.fit_transform(frame)
        model = AugmentedVGP((X, Y), kernels.start(X), StudentT())
        fit(model)
        mean, variance = model.predict_y(encoder.transform(new_frame))

    Grades that have an order are better given as numbers, as any two words begin equally far apart.

    :param X: a frame of pandas [N, D], the rows of the fit.
    :raises ValueError: if X is not a frame, and for columns of dates, of text beside numbers, and
        of other objects.
    :return: a ``ColumnTransformer`` of scikit-learn, not yet fitted, that returns a frame.
    """
    if not hasattr(X, "iloc") or X.ndim != 2:
        raise ValueError(f"X must be a frame of pandas. Found: {type(X).__name__}.")
    step_of: dict[str, Any] = {
        "numbers": "passthrough",
        "gaps": SimpleImputer(strategy="median", add_indicator=True),
        "words": "passthrough",
        "missing_words": FunctionTransformer(with_missing, feature_names_out="one-to-one"),
    }
    has_names = all(isinstance(name, str) for name in X.columns)
    columns: dict[str, list[Any]] = {step: [] for step in step_of}
    for at, (name, kind) in enumerate(zip(X.columns, _kinds(X), strict=True)):
        columns[kind].append(name if has_names else at)
    steps = [(kind, step_of[kind], those) for kind, those in columns.items() if those]
    encoder = ColumnTransformer(steps, verbose_feature_names_out=False)
    return encoder.set_output(transform="pandas")


def has_gaps(X: Any) -> bool:
    """
    Whether X is a frame with missing values.

    :raises ValueError: for columns of a frame as :func:`table_encoder` raises it.
    """
    is_frame = hasattr(X, "iloc") and X.ndim == 2
    return is_frame and not {"numbers", "words"}.issuperset(_kinds(X))


def _kinds(X: Any) -> list[str]:
    """The step that each column of a frame belongs to."""
    return [_kind(name, X.iloc[:, at]) for at, name in enumerate(X.columns)]


def _kind(name: Any, column: Any) -> str:
    import pandas as pd  # imported late, as arrays do without it

    kind = pd.api.types.infer_dtype(column, skipna=True)
    has_gaps = bool(column.isna().any())
    is_object = column.dtype == object
    if hasattr(column.dtype, "categories") or kind == "string" or (kind == "boolean" and is_object):
        return "missing_words" if has_gaps else "words"
    if kind in ("boolean", "floating", "integer") and not is_object:
        return "gaps" if has_gaps else "numbers"
    remedy = "leave it out"
    if is_object and kind != "empty":
        remedy = "make it one of these by pandas.to_numeric(values) or values.astype(str)"
    if kind.startswith(("date", "time", "period")):
        remedy = (
            "give numbers in its place, such as days since the first, "
            '(values - values.min()) / numpy.timedelta64(1, "D"), or months, values.dt.month'
        )
    raise ValueError(
        f"column {name!r} of X must hold numbers, text or categories: {remedy}. "
        f"Found: {kind}, such as {column.dropna().iloc[:1].tolist()}."
    )


def with_missing(words: Any) -> Any:
    """Words with "missing" in their gaps."""
    return words.astype(object).where(words.notna(), "missing")
