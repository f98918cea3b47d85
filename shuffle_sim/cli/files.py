"""Files that commands write: refused before anything is run, and never half-written."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shuffle_sim.data.files import check_name
from shuffle_sim.errors import ParameterError


def check_picture(path: Path | None) -> None:
    """Refuse a picture that could not be written.

    Raises:
        ParameterError: not a .png, .svg or .pdf file in an existing folder.
    """
    check_path("plot", path, (".png", ".svg", ".pdf"))


def check_path(option: str, path: Path | None, kinds: tuple[str, ...]) -> None:
    """Refuse a file that could not be written.

    Raises:
        ParameterError: not of one of the kinds, or not in an existing folder.
    """
    if path is not None:
        check_name(option, path)
    if path is not None and (path.suffix not in kinds or not path.parent.is_dir() or path.is_dir()):
        raise ParameterError(
            option, str(path), f"a {' or '.join(kinds)} file in an existing folder"
        )


@contextmanager
def whole(option: str, path: Path) -> Iterator[Path]:
    """A file beside `path` to write to; it replaces `path` when all is written, else it is removed.

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
