"""Every likelihood of the package is tested."""

import inspect

from cases import AUGMENTED, public_classes
from zoo import ZOO

from gpflow_aaci.likelihoods import AugmentedLikelihood

HOMES = tuple(f"gpflow_aaci.{home}likelihoods." for home in ("", "contrib."))


def concrete_subclasses(base: type) -> set[type]:
    """
    All subclasses, at any depth, that are not abstract and are defined among the likelihoods.

    Those of ``shapes`` are tested there.
    """
    found: set[type] = set()
    for subclass in base.__subclasses__():
        found |= concrete_subclasses(subclass)
        if not inspect.isabstract(subclass):
            found.add(subclass)
    return {cls for cls in found if cls.__module__.startswith(HOMES)}


def augmented_subclasses() -> set[type]:
    """Those without augmentation have tests of their own."""
    return {kind for kind in concrete_subclasses(AugmentedLikelihood) if kind.is_augmented}


def test_every_likelihood_is_a_case() -> None:
    """
    A new likelihood must be added to ``cases.AUGMENTED`` or ``zoo.ZOO``, which tests run over.
    """
    tested = {type(case.make()) for case in AUGMENTED} | {type(m.make()) for m in ZOO}
    assert augmented_subclasses() == tested


def test_every_likelihood_is_public() -> None:
    assert augmented_subclasses() <= set(public_classes())
