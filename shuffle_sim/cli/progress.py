"""A progress bar on the standard error, where that is a terminal."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


class Bar:
    """A progress bar, shown while its `with` block runs."""

    def __init__(self, title: str, total: int) -> None:
        """Of so many steps."""
        screen = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} {task.fields[state]}"),
            TimeElapsedColumn(),
            console=screen,
            transient=True,
            disable=not screen.is_terminal,
        )
        self._task = self._progress.add_task(title, total=total, state="")

    def __enter__(self) -> "Bar":
        """Show the bar."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the bar."""
        self._progress.stop()

    def step(self, completed: int, state: str) -> None:
        """Show how many steps are done, and the state of the work."""
        self._progress.update(self._task, completed=completed, state=state)
