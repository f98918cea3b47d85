"""All mutants: where a defect is planted, what it covers, and which check must catch it."""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from actors.runtime import RayRuntime
from protocols import (
    CarryVectorSum,
    Histogram,
    L2Ball,
    LaplaceScalarSum,
    Logistic,
    Problem,
    ShuffleGD,
    SingleMessageSum,
    SplitAndMixSum,
    SplitAndMixVectorSum,
    VectorSum,
)
from protocols.sums.binomial import BinomialRandomizer
from shuffle_sim import Privacy
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.execution.options import Execution
from shuffle_sim.execution.processes import ProcessesRuntime
from shuffle_sim.protocol.base import Datum
from shuffle_sim.sampling.randomness import Role

from . import counting as c
from . import edges, in_company, in_runs, long_sums, sealing, seldom, shared
from . import orderings as o
from . import planted as p
from . import randomizers as r
from . import users as u

FEW = Privacy(3.0, 1e-4)
Plant = Callable[[Any], object]


def vector() -> Any:
    return VectorSum(n=r.N, d=r.D, g=4, b=12)


def wide() -> Any:
    return VectorSum(n=200, d=100, g=4, b=12)


def carry() -> Any:
    return r.SmallCarries.calibrated()


def split() -> Any:
    return SplitAndMixSum.calibrated(n=60, privacy=FEW, rounding=0.3)


def thousand() -> Any:
    """So many users that a share of noise is 0 mostly."""
    return SplitAndMixSum.calibrated(n=1000, privacy=Privacy(1.0, 1e-6))


def split_vector() -> Any:
    return SplitAndMixVectorSum.calibrated(n=60, d=2, norm_bound=1.0, privacy=FEW)


def few_floods() -> Any:
    return LaplaceScalarSum.calibrated(n=200, privacy=FEW)


def descent() -> Any:
    problem = Problem(Logistic(), L2Ball(2, 1.0))
    return ShuffleGD.calibrated(n=40, problem=problem, privacy=FEW, rounds=2, noise_ratio=1.3)


def descent_of_three() -> Any:
    problem = Problem(Logistic(), L2Ball(3, 1.0))
    return ShuffleGD.calibrated(n=40, problem=problem, privacy=FEW, rounds=2, noise_ratio=1.3)


def eight_in_ten() -> Any:
    given = {"n": 1000, "d": 3, "noise_ratio": 1.4, "honest_fraction": 0.8}
    return VectorSum.calibrated(privacy=Privacy(1.0, 1e-6), **given)


def carries() -> Any:
    return CarryVectorSum.calibrated(n=300, d=200, privacy=Privacy(1.0, 1e-6), noise_ratio=1.1)


def single() -> Any:
    return SingleMessageSum.calibrated(n=400, privacy=Privacy(1.0, 1e-4))


def histogram() -> Any:
    return Histogram.calibrated(n=200, categories=4, privacy=Privacy(3.0, 1e-4))


@dataclass(frozen=True)
class Mutant:
    """A planted defect.

    Attributes:
        name: of it.
        check: the method of the bench, or of the run that is asked for, that must catch it.
        make: the protocol.
        covers: what is broken: randomizers, kernels, generators, pools, runtimes by name.
        plant: where it is planted in the code; None: in the protocol.
        roles: other implementations of roles.
        options: of the run that is audited.
        slow: whether it starts Ray.
    """

    name: str
    check: str
    make: Callable[[], Any] = vector
    covers: tuple[str, ...] = ()
    plant: Plant | None = None
    roles: dict[str, Any] = dataclasses.field(default_factory=dict)
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    slow: bool = False


