"""What the rounds of a run were: reports, costs, whose noise was added, what that guarantees."""

from dataclasses import replace

from shuffle_sim.errors import NotFiniteError
from shuffle_sim.execution.costs import CostMeter
from shuffle_sim.execution.exchange import Exchange
from shuffle_sim.execution.result import ReportCounts
from shuffle_sim.execution.rounds import checked, disclose, metered
from shuffle_sim.privacy.guarantee import Guarantee
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.protocol.binding import UNCHECKED, UNCONFIRMED
from shuffle_sim.roles import Deployment, PlannedRound


class Observed:
    """The rounds of a run so far, as the driver saw them.

    Attributes:
        deployment: of the run.
        reports: what became of them.
        meter: of the communication.
        rounds: that are over.
        noisy: of each round, the users that added their noise, and those asked.
        unchecked: whether the event of a round was not derived from what it broadcast.
        believed: what privacy takes from the authors of queries.
    """

    def __init__(self, deployment: Deployment, literal_size: int) -> None:
        """Before the first round; `literal_size` is the block size of a literal run."""
        self.deployment, self._literal_size = deployment, literal_size
        self.reports, self.meter, self.rounds = ReportCounts(), CostMeter(), 0
        self.noisy: list[tuple[int, int]] = []
        self.unchecked, self.believed = False, dict[str, None]()

    def plan(self, plan: PlannedRound) -> None:
        """Look at a round before it is charged.

        Raises:
            ParameterError: it is charged for something else than it broadcasts.
        """
        self.unchecked |= not checked(self.deployment.protocol, self.deployment, plan)
        query = self.deployment.opened(plan.broadcast).query
        self.believed |= dict.fromkeys(query.believed())

    def take(self, plan: PlannedRound, exchange: Exchange) -> None:
        """Take a round that is over.

        Raises:
            AccountingError: reports or messages are not accounted for.
            NotFiniteError: what it asked for was finite for no user.
        """
        asked = plan.cohort.size
        self.reports = self.reports.plus(exchange, asked)
        self.noisy.append((exchange.shuffler.accepted - exchange.shuffler.singles, asked))
        disclose(self.deployment.adversary, self.rounds, exchange)
        metered(self.meter, self.deployment, plan.broadcast, exchange, self._literal_size)
        if exchange.users.nonfinite == exchange.users.asked:
            raise NotFiniteError(self.rounds)
        self.rounds += 1

    @property
    def full(self) -> bool:
        """Whether all who were asked sent honest reports."""
        return (self.reports.corrupted, self.reports.accepted) == (0, self.reports.asked)

    def guarantees(self, ledger: PrivacyLedger, seed: int | None) -> tuple[Guarantee, Guarantee]:
        """What holds after the run, and what was promised before it.

        A theorem of the protocol's own is stated where the charges confirm it, for honest users;
        where noise is missing, only the accounting applies.
        """
        protocol = self.deployment.protocol
        assumed = _assumptions(seed, self.deployment.generator) + (UNCHECKED,) * self.unchecked
        assumed += (*protocol.believed, *self.believed)
        settled = ledger.guarantee(
            protocol.delta, assumptions=(*_honesty(self.noisy, protocol.honest_fraction), *assumed)
        )
        whole = (*_honesty([], protocol.honest_fraction), *assumed)
        promised = ledger.guarantee(protocol.delta, settled=False, assumptions=whole)
        if (claim := protocol.claim) is None:
            return settled, promised
        # At the delta of the claim: at another the two epsilons could not be compared.
        charged = ledger.guarantee(claim.delta, settled=False).epsilon
        if charged <= claim.epsilon * (1 + 1e-9):
            promised = replace(claim, assumptions=whole)
            return promised if self.full else settled, promised
        claimed = f"{UNCONFIRMED} (epsilon {claim.epsilon:.4g} at delta {claim.delta:g})"
        return settled.assuming(claimed), promised.assuming(claimed)


def _honesty(noisy: list[tuple[int, int]], assumed: float) -> tuple[str, ...]:
    """Whose noise epsilon counts on: of (users that added theirs, users asked) in each round."""
    if all(honest == asked for honest, asked in noisy):
        return (f"honest fraction {assumed:g} in every round, assumed in advance",)
    honest, asked = min(noisy, key=lambda each: each[0] / each[1])
    worst = f"{honest:,} of {asked:,} users asked added their noise in the round where fewest did"
    return (f"{worst}; no more are counted on, nor more than a fraction {assumed:g}",)


def _assumptions(seed: int | None, generator: str) -> tuple[str, ...]:
    seeded = (
        "seeded: reproducible, and therefore not private"
        if seed is not None
        else "unseeded: entropy of the operating system"
    )
    if generator == "chacha20":
        return (f"randomness {seeded}; drawn by ChaCha20",)
    return (f"randomness {seeded}; simulated by a statistical generator",)
