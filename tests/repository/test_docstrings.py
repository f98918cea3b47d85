"""Every public thing says what it is: itself, or by the method that it overrides."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import actors
import protocols
import shuffle_sim


def modules() -> Iterator[ModuleType]:
    for package in (shuffle_sim, protocols, actors):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


def silent(thing: type) -> list[str]:
    """Public methods of a class that neither it nor a base describes."""
    return [
        f"{thing.__module__}.{thing.__qualname__}.{name}"
        for name, member in vars(thing).items()
        if not name.startswith("_")
        and (inspect.isfunction(member) or isinstance(member, (classmethod, property)))
        and not any(base.__dict__[name].__doc__ for base in thing.__mro__ if name in vars(base))
    ]


def test_every_public_method_is_described_where_declared_first() -> None:
    found = {
        thing
        for module in modules()
        for thing in vars(module).values()
        if inspect.isclass(thing) and thing.__module__ == module.__name__
    }
    assert len(found) > 400
    assert not [name for thing in found if thing.__name__[0] != "_" for name in silent(thing)]


def test_a_method_without_words_is_found_and_an_override_is_not() -> None:
    class Base:
        def told(self) -> None:
            """Say."""

        def untold(self) -> None:
            pass

    class Derived(Base):
        def told(self) -> None:
            pass

    assert not silent(Derived)
    assert [name.rsplit(".", 1)[1] for name in silent(Base)] == ["untold"]
