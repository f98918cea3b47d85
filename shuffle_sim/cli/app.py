"""The command `shuffle-sim`; its errors are one clear line, with exit code 2 for bad input.

What `--json` prints has a schema for each command, made from the types of the summaries.
"""

import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from importlib.metadata import version
from typing import Annotated, Any, ParamSpec, TextIO

import typer

from shuffle_sim.cli import (
    attack,
    audit,
    compare,
    cost,
    counts,
    counts_report,
    data,
    experiment,
    plan,
    train,
    train_compare,
    train_report,
)
from shuffle_sim.cli.options import flat
from shuffle_sim.cli.sum import sum_command
from shuffle_sim.cli.sum_report import SumReport
from shuffle_sim.errors import (
    ParameterError,
    PluginWarning,
    ShuffleSimError,
    WeakPrivacyWarning,
    one_of,
)
from shuffle_sim.execution.plain import schema_of
from shuffle_sim.execution.signals import TerminatedError, stoppable
from shuffle_sim.privacy.amplification import Amplification

# Typer brings a click of its own, or uses the one installed: its exceptions are those of the one it
# uses.
_UsageError: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)

app = typer.Typer(
    name="shuffle-sim",
    help="Simulate shuffle-model differential privacy. Users, shuffler and analyzer are apart; "
    "every bit and every epsilon is counted.",
    epilog="Exit codes: 0 done; 1 failed, or a check did; 2 bad input; 3 an audit could not check "
    "all; 130 and 143 interrupted and terminated; 141 nobody reads what is printed.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


Options = ParamSpec("Options")


class _StoppedError(Exception):
    """Ctrl-C or SIGTERM in a command; Typer would turn it into an exit code and lose its notes."""


def _stopped(command: Callable[Options, None]) -> Callable[Options, None]:
    @wraps(command)
    def stoppable_command(*arguments: Options.args, **options: Options.kwargs) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt as stopped:
            raise _StoppedError from stopped

    return stoppable_command


_COMMANDS: dict[str, Callable[..., None]] = {
    "sum": sum_command,
    "histogram": counts.histogram_command,
    "heavy-hitters": counts.heavy_hitters_command,
    "quantiles": counts.quantiles_command,
    "train": train.train_command,
    "predict": data.predict_command,
    "evaluate": data.evaluate_command,
    "schema": data.schema_command,
    "plan": plan.plan_command,
    "budget": cost.budget_command,
    "amplify": cost.amplify_command,
    "audit": audit.audit_command,
    "attack": attack.attack_command,
    "compare": compare.compare_command,
    "cost": cost.cost_command,
}
for _name, _command in _COMMANDS.items():
    app.command(_name)(_stopped(flat(_command)))

_experiment = typer.Typer(
    help="Run studies from a file over all cores, keep every point, and show what came of them.",
    no_args_is_help=True,
)
for _name, _part in experiment.COMMANDS.items():
    _experiment.command(_name)(_stopped(flat(_part)))
app.add_typer(_experiment, name="experiment")


def _schema(command: str | None) -> None:
    if command is not None:
        print(json.dumps(schema(command), indent=2))
        raise typer.Exit


def _version(asked: bool) -> None:
    if asked:
        print(f"shuffle-sim {version('shuffle-sim')}")
        raise typer.Exit


@app.callback()
def _options(
    asked: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    command: Annotated[
        str | None,
        typer.Option(
            "--json-schema",
            callback=_schema,
            is_eager=True,
            metavar="COMMAND",
            help="Print the schema of a command's --json.",
        ),
    ] = None,
) -> None:
    """Take the options of the whole program."""


def main() -> None:
    """Run the command; errors raised on purpose become one line and a non-zero exit code."""
    try:
        with stoppable() as arrived, warnings.catch_warnings():
            warnings.simplefilter("ignore", WeakPrivacyWarning)  # commands print them
            warnings.showwarning = _told
            code = app(standalone_mode=False)
            sys.stdout.flush()
    except ParameterError as error:
        code = _fail(error, 2)
    except ShuffleSimError as error:
        code = _fail(error, 1)
    except _UsageError as error:
        code = _usage(error)
    except BrokenPipeError:  # whoever read has left; what was asked for is done
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    except (_StoppedError, typer.Abort, KeyboardInterrupt) as stopped:
        cause = stopped.__cause__ or stopped
        terminated = bool(arrived) or isinstance(cause, TerminatedError)
        code = _fail(cause, *((143, "terminated") if terminated else (130, "interrupted")))
    sys.exit(code or 0)


def _told(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning on the standard error: one line of ours, or as Python shows it."""
    shown = f"shuffle-sim: warning: {message}\n"
    if not issubclass(category, PluginWarning):
        shown = warnings.formatwarning(message, category, filename, lineno, line)
    print(shown, end="", file=file or sys.stderr)


def _usage(error: Exception) -> int:
    message = getattr(error, "format_message", lambda: str(error))().replace("Value error, ", "")
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message)
        return 0
    return _fail(error, 2, " ".join(message.split()))


def _fail(error: BaseException, code: int, message: str | None = None) -> int:
    """Print one line: the error and its notes, which say what was spent."""
    notes = getattr(error, "__notes__", [])
    print("shuffle-sim: error: " + "; ".join([message or str(error), *notes]), file=sys.stderr)
    return code


SUMMARIES: dict[str, tuple[type, ...]] = {
    "sum": (SumReport, counts_report.Groups),
    "histogram": (counts_report.Counts,),
    "heavy-hitters": (counts_report.Heavy,),
    "quantiles": (counts_report.Ranks,),
    "train": (train_report.TrainingReport, train_compare.TrainComparison),
    "evaluate": (data.ModelScores,),
    "plan": (plan.PlanReport, compare.TaskReport),
    "budget": (cost.BudgetReport,),
    "amplify": (Amplification,),
    "audit": (audit.AuditSummary, audit.CuratorSummary),
    "attack": (attack.AttackFinding,),
    "compare": (compare.ComparisonReport, compare.TaskReport),
    "cost": (cost.CostSummary,),
    "experiment run": (experiment.Points,),
    "experiment list": (experiment.Studies,),
    "experiment show": (experiment.Points,),
    "experiment diff": (experiment.Difference,),
}
"""By command, with and without the options that make it another task."""


def schema(command: str) -> dict[str, Any]:
    """The JSON schema of what a command prints.

    Raises:
        ParameterError: there is no such command, or it prints no JSON.
    """
    from shuffle_sim.auditing.audit import AuditReport
    from shuffle_sim.auditing.central import CentralAudit

    one_of("json_schema", command, SUMMARIES)
    late = {each.__name__: each for each in (AuditReport, CentralAudit, Mapping)} | {"Axes": Any}
    return schema_of(command, SUMMARIES[command], late)
