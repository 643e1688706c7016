"""What every fit of a sparse or full model says about its end."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of a fit, as ``fit`` and ``fit_collapsed`` both return it."""

    #: Whether ``expected_gain`` is below ``tolerance``; of ``rows="enough"``, whether more rows and
    #: iterations are not worth it; of a fit by ``train``, whether it ended early.
    converged: bool
    #: Why the fit ended.
    reason: str
    #: Seconds spent on compiling; 0 for ``train``, which does not measure them.
    tracing_seconds: float = 0.0
    #: All other seconds.
    fitting_seconds: float = 0.0
    #: The fit converges when further iterations are expected to gain less than this [nats]; None
    #: for ``train``.
    tolerance: float | None = None
    #: What further iterations are expected to gain [nats]; None if that is not known.
    expected_gain: float | None = None
    #: The number of rows that q and the hyperparameters were fitted to.
    rows: int = 0
    #: What four times more rows are expected to gain [nats a datum], if it was measured.
    worth: float | None = None
    #: The standard error of ``worth``.
    worth_error: float | None = None
    #: By how much the search was better from lengthscales of √D·sd(X) than from the model's own
    #: [nats], if it began there, too.
    restart_gain: float | None = None
