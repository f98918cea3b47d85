"""What the rooms export can be imported from `protocols`; importing it loads no heavy library."""

from importlib import import_module

import pytest
from processes import python

import protocols

ROOMS = [
    "central",
    "comparison",
    "erm",
    "learning",
    "optimisation",
    "problems",
    "selection",
    "shuffle",
    "sums",
]


@pytest.mark.parametrize("room", ROOMS)
def test_every_name_of_a_room_can_be_imported_from_protocols(room):
    package = import_module(f"protocols.{room}")
    for name in package.__all__:
        assert getattr(protocols, name) is getattr(package, name)
        assert getattr(package, name).__module__.startswith(f"protocols.{room}.")


def test_names_are_exported_once_and_others_are_not_there():
    for name in protocols.__all__:
        assert getattr(protocols, name)
    assert len(set(protocols.__all__)) == len(protocols.__all__)
    for package in (protocols, protocols.learning):
        with pytest.raises(AttributeError, match="no attribute 'ShuffleAdam'"):
            package.ShuffleAdam  # noqa: B018


HEAVY = (
    *("sklearn", "matplotlib", "pyarrow", "numba", "ray"),
    *("scipy.special", "scipy.stats", "scipy.optimize", "scipy.linalg"),
)


@pytest.mark.full
def test_the_command_line_starts_without_heavy_libraries():
    """Each command waits for what is loaded before it: once a second and a half, unseen."""
    code = (
        f"import sys, shuffle_sim.cli.app; print([each for each in {HEAVY} if each in sys.modules])"
    )
    assert python("-c", code, check=True).stdout == "[]\n"


@pytest.mark.full
def test_importing_protocols_loads_no_heavy_library():
    code = (
        f"import sys, protocols; print([name for name in {HEAVY} if name in sys.modules])\n"
        "from protocols import L2Ball, Logistic, Problem, ShuffleLogisticRegression\n"
        "print('sklearn' in sys.modules)"
    )
    done = python("-c", code, check=True)
    assert done.stdout == "[]\nTrue\n"
