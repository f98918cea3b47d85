"""What happened in a run, as somebody sees it who looks at every role and at the disk.

The journal says what a run believes. A history says what was done: also what nobody was told, since
the answer was lost or the driver had died. `violations` holds it against the promises of
docs/faults.md.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from shuffle_sim.execution.journal import charged_broadcasts
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.roles import Conclusion, Deployment, read_reports
from shuffle_sim.wire.frames import Frame, Kind, parse, split_frames
from shuffle_sim.wire.messages import Messages

_OPEN = (Kind.REPORTS, Kind.COUNTS, Kind.TALLY)
_SEALED = (Kind.SEALED, Kind.BUNDLE, Kind.BOXES)


class Event(NamedTuple):
    """One thing that was done.

    Attributes:
        what: "charge" (it reached the disk), "answer" (users sent a frame), "release" (the shuffler
            gave a frame of the view) or "delivery" (the analyzer took a whole view).
        round: of the frame; of a charge its place on the disk.
        place: the frame's index, with its kind.
        content: SHA-256 of what the frame carries; empty where it is sealed, by fresh randomness.
        asked: SHA-256 of the broadcast that was charged or asked; empty of a delivery.
        reports: how many users' reports.
        sums: (label, sum of its symbols) or (word, how often it came), but none that is 0; where
            they can be read.
    """

    what: str
    round: int
    place: tuple[int, int] = (0, 0)
    content: bytes = b""
    asked: bytes = b""
    reports: int = 0
    sums: tuple[tuple[int, int], ...] | None = None


class History:
    """All events of one run, in order; also of a run that was killed and resumed.

    Attributes:
        events: what was done.
    """

    def __init__(self, checkpoint: Path | None = None) -> None:
        """Watch the journal in the folder `checkpoint`, too; without one, no charge is seen."""
        self._checkpoint = checkpoint
        self._size = 0
        self._viewed = -1
        self.events: list[Event] = []

    def look(self) -> None:
        """Note the charges that reached the disk since the last look."""
        if self._checkpoint is None:
            return
        size, charged = charged_broadcasts(self._checkpoint, self._size)
        known = sum(event.what == "charge" for event in self.events) if charged else 0
        self._size = size
        for place, asked in enumerate(charged[known:], known):
            self.events.append(Event("charge", place, asked=asked))

    def note(
        self, deployment: Deployment, method: str, arguments: tuple[Any, ...], value: Any
    ) -> None:
        """A role's method was run on these arguments, and gave the value."""
        if method == "answer":
            self.look()
            randomizer = deployment.opened(arguments[0]).randomizer
            for frame in _frames(value[0]):
                sent = read_reports(frame, randomizer) if frame.kind in _OPEN else None
                tally = sent.tally() if isinstance(sent, Messages) else sent
                self._add("answer", frame, arguments[0], None if tally is None else tally.items())
        elif method in ("shuffle", "view"):
            for frame in _frames(value[0]):
                self._add("release", frame, arguments[0])
        elif method in ("receive", "conclude"):
            for frame in _frames(arguments[0]):
                self._viewed = frame.context.round
        if isinstance(value, Conclusion):
            reports, sums = value.tally.reports, value.tally.items()
            self.events.append(Event("delivery", self._viewed, reports=reports, sums=sums))

    def _add(
        self,
        what: str,
        frame: Frame,
        broadcast: bytes,
        sums: tuple[tuple[int, int], ...] | None = None,
    ) -> None:
        sealed = frame.kind in _SEALED
        self.events.append(
            Event(
                what,
                frame.context.round,
                (frame.kind, frame.index),
                # Sealed again, the same content is other bytes.
                b"" if sealed else hashlib.sha256(frame.payload).digest(),
                hashlib.sha256(broadcast).digest(),
                frame.reports,
                sums,
            )
        )


def _frames(batch: bytes) -> Iterator[Frame]:
    return (parse(data) for data in split_frames(batch))


def violations(history: History, ledger: PrivacyLedger | None = None) -> list[str]:
    """Which promises were not kept; empty if all were.

    - Charge before release: no frame of a round leaves users or shuffler before the charge of the
      broadcast it answers is on the disk.
    - One content per round and block: whoever is asked again gives the same.
    - Conservation: what the analyzer took of a round is the sum of what its users sent.
    - The ledger holds at least the rounds that were answered.

    Args:
        history: of the run.
        ledger: of its result, or of the error that ended it.
    """
    return [*_order(history.events), *_contents(history.events), *_sums(history.events)] + [
        f"round {each} was answered, and the ledger has {len(ledger.charges)} charges"
        for each in sorted({event.round for event in history.events if event.what == "answer"})
        if ledger is not None and each >= len(ledger.charges)
    ]


def _order(events: list[Event]) -> Iterator[str]:
    charged: dict[int, bytes] = {}
    for event in events:
        if event.what == "charge":
            charged[event.round] = event.asked
        elif event.what in ("answer", "release"):
            known = charged.get(event.round)
            if known is None:
                yield f"{event.what} of round {event.round} before its charge"
            elif known != event.asked:
                yield f"{event.what} of round {event.round} to a broadcast that was not charged"


def _contents(events: list[Event]) -> Iterator[str]:
    found = defaultdict[tuple[str, int, tuple[int, int]], set[object]](set)
    for event in events:
        if event.what == "delivery":
            found["delivery", event.round, (0, 0)].add((event.reports, event.sums))
        elif event.what != "charge" and event.content:
            found[event.what, event.round, event.place].add((event.reports, event.content))
    for (what, number, (kind, index)), contents in found.items():
        if len(contents) > 1:
            name = f"{Kind(kind).name.lower()} {index}" if what != "delivery" else "view"
            yield f"{what} of round {number}, {name}: {len(contents)} different contents"


def _sums(events: list[Event]) -> Iterator[str]:
    blocks: dict[int, dict[tuple[int, int], Event]] = defaultdict(dict)
    for event in events:
        if event.what == "answer":
            blocks[event.round][event.place] = event
    for event in events:
        sent = blocks[event.round].values()
        if event.what != "delivery" or any(each.sums is None for each in sent):
            continue  # what is sealed or sent by hand is not read here
        reports = sum(each.reports for each in sent)
        sums = Counter[int]()
        for each in sent:
            sums.update(dict(each.sums or ()))
        if (reports, sums) != (event.reports, Counter(dict(event.sums or ()))):
            yield (
                f"delivery of round {event.round}: {event.reports} reports with sums {event.sums}, "
                f"sent were {reports} with {(*sorted(sums.items()),)}"
            )


def windows(history: History) -> int:
    """In how many rounds a released frame of a view did not reach the analyzer, and was released
    again: the window between release and delivery.
    """
    released = Counter(
        (event.round, event.place) for event in history.events if event.what == "release"
    )
    return len({number for (number, _), times in released.items() if times > 1})
