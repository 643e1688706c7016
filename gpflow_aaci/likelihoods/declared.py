"""Arguments that a likelihood declares, which make its constructor and its reference."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gpflow import Parameter
from gpflow.likelihoods import Likelihood, QuadratureLikelihood, ScalarLikelihood
from gpflow.utilities import set_trainable

from .parameters import open_interval_parameter, positive_parameter

REQUIRED = inspect.Parameter.empty
"""The default of an argument that has none."""

_DIMENSIONS = "input_dim", "latent_dim", "observation_dim"  # of GPflow's likelihoods


@dataclass(frozen=True)
class Argument:
    """An argument of the constructor of a likelihood, as an attribute of its class."""

    default: Any
    description: str
    """What it is and what is accepted, for the reference."""

    take: Callable[[Any, str, Any], None]
    """Check a value, given the likelihood and the name of the argument, and keep it there."""

    def __get__(self, likelihood: Any, owner: type) -> Any:
        """
        Of a class the declaration itself. A likelihood has what ``take`` has kept, if anything.

        :raises AttributeError: if nothing has been kept under this name.
        """
        if likelihood is None:
            return self
        names = [name for name, other in likelihood._arguments.items() if other is self]
        raise AttributeError(
            f"{owner.__name__} has no attribute {', '.join(names)}: this is an argument that the "
            "constructor has not taken yet, or does not keep."
        )


def positive(default: Any, what: str, *, above: float = 0.0, learnt: bool = True) -> Any:
    """
    Declare a positive number, or a ``Parameter`` to share.

    :param default: the value if none is given; ``REQUIRED`` for an argument without one.
    :param what: what it is, in which unit, for the reference.
    :param above: a value above it stays above it when it is learnt.
    :param learnt: whether it is trainable at first, if no ``Parameter`` is given.
    """

    def made(owner: str, name: str, value: Any) -> Parameter:
        return positive_parameter(owner, name, value, above)

    accepted = f"positive, and kept above {above:g} if it begins there" if above else "positive"
    return _parameter(default, f"{what}, {accepted}", made, learnt)


def within(
    default: Any, what: str, upper: float, *, with_upper: bool = False, learnt: bool = True
) -> Any:
    """
    Declare a number in (0, upper), or a ``Parameter`` to share.

    :param default: as for :func:`positive`.
    :param what: what it is, for the reference.
    :param with_upper: whether ``upper`` is accepted, too; it is then held fixed.
    :param learnt: whether it is trainable at first, if no ``Parameter`` is given.
    """

    def made(owner: str, name: str, value: Any) -> Parameter:
        return open_interval_parameter(owner, name, value, upper, with_upper=with_upper)

    end = f"{upper:g}]; {upper:g} itself is held fixed" if with_upper else f"{upper:g})"
    return _parameter(default, f"{what}, in (0, {end}", made, learnt)


def _parameter(
    default: Any, what: str, made: Callable[[str, str, Any], Parameter], learnt: bool
) -> Argument:
    def take(likelihood: Any, name: str, value: Any) -> None:
        parameter = made(type(likelihood).__name__, name, value)
        setattr(likelihood, name, parameter)
        if not learnt and parameter is not value:
            set_trainable(parameter, False)

    held = "" if learnt else "; held fixed unless it is a trainable ``Parameter``"
    return Argument(default, f"{what}{held}. A ``Parameter`` is shared.", take)


def further_column(column: str, what: str) -> Any:
    """
    Declare whether Y has the column of this name after y; f then has one column.

    :param column: one of ``observations.COLUMNS``.
    :param what: what is in the columns of Y, for the reference.
    """

    def take(likelihood: Any, name: str, value: Any) -> None:
        if value:
            likelihood.given = (column,)

    return Argument(False, what, take)


class Declared(Likelihood):
    """
    A likelihood whose constructor has the arguments that its class declares::

        class Laplace(ResidualLikelihood):
            scale = positive(1.0, "β, in units of y")

    The arguments of the bases come first. One that is declared anew keeps its place; a declaration
    that is only repeated, ``link = IntervalLikelihood.link``, moves to where it is repeated. A
    value, as ``df = 1.0`` in ``Cauchy``, fixes the argument and takes it out of the constructor.
    A likelihood of several latent GPs says how many in its class, ``latent_dim = 2``, and how many
    columns of y there are, ``observation_dim = 1``. A class that writes its constructor itself
    passes the declared arguments on by their names.
    """

    given: Sequence[str]
    latent_dim: int | None
    _arguments: ClassVar[dict[str, Argument]] = {}
    _signature: ClassVar[inspect.Signature]
    __signature__: ClassVar[inspect.Signature | None] = None
    """Of a constructor that is made; None if a class writes its own, or declares nothing."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        arguments: dict[str, Argument] = {}
        for base in reversed(cls.__mro__):
            for name, value in vars(base).items():
                if not isinstance(value, Argument) or value is arguments.get(name):
                    arguments.pop(name, None)
                if isinstance(value, Argument):
                    arguments[name] = value
        cls._arguments, cls._signature = arguments, _signature(arguments)
        is_made = bool(arguments) and cls.__init__ is Declared.__init__
        cls.__signature__ = cls._signature if is_made else None
        doc = inspect.cleandoc(vars(cls).get("__doc__") or "")
        if is_made and doc:
            lines = [
                line
                for name, argument in arguments.items()
                if (line := f":param {name}: {argument.description}").split(": ")[0] not in doc
            ]
            cls.__doc__ = "\n".join([doc, "", *lines])

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """
        :raises ValueError: if an argument is not as described, or if a ``quadrature`` is given and
            p(y|f) is not a product over outputs.
        """
        if kwargs.get("quadrature") is not None and not isinstance(self, ScalarLikelihood):
            raise ValueError(
                f"{type(self).__name__}: quadrature must not be given, as expectations over "
                "several latent GPs have rules of their own. "
                f"Found: {type(kwargs['quadrature']).__name__}."
            )
        values = {}
        try:
            if self._arguments:
                bound = self._signature.bind(*args, **kwargs)
                bound.apply_defaults()
                values, args = bound.arguments, ()
                kwargs = values.pop("kwargs")
            if not args and _takes_dimensions(type(self)):
                kwargs = dict.fromkeys(_DIMENSIONS) | kwargs | self._own_dimensions(kwargs)
            super().__init__(*args, **kwargs)
        except TypeError as error:
            accepted = ", ".join(self._arguments) or "none"
            message = f"{error}. Declared arguments: {accepted}."
            raise TypeError(f"{type(self).__name__}: {message}") from error
        for name, value in values.items():
            self._arguments[name].take(self, name, value)
        if self.given and self.latent_dim is None:
            self.latent_dim = 1  # a row has one y beside its further columns

    def _own_dimensions(self, given: dict[str, Any]) -> dict[str, Any]:
        """
        Those that the class states.

        :raises TypeError: if they are given, too, or a constructor that is made is given any.
        """
        is_made = type(self).__signature__ is not None
        own = {name: getattr(type(self), name, None) for name in _DIMENSIONS}
        own = {name: value for name, value in own.items() if value is not None}
        refused = [name for name in given if name in own or (is_made and name in _DIMENSIONS)]
        if refused:
            raise TypeError(f"got an unexpected keyword argument {refused[0]!r}")
        return own


def _takes_dimensions(kind: type) -> bool:
    """Whether the next constructor is GPflow's, of input_dim, latent_dim and observation_dim."""
    after = kind.__mro__[kind.__mro__.index(Declared) + 1 :]
    following = next(base for base in after if "__init__" in vars(base))
    return following in (Likelihood, QuadratureLikelihood)


def _signature(arguments: dict[str, Argument]) -> inspect.Signature:
    """The declared arguments, and those of GPflow's likelihoods by their names."""
    parameters = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=argument.default)
        for name, argument in arguments.items()
    ]
    rest = inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)
    return inspect.Signature([*parameters, rest])
