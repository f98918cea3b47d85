"""The command `shuffle-sim` and how its errors are told: one clear line, exit code 2 for bad input."""

import sys

import click
import typer

from shuffle_sim.cli.audit import audit_command
from shuffle_sim.cli.plan import plan_command
from shuffle_sim.cli.sum import sum_command
from shuffle_sim.errors import ParameterError, ShuffleSimError

app = typer.Typer(
    name="shuffle-sim",
    help="Simulate shuffle-model differential privacy: users, shuffler and analyzer apart, every bit and epsilon counted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("sum")(sum_command)
app.command("plan")(plan_command)
app.command("audit")(audit_command)


def main() -> None:
    """Run the command; errors raised on purpose become one line and a non-zero exit code."""
    try:
        code = app(standalone_mode=False)
    except ParameterError as error:
        code = _fail(str(error), 2)
    except ShuffleSimError as error:
        code = _fail(str(error), 1)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = _fail("interrupted", 130)
    sys.exit(code or 0)


def _fail(message: str, code: int) -> int:
    print(f"shuffle-sim: error: {message}", file=sys.stderr)
    return code
