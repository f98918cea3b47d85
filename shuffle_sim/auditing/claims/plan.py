"""What an audit looks at: one registry of its checks, and the plan of one audit.

A check says what it looks at, how many samples it takes, and which defect it must catch. Tests
plant that defect, and hold the check to it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.errors import FrameError, ParameterError

FALSE_ALARM = 1e-6
"""Of a whole audit, at most: all checks of a plan share it."""


@dataclass(frozen=True)
class Check:
    """One comparison: what was looked at, whether it held, and what was seen if not.

    `passed` is None where it could not be checked; `detail` says why.
    """

    name: str
    passed: bool | None
    detail: str = ""


@dataclass(frozen=True)
class Planned:
    """A check as it will be made.

    Attributes:
        name: of the check.
        looks_at: at what.
        samples: how many, in words.
        power: against which defect; what the registry of mutants plants.
        missing: why it cannot be made; empty: it can.
    """

    name: str
    looks_at: str
    samples: str
    power: str
    missing: str = ""


class UncheckedError(Exception):
    """A check that could not be made after all, and why."""


@dataclass(frozen=True)
class CheckStep:
    """A check that is planned, and how it is made; None: it cannot be."""

    planned: Planned
    make: Callable[[], None] | None

    def check(self) -> Check:
        """Make it, and say what was found."""
        name = self.planned.name
        if self.make is None:
            return Check(name, None, self.planned.missing)
        return checked(name, self.make)


def checked(name: str, make: Callable[[], object]) -> Check:
    """The check of a name, made now."""
    try:
        make()
    except UncheckedError as error:
        return Check(name, None, str(error))
    except (LawError, FrameError, ParameterError) as error:
        return Check(name, False, str(error))
    except MemoryError as error:  # of this machine: it says nothing of what is audited
        return Check(name, None, f"it does not fit into memory: {error}".removesuffix(": "))
    except Exception as error:  # what is audited may do anything
        return Check(name, False, f"{type(error).__name__}: {error}")
    except BaseException as stopped:  # Ctrl-C, or a signal
        stopped.add_note(f"as it was checked that {name}")
        raise
    return Check(name, True)


def always(bench: Any) -> bool:
    """Whatever is audited."""
    return True


def law_missing(bench: Any) -> str:
    """Why checks against a law cannot be made."""
    return "" if bench.known else str(bench.lawless)


@dataclass(frozen=True)
class CheckKind:
    """A kind of check in the registry.

    Attributes:
        name: as reports show it.
        method: of the bench that makes it.
        looks_at: at what.
        samples: of it, said by the bench's numbers.
        power: the defect that it must catch.
        applies: whether there is anything to look at.
        missing: why it cannot be made; empty: it can.
        brief: whether it is made of randomizers that only later rounds have, too.
    """

    name: str
    method: str
    looks_at: str
    samples: Callable[[Any], str]
    power: str
    applies: Callable[[Any], bool] = always
    missing: Callable[[Any], str] = law_missing
    brief: bool = False

    def planned(self, bench: Any) -> Planned:
        """The check as this bench makes it."""
        missing = self.missing(bench)
        samples = "" if missing else self.samples(bench)
        return Planned(self.name, self.looks_at, samples, self.power, missing)


def _possible(bench: Any) -> str:
    return ""


KINDS: tuple[CheckKind, ...] = (
    CheckKind(
        "data outside the domain are brought into it",
        "domain",
        "rows from 1 + 1e-6 to 1e200 times the radius away, alike and mixed, in all forms; blocks"
        " beyond their first piece",
        lambda b: f"{len(b.rows)} types of rows, and 16 distances in each direction",
        "rows that stay outside the ball whose event is charged",
        brief=True,
    ),
    CheckKind(
        "what is admitted of a user does not depend on others",
        "alone",
        "rows alone, in other orders and among fewer; as arrays and as multiples of rows",
        lambda b: f"{len(b.rows)} types of rows, in three orders and two forms",
        "clipping by the largest of a batch; multiples clipped otherwise than dense rows",
    ),
    CheckKind(
        "every report has the same size, whatever the datum",
        "sizes",
        "reports of all types of rows",
        lambda b: f"{b.literal:,} users in 3 rounds",
        "a message that is left out of some reports",
    ),
    CheckKind(
        "one report, as it is defined, has its exact law",
        "defined",
        "`randomize` itself",
        lambda b: f"up to 200 reports on each of {len(b.inside)} data",
        "noise left out of the definition, or of one datum",
        brief=True,
    ),
    CheckKind(
        "each user's report has its exact law (literal)",
        "literal_law",
        "every user and label, sums, differences, pairs and projections, at literal fidelity",
        lambda b: f"{b.literal:,} users in some 300 rounds",
        "less noise for some users, labels, forms of rows, kernels or generators",
    ),
    CheckKind(
        "each user's report has its exact law (counts)",
        "counts_law",
        "the same at counts fidelity",
        lambda b: f"{b.users:,} users in some 300 rounds",
        "noise that coordinates, neighbours or coins of a user share",
        brief=True,
    ),
    CheckKind(
        "reports on data that are searched have their exact law",
        "search",
        "data on the edge, next to it and anywhere, as arrays and as multiples; climbs from the"
        " farthest",
        lambda b: f"{b.searched:,} data, 120 reports on each, and 48 climbed",
        "noise left out of a hundredth of the range",
    ),
    CheckKind(
        "samplers that randomizers share have their laws, far into the tails",
        "sampled",
        "`shuffle_sim.sampling.exact`, as the randomizer uses it, and parts of noise that it names",
        lambda b: "up to 131,072 draws of each",
        "a tail of noise that is cut off where it is seldom",
        applies=lambda b: bool(b.samplers) or hasattr(b.randomizer, "noise_parts"),
        missing=_possible,
        brief=True,
    ),
    CheckKind(
        "streams of all runs, rounds, roles and places differ",
        "keys",
        "the beginnings of streams, all bits of the entropy, the system's entropy",
        lambda b: "some 1,000 streams of each generator",
        "streams that ignore the entropy, the round, the role or the place",
        missing=_possible,
    ),
    CheckKind(
        "no draw of a user comes again",
        "streams",
        "every two frames of runs, rounds and blocks; windows; all lags; sums of neighbours; blocks"
        " of the run's size, and beyond the pieces of every kernel; each kernel and generator",
        lambda b: (
            "32 rounds of 4 runs, two by two; blocks of 150,000 draws; up to 4,096 small blocks"
        ),
        "noise of a round, block or run once more; kernels that repeat; a coin for many users;"
        " seeds of 18 bits",
    ),
    CheckKind(
        "all messages of a report but one are uniform, and independent",
        "shares",
        "sums of subsets, also modulo 1,680, pairs, rank over Z_q, multiples at all lags, across"
        " users",
        lambda b: "100 rounds of up to 96 users, with two kernels",
        "a share that follows from others; users whose shares cancel, repeat or follow",
        applies=lambda b: getattr(b.randomizer, "modulus", 0) == b.randomizer.alphabet.symbols,
    ),
    CheckKind(
        "the tally of the users has its exact law (aggregate)",
        "tallies",
        "sums of blocks, with each kernel and generator",
        lambda b: f"250 rounds of {b.users:,} users, {len(b.ways())} ways",
        "other noise where sums are drawn at once",
    ),
    CheckKind(
        "the sums over all users have their exact law",
        "whole",
        "sums that a randomizer draws at once",
        lambda b: f"{b.repeats:,} sums",
        "a tenth more or less noise in sums",
        brief=True,
    ),
    CheckKind(
        "one user's report, drawn many times at once, has its exact law",
        "often",
        "reports on the end of the range",
        lambda b: "200,000 reports",
        "a share of noise 15 % short, of 60 users",
        brief=True,
    ),
    CheckKind(
        "the noise of all honest users together has its exact law",
        "together",
        "noise of the round's users",
        lambda b: f"up to {8 * b.repeats:,} sums of {b.asked:,} users",
        "shares of noise 15 % short, of 20,000 users",
        applies=lambda b: b.known and hasattr(b.randomizer, "total_law"),
        brief=True,
    ),
    CheckKind(
        "what a user sends does not depend on who else is asked",
        "company",
        "users alone in a block or few, after rounds of others, and beside those who drop out or"
        " are corrupted",
        lambda b: f"{b.accompanied} users in 40 rounds, at all fidelities",
        "noise left out in small batches, for parts of blocks, or beside others who are not honest",
        brief=True,
    ),
    CheckKind(
        "a round is answered and released once",
        "once",
        "broadcasts that come again, with other parameters and late; batches that come twice",
        lambda b: "a round of each kind",
        "fresh noise on the same datum; a release by fewer than agreed, or a second one",
    ),
    CheckKind(
        "no bit that is sent may be anything",
        "read",
        "frames of users at each fidelity, and sealed messages, with one bit turned",
        lambda b: "up to 600 bits of each frame, all of two messages",
        "bits that a reader passes over, so that senders could say in them who they are",
    ),
    CheckKind(
        "roles together send what they send apart",
        "stations",
        "what passes between the roles of stations, and between roles apart",
        lambda b: "one and two stations, byte by byte",
        "roles that draw or shuffle otherwise where they share a worker",
        applies=lambda b: b.shipped_roles,
    ),
    CheckKind(
        "the view holds what users sent, with any number of shards",
        "conserved",
        "sums of views with one, two and three shards of the shuffler",
        lambda b: "three runs",
        "messages that shards lose or add",
        applies=lambda b: b.shipped_roles,
    ),
    CheckKind(
        "the shuffler keeps no order",
        "order",
        "tagged messages through every pool: of bits, of symbols, sharded, of sealed boxes; few and"
        " many, below and above what is compiled; every two views",
        lambda b: "150 views of few messages, 2 to 60 of thousands, of each pool",
        "a permutation that comes twice, or moves parts, symbols or rounds only",
        missing=_possible,
    ),
    CheckKind(
        "the event's own law is the randomizer's",
        "event",
        "epsilon of the worst pair by the randomizer's law, and by the event's theorem",
        lambda b: "exact, for up to 60 users",
        "an event of more bits, steps or honest users",
        brief=True,
    ),
)
"""All checks of what users send and a shuffler shows, in the order in which they are made."""


def plan_of(bench: Any, *, brief: bool = False) -> Iterator[tuple[CheckKind, Planned]]:
    """The checks of a bench; in brief, of a later round's randomizer."""
    for kind in bench.kinds:
        if (kind.brief or not brief) and kind.applies(bench):
            yield kind, kind.planned(bench)


def steps_of(bench: Any, prefix: str = "", *, brief: bool = False) -> Iterator[CheckStep]:
    """The checks of a bench as they are made, named with a prefix."""
    for kind, planned in plan_of(bench, brief=brief):
        make = None if planned.missing else getattr(bench, kind.method)
        yield CheckStep(replace(planned, name=prefix + planned.name), make)
