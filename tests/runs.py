"""`run` with the fields of `Execution` among its options, for tests that merge and vary both."""

from typing import Any

from shuffle_sim import Execution, Result
from shuffle_sim import run as run_it


def run(*arguments: Any, **options: Any) -> Result:
    """As `shuffle_sim.run`; what `Execution` has may be given beside its other options."""
    execution = Execution.taken(options)
    return run_it(*arguments, execution=execution, **options)