def _of_randomizers() -> Iterator[Mutant]:
    for make, covers, kinds in (
        (vector, "BinomialRandomizer", _BINOMIAL),
        (carry, "CarryRandomizer", _CARRY),
        (split, "SplitMixRandomizer", _SPLIT),
        (single, "SingleMessageRandomizer", _SINGLE),
        (vector, "BinomialRandomizer", edges.SUMS),
        (wide, "BinomialRandomizer", {seldom.TwoOfHundred: "counts_law"}),
        (split, "SplitMixRandomizer", {seldom.LateShares: "shares"}),
        (split, "SplitMixRandomizer", {edges.StretchedShares: "streams"}),
        (split_vector, "SplitMixRandomizer", edges.VECTORS),
        (thousand, "SplitMixRandomizer", {r.SignsForDifferences: "often"}),
        (long_sums.buckets, "BucketRandomizer", edges.BUCKETS),
        (few_floods, "FloodRandomizer", edges.FLOODS),
        *long_sums.PLANTED,
        (shared.pairs, "BucketRandomizer", {shared.OneCoinForAllBuckets: "apart"}),
        (shared.wide, "BucketRandomizer", dict.fromkeys(shared.WIDE, "apart")),
    ):
        for kind, check in kinds.items():
            extra = _MORE.get(kind, ())

            def made(make: Any = make, kind: type = kind) -> Any:
                return r.with_randomizer(make(), kind)

            yield Mutant(kind.__name__, check, made, (covers, *extra))


_BINOMIAL: dict[type, str] = {
    r.TwiceTheBall: "domain",
    r.NotClipped: "domain",
    r.ClippedByCoordinate: "domain",
    r.ClippedByOthers: "alone",
    r.ShortReports: "sizes",
    r.DefinedWithoutNoise: "defined",
    r.HalfP: "counts_law",
    r.HalfB: "whole",
    r.RoundsUp: "counts_law",
    r.HalfInOneCoordinate: "counts_law",
    r.OneDrawForAllCoordinates: "counts_law",
    r.AntitheticNeighbours: "counts_law",
    r.OneInHundredWithout: "counts_law",
    r.OtherCoordinateSeen: "counts_law",
    r.LessNoiseCompiled: "counts_law",
    r.LessNoiseFromChaCha: "often",
    r.CoinFromTheNoise: "counts_law",
    r.OneDrawForABlock: "streams",
    r.OneCoinForAllRoundings: "streams",
    r.LessNoiseForLargeValues: "search",
    r.SameNoiseInAllRounds: "streams",
    r.LiteralOnly: "tallies",
    r.UniformNoise: "literal_law",
    r.CancellingCoordinates: "counts_law",
    r.TwiceTheBits: "event",
    r.HalfTheSteps: "event",
    r.MoreHonest: "bound",
    r.NearTheEnd: "search",
    r.LessForMultiples: "search",
    r.ClipByRank: "alone",
    r.RepeatsInLargeBlocks: "streams",
    r.RepeatsCompiled: "streams",
    u.FirstWithout: "counts_law",
    u.LastWithout: "counts_law",
    u.Every64thWithout: "streams",
    u.NearTheMiddle: "search",
    u.OnTheGrid: "search",
    u.OneSign: "search",
    u.WithoutTails: "streams",
    u.TenthShort: "counts_law",
    u.TallyShared: "tallies",
    u.TallyByNumber: "tallies",
    u.TallyOnce: "tallies",
    u.CoordinatesOfUser: "streams",
    u.NegatedLater: "streams",
    u.OneInFour: "counts_law",
    u.ClippedByMany: "alone",
    u.FewSeeds: "streams",
    u.NegativeZero: "counts_law",
}
_SINGLE: dict[type, str] = {
    r.FewerSymbols: "event",
    r.OneBlanket: "streams",
    u.BlanketByRow: "streams",
    u.BlanketInHalf: "counts_law",
}
_CARRY: dict[type, str] = {
    r.NoCoins: "counts_law",
    r.OneUniform: "counts_law",
    r.SharedCoins: "counts_law",
    u.CoinsOfUser: "streams",
    u.CoinsOfNeighbours: "streams",
}
_SPLIT: dict[type, str] = {
    r.InTheClear: "shares",
    r.HalfTheRange: "shares",
    r.AllAlike: "shares",
    r.OneFollows: "shares",
    r.CancellingUsers: "shares",
    r.RepeatingUsers: "shares",
    r.OneFollowsTwo: "shares",
    r.Short: "together",
    u.Even: "shares",
    u.Coarse: "shares",
    u.LateUserFollows: "shares",
    u.LargeMultiple: "shares",
    u.OnceInTen: "shares",
    u.NarrowRange: "shares",
    u.RestsFollow: "shares",
    u.SharesOfFewSeeds: "streams",
}
_MORE: dict[type, tuple[str, ...]] = {
    r.LessNoiseCompiled: ("compiled",),
    r.RepeatsCompiled: ("compiled",),
    r.LessNoiseFromChaCha: ("chacha20",),
    r.SignsForDifferences: ("chacha20",),
    r.SameNoiseInAllRounds: ("numpy", "sfc64"),
}


