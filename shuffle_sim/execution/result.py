"""What a run gives, and what became of the reports."""

import math
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, cast

import numpy as np

from shuffle_sim.data.population import Unit
from shuffle_sim.errors import AccountingError, ShuffleSimError, WeakPrivacyWarning
from shuffle_sim.execution.costs import Costs
from shuffle_sim.execution.exchange import Exchange
from shuffle_sim.execution.plain import SIMULATOR_VIEW, plain, simulator_view
from shuffle_sim.notebook import html_table
from shuffle_sim.privacy.bounds.central import best
from shuffle_sim.privacy.guarantee import Guarantee, weaknesses
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.privacy.trust import Trust


@dataclass(frozen=True, kw_only=True)
class ReportCounts:
    """What became of the reports of a run: asked + extra = accepted + dropped (by reason) +
    missing, checked after every round.

    Attributes:
        asked: users asked, summed over rounds.
        accepted: reports in the views.
        dropped: reports dropped by the shuffler, by reason.
        missing: users that stayed silent.
        extra: what corrupted users sent beyond one packet each.
        corrupted: users that the adversary controlled, whatever they sent.
        clipped: users whose value was clipped to the domain.
        nonfinite: users whose value was not finite; they sent the zero vector.
        left_out: records of persons beyond the first ones that count.
        dropped_messages: messages of accepted reports dropped by the analyzer, by reason: what only
            it can open (onion).
    """

    asked: int = 0
    accepted: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    missing: int = 0
    extra: int = 0
    corrupted: int = 0
    clipped: int = field(default=0, metadata=SIMULATOR_VIEW)
    nonfinite: int = field(default=0, metadata=SIMULATOR_VIEW)
    left_out: int = field(default=0, metadata=SIMULATOR_VIEW)
    dropped_messages: Mapping[str, int] = field(default_factory=dict)

    def plus(self, exchange: Exchange, asked: int) -> "ReportCounts":
        """With one more round.

        Raises:
            AccountingError: if the identity does not hold for the round of `asked` users.
        """
        users, shuffler = exchange.users, exchange.shuffler
        if users.asked != asked:
            raise AccountingError(
                f"{asked} users are in the cohort, {users.asked} were asked: the data has not the "
                "rows it said"
            )
        if (
            users.asked + users.extra
            != shuffler.accepted + sum(shuffler.dropped.values()) + users.silent
        ):
            sent = f"{users.asked} users asked and {users.extra} extra packets"
            raise AccountingError(
                f"{sent}, but accounted for are {shuffler} and {users.silent} missing"
            )
        return ReportCounts(
            asked=self.asked + users.asked,
            accepted=self.accepted + shuffler.accepted,
            dropped=dict(Counter(self.dropped) + shuffler.dropped),
            missing=self.missing + users.silent,
            extra=self.extra + users.extra,
            corrupted=self.corrupted + users.corrupted,
            clipped=self.clipped + users.clipped,
            nonfinite=self.nonfinite + users.nonfinite,
            dropped_messages=dict(Counter(self.dropped_messages) + exchange.analyzer.dropped),
        )


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """What a run gives.

    Attributes:
        value: the protocol's output.
        privacy: the guarantee of the whole run, from the noise that was really added.
        promised: the guarantee as planned, before anybody dropped out or misbehaved.
        rounds: number of rounds.
        costs: communication.
        reports: what became of the reports.
        fidelity: literal, counts or aggregate.
        kernel: numpy or compiled.
        runtime: name of the runtime.
        workers: user shards.
        shuffler_shards: of the shuffler.
        placement: apart or together.
        seed: None, or the seed that reproduces the run (which is then not private).
        ledger: every release, with its cohort.
        security: none, transport or onion.
        trust: who must be trusted.
        standard_error: predicted standard deviation of each number of the value, or of each entry's
            numbers, where the algorithm states one and all who were asked sent honest reports; else
            None.
        sensitivity: of a sum, l2 distance of two users' data at most; else None.
    """

    value: Any
    privacy: Guarantee
    promised: Guarantee
    rounds: int
    costs: Costs
    reports: ReportCounts
    fidelity: str
    kernel: str
    runtime: str
    workers: int
    shuffler_shards: int
    seed: int | None
    ledger: PrivacyLedger
    security: str = "none"
    placement: str = "apart"
    trust: Trust = Trust.SHUFFLE
    standard_error: Any = None
    sensitivity: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """All but the ledger, as JSON can hold it; what the simulator alone knows stands apart.

        Raises:
            TypeError: JSON cannot hold the value.
        """
        shown = {each.name: getattr(self, each.name) for each in fields(self)}
        del shown["ledger"]
        found = {name: plain(value) for name, value in shown.items()}
        found["best_ratio"] = None if self.best_ratio is None else self.best_ratio[0]
        return found | {"unit": str(self.unit), "simulator_view": simulator_view(self)}

    @property
    def best_ratio(self) -> tuple[float, str] | None:
        """Of a sum: its standard error over that of the best central noise, and which that is."""
        promised = self.promised
        known = self.sensitivity is not None and self.standard_error is not None
        if not known or not 0 < promised.epsilon < math.inf:
            return None
        least, name = best(promised.epsilon, promised.delta, np.size(self.value))
        return self.standard_error / (least * cast(float, self.sensitivity)), name

    def _facts(self) -> dict[str, str]:
        """What a reader looks for first."""
        value = self.value
        shape = f"array {value.shape}" if isinstance(value, np.ndarray) else _short(repr(value))
        costs, reports = self.costs, self.reports
        error = {}
        if self.standard_error is not None:
            up_to = "up to " if np.size(self.standard_error) > 1 else ""
            error["standard error"] = f"{up_to}{np.max(self.standard_error):.4g}"
        if self.best_ratio is not None:
            error["noise"] = f"{self.best_ratio[0]:.4g} x central {self.best_ratio[1]}, the best"
        lost = reports.asked - reports.accepted
        dropped = {"reports": f"{reports.accepted:,} of {reports.asked:,}"} if lost else {}
        bits = f"{round(costs.payload_bits_per_user, 2):,} bits a user in each"
        above = f"{reports.clipped:,} above the norm bound: the simulator's view, not private"
        cut = {"clipped": above} if reports.clipped else {}
        seeded = {"seed": f"{self.seed}: not private"} if self.seed is not None else {}
        return {
            "value": shape,
            **error,
            "privacy": f"epsilon {self.privacy.epsilon:.4g} at delta {self.privacy.delta:g}",
            "trust": f"{self.trust}, unit {self.unit}",
            "rounds": f"{self.rounds:,}, {'at most ' * (self.rounds > 1)}{bits}",
            **dropped,
            **cut,
            **seeded,
        }

    def __repr__(self) -> str:
        """One line; `to_dict` gives all."""
        return f"Result({', '.join(f'{name}: {fact}' for name, fact in self._facts().items())})"

    def _repr_html_(self) -> str:
        """A table for notebooks, with what the guarantee rests on."""
        rests = {"by": self.privacy.basis, "assuming": "; ".join(self.privacy.assumptions)}
        return html_table(self._facts() | rests)

    @property
    def unit(self) -> Unit:
        """Whose data the guarantee protects: one record, or all records of one person."""
        return self.privacy.unit

    @property
    def private(self) -> bool:
        """Whether the output may be published: a seeded run can be reproduced and is not
        private.
        """
        return self.seed is None and math.isfinite(self.privacy.epsilon)


