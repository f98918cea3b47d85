"""The command `shuffle-sim`; its errors are one clear line, with exit code 2 for bad input.

`flat` makes options of the groups that a command takes: see `shuffle_sim.cli.options`.

What `--json` prints has a schema for each command, made from the types of the summaries.
"""

import errno
import inspect
import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import Field, fields, is_dataclass
from functools import partial, wraps
from importlib.metadata import version
from typing import Annotated, Any, TextIO, get_type_hints

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
    running,
    train,
    train_report,
)
from shuffle_sim.cli.sum import SumReport, sum_command
from shuffle_sim.errors import (
    ParameterError,
    PluginWarning,
    ShuffleSimError,
    WeakPrivacyWarning,
    one_of,
    parse_number,
)
from shuffle_sim.execution.budget_report import BudgetReport
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


class _StoppedError(Exception):
    """Ctrl-C or SIGTERM in a command; Typer would turn it into an exit code and lose its notes."""


_KINDS: dict[type, tuple[str, str]] = {int: ("integer", "10k or 1e4"), float: ("float", "0.1")}


def _given(kind: type, value: Any) -> Any:
    """A number that was given as an option; a default is one already."""
    try:
        return parse_number(value, kind) if isinstance(value, str) else value
    except (ValueError, ArithmeticError):
        name, example = _KINDS[kind]
        raise typer.BadParameter(f"'{value}' is not a valid {name}, such as {example}.") from None


def _numeric(kind: Any, text: Any) -> Any:
    """The annotation of an option; all that take a number read it alike."""
    for number in _KINDS:
        if kind in (number, number | None) and text.parser is None:
            text = copy(text)
            text.parser = partial(_given, number)
            text.metavar = text.metavar or _KINDS[number][0].upper()
    return Annotated[kind, text]


def flat(command: Callable[..., None]) -> Callable[..., None]:
    """A command for Typer: the fields of its groups are options beside its other parameters.

    A parameter of its own that is an option has it for a default, as a field of a group has.
    """
    hints, parameters = get_type_hints(command, include_extras=True), list[inspect.Parameter]()
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    one, required = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty

    def add(name: str, kind: Any, text: Any, default: Any) -> None:
        default, kind = required if default is ... else default, _numeric(kind, text)
        parameters.append(inspect.Parameter(name, one, default=default, annotation=kind))

    for name, parameter in inspect.signature(command).parameters.items():
        given = parameter.default
        if (group := groups.get(name)) is not None:
            kinds, known = get_type_hints(group), group if given is required else given
            for each, text in _options_of(group).items():
                add(each, kinds[each], text, getattr(known, each, ...))
        elif isinstance(given, Field):
            add(name, hints[name], given.metadata["option"], given.default)
        else:
            parameters.append(parameter.replace(kind=one, annotation=hints[name]))

    @wraps(command)
    def flattened(**options: Any) -> None:
        try:
            values = {
                name: kind(**{each: options.pop(each) for each in _options_of(kind)})
                for name, kind in groups.items()
            }
            command(**values, **options)
        except KeyboardInterrupt as stopped:
            raise _StoppedError from stopped

    parameters.sort(key=lambda each: each.default is not required)
    shown: Any = flattened
    shown.__signature__ = inspect.Signature(parameters)
    return flattened


def _options_of(group: Any) -> dict[str, Any]:
    """The options of a group by name: its own, or fields of `Execution` with a help text."""
    known = ((each.name, each.metadata) for each in fields(group))
    found = ((name, each.get("option"), each.get("help")) for name, each in known)
    return {name: own or typer.Option(help=text) for name, own, text in found if own or text}


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
    "budget": running.budget_command,
    "amplify": plan.amplify_command,
    "audit": audit.audit_command,
    "attack": attack.attack_command,
    "compare": compare.compare_command,
    "cost": cost.cost_command,
}
for _name, _command in _COMMANDS.items():
    app.command(_name)(flat(_command))

_experiment = typer.Typer(
    help="Run studies from a file over all cores, keep every point, and show what came of them.",
    no_args_is_help=True,
)
for _name, _part in experiment.COMMANDS.items():
    _experiment.command(_name)(flat(_part))
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
    if sys.stdout is None:  # closed by whoever started it
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    try:
        with stoppable() as arrived, warnings.catch_warnings():
            warnings.simplefilter("ignore", WeakPrivacyWarning)  # commands print them
            warnings.showwarning = _told
            code = app(standalone_mode=False)
            # Here, where a reader that has left is still caught.
            sys.stdout.flush()
    except ParameterError as error:
        code = _fail(error, 2)
    except ShuffleSimError as error:
        code = _fail(error, 1)
    except _UsageError as error:
        code = _usage(error)
    except BrokenPipeError:  # whoever read has left; what was asked for is done
        code = _unread(141)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        code = _unread(_fail(error, 1))
    except (_StoppedError, typer.Abort, KeyboardInterrupt) as stopped:
        cause = stopped.__cause__ or stopped
        terminated = bool(arrived) or isinstance(cause, TerminatedError)
        code = _fail(cause, *((143, "terminated") if terminated else (130, "interrupted")))
    sys.exit(code or 0)


def _unread(code: int) -> int:
    """Nobody takes what is still to be printed."""
    # Python flushes once more as it ends, and would fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


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


_AUDITS = audit.AuditSummary, audit.CuratorSummary
SUMMARIES: dict[str, tuple[type, ...]] = {
    "sum": (SumReport, counts_report.Groups, audit.AuditSummary),
    "histogram": (counts_report.Counts, audit.AuditSummary),
    "heavy-hitters": (counts_report.Heavy, audit.AuditSummary),
    "quantiles": (counts_report.Ranks, audit.AuditSummary),
    "train": (train_report.TrainingReport, train_report.TrainComparison, *_AUDITS),
    "evaluate": (data.ModelScores,),
    "plan": (plan.PlanReport, compare.TaskReport),
    "budget": (BudgetReport,),
    "amplify": (Amplification,),
    "audit": _AUDITS,
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
    from shuffle_sim.auditing.claims.plan import Check

    one_of("json_schema", command, SUMMARIES)
    every = AuditReport, CentralAudit, Check, Mapping
    late = {each.__name__: each for each in every} | {"Axes": Any}
    return schema_of(command, SUMMARIES[command], late)
