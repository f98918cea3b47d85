"""What the rooms export, and that importing them loads no heavy library."""

from importlib import import_module
from pkgutil import walk_packages

import pytest
from processes import python

LIGHT = ["data", "protocol", "roles", "sampling", "wire"]
ROOMS = [*LIGHT, "attacks", "auditing", "execution", "privacy"]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_exports_its_public_names(room):
    package = import_module(f"shuffle_sim.{room}")
    modules = {module.name for module in walk_packages(package.__path__, f"{package.__name__}.")}
    assert len(set(package.__all__)) == len(package.__all__)
    for name in package.__all__:
        assert hasattr(package, name)
        assert f"{package.__name__}.{name}" not in modules, f"{name} hides a module of that name"
    homes = [import_module(name) for name in modules if not name.endswith(".compiled")]
    for name in package.__all__:
        assert any(getattr(package, name) is vars(home).get(name) for home in homes)


@pytest.mark.full
def test_importing_the_rooms_loads_no_heavy_library():
    heavy = ("scipy.special", "scipy.stats", "sklearn", "pyarrow", "numba", "matplotlib", "ray")
    imports = ", ".join(f"shuffle_sim.{room}" for room in LIGHT)
    code = f"import sys, {imports}; print([name for name in {heavy} if name in sys.modules])"
    done = python("-c", code, check=True)
    assert done.stdout == "[]\n"