def _key(**changed: Callable[[int], int]) -> Plant:
    names = "entropy", "round", "role", "index"

    def change(*key: Any) -> tuple[Any, ...]:
        return tuple(
            changed.get(name, lambda each: each)(value)
            for name, value in zip(names, key, strict=True)
        )

    return p.keyed(change)


def _centred() -> Any:
    class Asks(VectorSum):
        """It asks what depends on others."""

        vocabulary = (Datum, p.Centred, BinomialRandomizer)

        def plan(self, state: Any) -> Any:
            spec = super().plan(state)
            return spec and dataclasses.replace(spec, query=p.Centred())

    return Asks(n=r.N, d=r.D, g=4, b=12)


def _later_event() -> Any:
    class Twice(VectorSum):
        """The second round states ten times the users."""

        claims_sequential = False

        def init(self) -> Any:
            return 0

        def plan(self, state: Any) -> Any:
            spec = super().plan(VectorSum.init(self)) if state < 2 else None
            if not state or spec is None:
                return spec
            return dataclasses.replace(spec, event=spec.randomizer.event(10 * r.N, spec.query))

        def update(self, state: Any, estimate: Any) -> Any:
            return state + 1

    return Twice(n=r.N, d=r.D, g=4, b=12)


def _of_words() -> Iterator[Mutant]:
    for method, kind, check, more in (
        ("response", c.LieTogether, "users_law", {}),
        ("response", c.LowerWordsOfLarge, "users_law", {"categories": 8}),
        ("response", c.Every64thTrue, "users_law", {}),
        ("response", c.RepeatingLies, "streams", {"n": 2_000}),
        ("fixed-blanket", c.OneBlanketForAll, "users_law", {}),
        ("fixed-blanket", c.LateWordsBare, "users_law", {"categories": 200}),
        ("unary", c.OneCoinForBits, "users_law", {}),
        ("two-sided", c.ShortBatches, "tallies", {"n": 1000, "categories": 8}),
        ("response", c.TwiceTold, "aggregate_law", {}),
        ("unary", c.OneCategorySure, "search", {"categories": 300, "n": 5000}),
        ("response", c.OneCategoryTrue, "search", {"categories": 300, "n": 5000}),
        ("response", c.SameLies, "rounds", {}),
        ("response", c.Boasts, "message", {}),
        ("response", c.LastToldTruly, "message", {"categories": 8}),
        ("response", c.OneMoreNeither, "message", {}),
        ("unary", c.OneTruth, "message", {}),
        ("pollution", shared.AlsoInTheNextBin, "apart", {"n": 1000}),
        ("pollution", shared.SureNumberOfBatches, "apart", {"n": 1000, "categories": 300}),
        *edges.WORDS,
    ):
        made = partial(c.histogram, method, kind, **more)
        yield Mutant(kind.__name__, check, made, (kind.__bases__[0].__name__,))
    for one, asks in c.ALIKE.items():
        name = f"{one.__name__}: halves of a block alike"
        yield Mutant(name, "streams", asks, (one.__name__,), c.alike(one))
    blind = p.blind(InProcessRuntime)
    for name, asks in c.SUMS.items():
        yield Mutant(f"{name} without entropy", "unseeded", asks, (name,), blind)
    told: tuple[tuple[str, str, Plant | None, dict[str, Any]], ...] = (
        ("noise of the round before", "streams", None, {"shard": p.NoiseReused}),
        ("half of the streams", "streams", None, {"shard": p.StreamsOfHalfTheBlocks}),
        ("rounds in pairs", "streams", _key(round=lambda t: t // 2), {}),
        ("without entropy", "unseeded", blind, {}),
        ("first stays", "order", p.permuting(o.first_stays), {}),
        ("large ones stay", "order", p.permuting(p.large_symbols_stay), {}),
    )
    made = partial(c.histogram, "response")
    for name, check, plant, roles in told:
        yield Mutant(f"words: {name}", check, made, ("WordPool",), plant, roles)


_PLANTED = (
    Mutant("streams ignore the entropy", "keys", plant=_key(entropy=lambda e: 1)),
    Mutant("words taken twice", "keys", plant=p.words_taken_twice, covers=("chacha20",)),
    Mutant("the shuffler's entropy by one", "keys", plant=p.entropy_by_one),
    Mutant("streams of 32 bits", "keys", plant=p.few_seeds),
    Mutant("streams keep 64 bits of it", "keys", plant=_key(entropy=lambda e: e % 2**64)),
    Mutant("rounds come in pairs", "streams", plant=_key(round=lambda t: t // 2)),
    Mutant("rounds repeat after 16", "streams", plant=_key(round=lambda t: t % 16)),
    Mutant("lengths of other rows", "company", vector, plant=p.lengths_of_other_rows),
    Mutant("later pieces as they are", "domain", vector, plant=p.later_pieces_as_they_are),
    Mutant("late rounds begin as blocks", "keys", plant=p.rounds_beside_blocks),
    Mutant("rounds amid the ones before", "keys", plant=p.amid_the_round_before),
    Mutant("rounds repeat after 256", "keys", plant=_key(round=lambda t: t % 256)),
    Mutant("blocks share a stream", "streams", plant=_key(index=lambda i: i // 2)),
    Mutant("roles share a stream", "keys", plant=_key(role=lambda role: Role.USERS)),
    Mutant("unseeded runs are one", "unseeded", plant=p.constant_entropy, covers=("inprocess",)),
    Mutant("entropy of few bits", "unseeded", plant=p.small_entropy),
    Mutant(
        "users ignore the entropy",
        "unseeded",
        plant=p.for_role(Role.USERS, lambda e, t, role, i: (5, t, role, i)),
    ),
    Mutant(
        "a shuffler seeded by the round",
        "order",
        plant=p.for_role(Role.SHUFFLER, lambda e, t, role, i: (5, t, role, i)),
        covers=("BitPool", "SymbolPool"),
    ),
    Mutant(
        "a shuffler with one order for all rounds",
        "order",
        plant=p.for_role(Role.SHUFFLER, lambda e, t, role, i: (e, 0, role, i)),
    ),
    *(
        Mutant(f"permuted: {by.__name__}", "order", plant=p.permuting(by), covers=("SymbolPool",))
        for by in (
            p.same_twice,
            p.parts_alone,
            p.large_symbols_stay,
            p.odd_after_even,
            p.rolled,
            p.half_of_many,
            o.by_symbol,
            o.turned,
            o.rotated,
            o.first_stays,
            o.last_stays_of_many,
            o.last_part_as_it_came,
            o.never_in_place,
            o.neighbours_only,
            o.even_only,
            o.halves_apart,
            o.biased,
            seldom.eleven_riffles,
        )
    ),
    *(
        Mutant(f"arranged: {by.__name__}", "order", plant=p.arranging(by), covers=("BitPool",))
        for by in (
            p.same_places,
            p.ones_in_front,
            p.of_few_seeds,
            p.in_runs,
            o.first_is_one,
            o.last_byte_empty,
            o.pairs_of_bits,
            o.alternate_halves,
            seldom.large_in_front,
        )
    ),
    Mutant("labels in one order", "order", plant=o.one_for_all_labels, covers=("SymbolPool",)),
    Mutant("ones shared out evenly", "order", plant=o.even_shares, covers=("BitPool",)),
    Mutant("one stream for all frames", "keys", plant=o.one_stream_for_frames),
    Mutant("a later event of more users", "bound", _later_event),
    *_of_words(),
    Mutant("words in one order", "order", histogram, ("WordPool",), p.permuting(p.parts_alone)),
    Mutant("boxes keep their order", "order", plant=p.boxes_in_order, covers=("BoxPool",)),
    Mutant("boxes in one order", "order", plant=p.boxes_by_round, covers=("BoxPool",)),
    Mutant("compiled bits repeat", "streams", plant=p.same_lanes, covers=("compiled",)),
    Mutant("carries repeat", "streams", carry, ("compiled",), p.splitting("compiled", 30_000)),
    Mutant("carries repeat in numpy", "streams", carry, ("numpy",), p.splitting("numpy", 30_000)),
    Mutant("carries repeat across labels", "streams", carries, plant=p.pieces_again),
    Mutant("rows read anew", "own", plant=p.first_row_for_all),
    Mutant("rows without length", "alone", carry, ("compiled",), p.no_squares_come),
    Mutant("a query of others", "queries", _centred),
    Mutant(
        "norms without a column",
        "queries",
        descent_of_three,
        plant=shared.first_column_has_no_square,
    ),
    Mutant("last rows without a column", "alone", plant=shared.last_rows_have_no_square),
    Mutant("corrupted users see noise", "company", plant=shared.of_users("CORRUPTED")),
    Mutant("coalitions see noise", "company", plant=shared.of_users("COALITION")),
    Mutant("no floor of reports", "bound", eight_in_ten, plant=shared.no_floor),
    Mutant(
        "rows in files of processes",
        "hosted",
        plant=p.rows_in_files,
        options={"runtime": "processes", "workers": 2},
    ),
    Mutant(
        "processes without entropy",
        "hosted",
        plant=p.blind(ProcessesRuntime),
        covers=("processes",),
        options={"runtime": "processes", "workers": 2},
    ),
    Mutant(
        "processes without entropy, chacha20",
        "hosted",
        plant=p.blind(ProcessesRuntime),
        options={
            "runtime": "processes",
            "workers": 2,
            "execution": Execution(generator="chacha20"),
        },
    ),
    Mutant(
        "in process without entropy",
        "unseeded",
        plant=p.blind(InProcessRuntime),
        covers=("inprocess",),
    ),
    Mutant(
        "Ray without entropy",
        "hosted",
        plant=p.blind(RayRuntime),
        covers=("ray",),
        options={"runtime": "ray", "workers": 2},
        slow=True,
    ),
    *(
        Mutant(
            f"{security}: {plant.__name__}", "sealed", plant=plant, options={"security": security}
        )
        for plant in sealing.PLANTS
        for security in ("transport", "onion")
    ),
    *(
        Mutant(f"hops: {plant.__name__}", "sealed", plant=plant, options={"security": "transport"})
        for plant in sealing.HOPS
    ),
    *(Mutant(plant.__name__, "read", single, plant=plant) for plant in sealing.FREE),
    Mutant("sizes by the datum", "sizes", roles={"shard": p.CountDependsOnDatum}),
    Mutant("noise of the round before", "streams", roles={"shard": p.NoiseReused}),
    Mutant("half of the streams", "streams", roles={"shard": p.StreamsOfHalfTheBlocks}),
    Mutant("the last is the first", "literal_law", roles={"shard": p.LosesTheLast}),
    *(
        Mutant(kind.__name__, "order", roles={"shuffler": kind})
        for kind in (p.KeepsOrder, p.AddsOnes, p.OrderUnderOtherLabels, p.OrderOfShards)
    ),
    Mutant("views of others", "conserved", plant=p.adding_ones),
    *(Mutant(name, check, plant=plant) for name, plant, check in edges.ROLES),
    *(Mutant(name, check, plant=plant) for name, check, plant in seldom.PLANTED),
    Mutant(
        "bytes stay",
        "order",
        single,
        ("SymbolPool",),
        p.permuting(edges.bytes_stay),
    ),
    Mutant("many words stay", "order", histogram, ("WordPool",), edges.many_words_stay),
    Mutant("two parts stay", "order", histogram, ("WordPool",), edges.two_parts_stay),
    Mutant("many parts halved", "order", histogram, ("WordPool",), edges.many_parts_halved),
    Mutant("geometric numbers end", "sampled", split, plant=edges.three_units),
    Mutant("log-series end", "sampled", few_floods, plant=edges.no_outliers),
    Mutant("only the first is charged", "hosted", descent, plant=seldom.first_charged_only),
    Mutant("norms of others", "queries", descent, plant=edges.norms_of_the_first_piece),
    Mutant("gradients too long", "queries", descent, plant=edges.norms_of_gradients),
    *(
        Mutant(name, check, make, plant=plant, options=options)
        for name, check, make, plant, options in in_company.PLANTED
    ),
    *(Mutant(name, check, make, plant=plant) for name, check, make, plant in in_runs.PLANTED),
    Mutant(
        "one generator in runs",
        "unseeded",
        in_runs.vector,
        plant=in_runs.one_generator_in_runs,
        options={"execution": Execution(generator="chacha20")},
    ),
)


MUTANTS: tuple[Mutant, ...] = (*_of_randomizers(), *_PLANTED)
