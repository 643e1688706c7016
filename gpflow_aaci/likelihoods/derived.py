"""Hooks of likelihoods that are made of others: each rule names its hooks once."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from .base import AugmentedLikelihood


class _Named:
    """A class attribute that becomes ``method_of(name)`` under every name that it is given."""

    def __init__(self, method_of: Callable[[str], Any]) -> None:
        self._method_of = method_of

    def __set_name__(self, owner: type, name: str) -> None:
        setattr(owner, name, self._method_of(name))


def delegated(rule: Callable[..., Any]) -> Any:
    """
    The methods ``f(X, *marginals, Y)`` of a likelihood that takes them from other likelihoods.

    ``bound_slopes = pointwise_bound = delegated(_rule)`` defines both.

    :param rule: returns the value, given the likelihood, the method's name, X, the marginals and Y.
    """

    def method_of(name: str) -> Callable[..., Any]:
        hook = getattr(AugmentedLikelihood, name)
        signature = inspect.signature(hook)

        @wraps(hook, updated=())
        def method(self: AugmentedLikelihood, *args: Any, **named: Any) -> Any:
            _, X, *marginals, Y = signature.bind(self, *args, **named).args
            return rule(self, name, X, marginals, Y)

        return method

    return _Named(method_of)


def of_base() -> Any:
    """The methods of ``self.base``: ``outcomes = draw_y = of_base()`` defines both."""

    def method_of(name: str) -> Callable[..., Any]:
        @wraps(getattr(AugmentedLikelihood, name), updated=())
        def method(self: Any, *args: Any, **named: Any) -> Any:
            return getattr(self.base, name)(*args, **named)

        return method

    return _Named(method_of)


def described(likelihood: Any) -> str:
    """The name of a likelihood, and what compositions may not accept, for error messages."""
    name, given = type(likelihood).__name__, getattr(likelihood, "given", ())
    if not getattr(likelihood, "is_augmented", True):
        return f"{name}, which has no augmentation"
    return f"{name}, which takes further columns of Y ({', '.join(given)})" if given else name
