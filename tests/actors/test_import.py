"""A signal that comes while Ray is imported."""

from processes import python

ENDED = """
import os, signal, sys
from shuffle_sim.execution.signals import TerminatedError, stoppable

class Ends:
    def find_spec(self, name, path=None, target=None):
        if name == "ray.client_builder":
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGTERM)

sys.meta_path.insert(0, Ends())
try:
    with stoppable():
        import {module}
except TerminatedError:
    print("ray" in sys.modules)
"""


def test_a_signal_waits_until_ray_is_imported():
    found = python("-c", ENDED.format(module="actors.runtime"), check=True)
    assert (found.stdout, found.stderr) == ("True\n", "")


def test_without_waiting_exit_callbacks_fail():
    """Power: Ray imported by itself."""
    found = python("-c", ENDED.format(module="ray"), check=True)
    assert found.stdout == "False\n"
    assert "atexit" in found.stderr
