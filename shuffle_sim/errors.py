"""The errors of the simulator, and the checks of numbers and names that raise them.

Everything it raises on purpose derives from `ShuffleSimError`.
"""

import math
import sys
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


class ShuffleSimError(Exception):
    """Base of all errors raised on purpose.

    Attributes:
        ledger: the `PrivacyLedger` of the run that the error ended, with all that was charged until
            then; None outside a run.
    """

    ledger: Any = None


class ParameterError(ShuffleSimError, ValueError):
    """A parameter, or the user's data, is outside what is allowed.

    Raised before any actor starts and before any privacy is spent.
    """

    def __init__(self, parameter: str, value: object, allowed: str) -> None:
        """Name the parameter, the value given and the allowed range."""
        super().__init__(parameter, value, allowed)
        self.parameter, self.value, self.allowed = parameter, value, allowed

    def __str__(self) -> str:
        """One line: what, where, and what to do."""
        shown = repr(self.value)
        shown = shown if len(shown) <= 120 else f"{shown[:50]} ... {shown[-60:]}"
        given = " (not shown)" if shown == repr(WITHHELD) else f" = {shown}"
        return f"{self.parameter}{given}: must be {self.allowed}"


class WeakPrivacyWarning(UserWarning):
    """A guarantee is allowed but promises little: delta of 1/n or more, or epsilon above 10."""


class PluginWarning(UserWarning):
    """A registered thing is skipped: it cannot be loaded, or it is not what it is registered as."""


WITHHELD = "not shown"
"""In place of users' data in messages: logs are not private."""


class FrameError(ShuffleSimError, ValueError):
    """Bytes from the wire are not a valid frame; `reason` is the name under which the drop is
    counted.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        """Keep the reason; `detail` is for people."""
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail

    def __str__(self) -> str:
        """Reason and detail."""
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class RoundAbortedError(ShuffleSimError, RuntimeError):
    """A round could not be released; what was charged to the ledger stays charged."""


class NotFiniteError(ShuffleSimError, ArithmeticError):
    """What a round asked for was finite for none of its users, who all sent zeros: the query, or
    the loss in it, is at fault.
    """

    def __init__(self, round_index: int) -> None:
        super().__init__(
            f"round {round_index}: the value asked for is NaN or infinite for every user; check "
            "the loss"
        )
        self.round = round_index


class CheckpointError(ShuffleSimError, RuntimeError):
    """The checkpoint cannot be written any more; the run ends before its next release, and what is
    on disk stays good.
    """


class DataError(ShuffleSimError, RuntimeError):
    """Rows that a file had when the run began cannot be read any more."""


class DataChangedError(DataError):
    """Rows are not those that were read when the run began; drawn again, the same noise would meet
    other data.
    """

    def __init__(self, block: int) -> None:
        """Name the block of users."""
        super().__init__(
            f"the rows of block {block} are not those that were read when the run began: the same "
            "noise on other data would give them away; the round is not answered"
        )
        self.block = block

    def __reduce__(self) -> tuple[Any, ...]:
        """From the block."""
        return type(self), (self.block,)


class AccountingError(ShuffleSimError, RuntimeError):
    """The accounting identity (sent = accepted + dropped + missing) or the cost formula does not
    hold.
    """


def integer(parameter: str, value: Any, low: int = 1, high: int = 2**53) -> int:
    """`value` as an int in [low, high]; booleans and floats are refused.

    Raises:
        ParameterError: otherwise.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int | np.integer)
        or not low <= value <= high
    ):
        raise ParameterError(parameter, value, f"an integer from {low} to {high}")
    return int(value)


def flag(parameter: str, value: Any) -> bool:
    """`value` as a bool, else ParameterError."""
    if not isinstance(value, bool | np.bool_):
        raise ParameterError(parameter, value, "True or False")
    return bool(value)


def real(
    parameter: str,
    value: Any,
    low: float,
    high: float,
    *,
    closed: tuple[bool, bool] = (False, True),
) -> float:
    """`value` as a finite float between `low` and `high`; `closed` says which ends belong to the
    range.

    Raises:
        ParameterError: otherwise.
    """
    brackets = "[" if closed[0] else "(", "]" if closed[1] else ")"
    allowed = f"a finite number in {brackets[0]}{low:g}, {high:g}{brackets[1]}"
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ParameterError(parameter, value, allowed)
    inside = (low <= value if closed[0] else low < value) and (
        value <= high if closed[1] else value < high
    )
    if not inside or not -sys.float_info.max <= value <= sys.float_info.max:
        raise ParameterError(parameter, value, allowed)
    return float(value)


def one_of(parameter: str, value: T, allowed: Iterable[object], *also: object) -> T:
    """`value`, if it is allowed or `also` taken, which is not said; else ParameterError."""
    known = list(allowed)  # what is not a name need not be hashable
    if value not in known and value not in also:
        raise ParameterError(parameter, value, f"one of {', '.join(map(str, known))}")
    return value


def refuse_given(given: Mapping[str, Any], allowed: str) -> None:
    """Refuse parameters, by name, that are not None."""
    for name, value in given.items():
        if value is not None:
            raise ParameterError(name, str(value) if isinstance(value, Path) else value, allowed)


def positive(parameter: str, value: Any) -> float:
    """`value` as a finite float above 0, else ParameterError."""
    return real(parameter, value, 0.0, math.inf, closed=(False, False))


_FACTORS = {"k": 3, "M": 6, "G": 9}


def parse_number(text: str, kind: type) -> Any:
    """A number as people write it: 10000, 1e4, 10_000 or 10k; M is 10^6, and G is 10^9.

    Raises:
        ValueError: it is none, or no whole one where one is asked for.
    """
    body, power = (text[:-1], _FACTORS[text[-1]]) if text[-1:] in _FACTORS else (text, 0)
    try:
        found = Decimal(body.strip())
    except InvalidOperation as error:
        raise ValueError("not a number") from error
    if kind is float:
        return float(found) * 10.0**power if power else float(found)
    if not found.is_finite() or found.adjusted() > 300 or (found := found.scaleb(power)) % 1:
        raise ValueError("not a whole number")
    return int(found)