def told(result: Result, users: int) -> Result:
    """The result of a run on so many users; warns once for each way in which it promises little."""
    asked = result.promised
    for text in weaknesses(asked.epsilon, asked.delta, users):
        warnings.warn(text, WeakPrivacyWarning, stacklevel=3)
    return result


@contextmanager
def spending(ledger: PrivacyLedger, delta: float) -> Iterator[None]:
    """What was spent stays known: an error that ends a run bears the ledger and a note."""
    try:
        yield
    # Ctrl-C, too: what was spent is spent.
    except BaseException as error:
        if isinstance(error, ShuffleSimError):
            error.ledger = ledger
        if ledger.charges:
            known = (
                ""
                if ledger.settled
                else "; the last with the noise planned: how much was added is not known"
            )
            error.add_note(
                f"spent until then, {len(ledger.charges)} round(s) charged: "
                f"{ledger.guarantee(delta)}{known}"
            )
        raise


@dataclass(frozen=True)
class RunSummary:
    """How a run took place."""

    fidelity: str
    runtime: str
    workers: int
    seed: int | None
    security: str

    @classmethod
    def of(cls, result: Result) -> "RunSummary":
        """Of a run that is over."""
        where = result.fidelity, result.runtime, result.workers
        return cls(*where, result.seed, result.security)
