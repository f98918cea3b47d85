"""The Ray runtime: thin hosts for the roles defined in `shuffle_sim`."""

import os
from importlib import import_module

from shuffle_sim.execution.signals import unbroken

# Before Ray is imported: without these it binds wildcard addresses, reports usage, and warns about
# accelerators and about errors that the driver does handle.
for _name, _value in {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
}.items():
    os.environ.setdefault(_name, _value)

# Broken off, the import would leave exit callbacks of modules that are no longer there.
with unbroken():
    import_module("ray")  # all modules here need it
