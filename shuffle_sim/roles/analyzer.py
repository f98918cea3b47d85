"""The analyzer: owns the protocol's state."""

from typing import Any

import numpy as np

from shuffle_sim.cohort import Cohort
from shuffle_sim.errors import FrameError, RoundAbortedError
from shuffle_sim.messages import Tally
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.protocol import RoundSpec
from shuffle_sim.randomizer import Randomizer
from shuffle_sim.roles.deployment import Deployment
from shuffle_sim.roles.reports import tally_of
from shuffle_sim.wire import Context, Frame, Kind, check_context, parse


class Analyzer:
    """Owns the protocol's state: says what the next round asks, and turns each view into an estimate."""

    def __init__(self, deployment: Deployment) -> None:
        """Start from the protocol's initial state."""
        self._deployment = deployment
        self._state = deployment.protocol.init()
        self._round = 0
        self._spec: RoundSpec | None = None

    def plan(self) -> tuple[bytes, Cohort, PrivacyEvent] | None:
        """The next round's broadcast with the cohort and event the ledger is to charge; None when done."""
        self._spec = self._deployment.protocol.plan(self._state)
        if self._spec is None:
            return None
        payload = self._spec.broadcast()
        context = Context.of_broadcast(self._deployment.task, self._round, payload)
        return Frame(Kind.ROUND, context, 0, 0, payload).tobytes(), self._spec.cohort, self._spec.event

    def receive(self, view: bytes) -> None:
        """Take the view of the planned round and update the state.

        Raises:
            FrameError: if the view is not one of this round; the state is unchanged then.
        """
        if self._spec is None:
            raise RoundAbortedError("no round is planned")
        frame = parse(view)
        check_context(frame, Context.of_broadcast(self._deployment.task, self._round, self._spec.broadcast()))
        if not self._spec.minimum <= frame.reports <= self._spec.cohort.size:
            raise FrameError("wrong-count", f"{frame.reports} reports of {self._spec.cohort.size} users")
        tally = self._read(frame, self._spec.randomizer)
        if self._deployment.adversary is not None:
            self._deployment.adversary.observe(tally)
        self._state = self._deployment.protocol.update(self._state, self._spec.analyze(tally))
        self._round += 1
        self._spec = None

    @staticmethod
    def _read(frame: Frame, randomizer: Randomizer) -> Tally:
        if frame.kind is Kind.VIEW_TALLY:
            return tally_of(frame, randomizer)
        if frame.kind is not Kind.VIEW:
            raise FrameError("wrong-kind", f"{frame.kind.name} is not for the analyzer")
        labels, size = randomizer.alphabet.labels, frame.reports * randomizer.per_label
        if len(frame.payload) != labels * ((size + 7) // 8):
            raise FrameError("wrong-length", f"{len(frame.payload)} bytes for {labels} labels of {size} bits")
        bits = np.frombuffer(frame.payload, np.uint8).reshape(labels, -1)
        if size % 8 and bool((bits[:, -1] & (0xFF >> size % 8)).any()):
            raise FrameError("nonzero-padding", "bits after the last message of a label")
        return Tally.of_ones(np.bitwise_count(bits).sum(axis=1, dtype=np.int64), randomizer.per_label, frame.reports)

    def result(self) -> Any:
        """The protocol's output."""
        return self._deployment.protocol.result(self._state)
