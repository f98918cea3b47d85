"""How results are printed: for people with rich, for machines as JSON."""

import dataclasses
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from shuffle_sim.errors import ParameterError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

console = Console(highlight=False)


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: dataclasses as objects, arrays as lists, infinity as the string
    "infinity".
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "infinity" if value > 0 else str(value)
    return value


def check_picture(path: Path | None) -> None:
    """Refuse a picture that could not be written, before anything is run.

    Raises:
        ParameterError: not a .png, .svg or .pdf file in an existing folder.
    """
    check_path("plot", path, (".png", ".svg", ".pdf"))


def check_path(option: str, path: Path | None, kinds: tuple[str, ...]) -> None:
    """Refuse a file that could not be written, before anything is run.

    Raises:
        ParameterError: not of one of the kinds, or not in an existing folder.
    """
    if path is not None and (path.suffix not in kinds or not path.parent.is_dir() or path.is_dir()):
        raise ParameterError(
            option, str(path), f"a {' or '.join(kinds)} file in an existing folder"
        )


def save_picture(figure: "Figure", path: Path) -> None:
    """Write the picture whole or not at all."""
    with whole("plot", path) as part:
        figure.savefig(part, dpi=120)


@contextmanager
def whole(option: str, path: Path) -> Iterator[Path]:
    """A file beside `path` to write to, which takes its place when all is written, or else
    vanishes.

    Raises:
        ParameterError: naming the option, if it cannot be written.
    """
    part = path.with_name(f".{path.stem}.part{path.suffix}")
    try:
        yield part
        part.replace(path)
    except OSError as error:
        raise ParameterError(option, str(path), f"writable ({error.strerror})") from error
    finally:
        part.unlink(missing_ok=True)


def emit(value: Any) -> None:
    """Print `value` as JSON."""
    print(json.dumps(plain(value), indent=2))


def number(value: float) -> str:
    """A number in the few digits that people read."""
    return f"{value:,.0f}" if abs(value) >= 100_000 else f"{value:.4g}"


def plural(count: int, noun: str) -> str:
    """A number of things."""
    return f"{count:,} {noun}" + "s" * (count != 1)


def size(count: float) -> str:
    """Bytes with a unit."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")
