"""`shuffle-sim attack`: what corrupted users do to privacy, to a sum and to a trained model."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rich.table import Table as Grid

from protocols.learning.target_model import logistic
from protocols.optimisation.base import Optimiser
from protocols.sums.vector_sum import VectorSum
from shuffle_sim.attacks.studies import (
    BiasRow,
    PrivacyRow,
    Reach,
    TrainingRow,
    manipulation_study,
    privacy_study,
    training_study,
)
from shuffle_sim.cli import show
from shuffle_sim.cli.options import (
    ATTACK,
    Hosting,
    PrivacyOptions,
    SumOptions,
    left_out,
    option,
    same,
)
from shuffle_sim.errors import ParameterError, real
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.trust import Trust

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_RATIO = 1.1  # noise of a sum over the central Gaussian's, where nothing is asked
_HONEST = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 1 / 3)
_ATTACKERS = (0.02, 0.05, 0.1, 0.2)
_NAMES = ("label-flip", "sign-flip", "alie", "ipm:scale=10", "oppose")


@dataclass(frozen=True)
class AttackRequest:
    """What a study is asked; its own default stands for None and for nothing."""

    n: int
    d: int
    privacy: Privacy
    noise: SumOptions
    attacks: Sequence[str]
    fractions: Sequence[float]
    repeats: int
    seed: int | None
    on_row: Callable[[int, int], None]

    def sum(self, *, scalar: bool | None = None) -> Any:
        """A sum as asked for, with a ratio of its own where nothing is."""
        return self.noise.encoded(self.n, self.d, self.privacy, scalar=scalar, ratio=_RATIO)[1]


@dataclass(frozen=True)
class AttackFinding:
    """What a study found; `reach` says how far a report can go, or why that is not known."""

    study: str
    rows: Sequence[PrivacyRow] | Sequence[BiasRow] | Sequence[TrainingRow]
    note: str
    table: Grid = field(repr=False)
    draw: "Callable[[Axes], tuple[str, str, str]]" = field(repr=False)
    reach: dict[str, Reach | str] | None = None


def privacy_of(asked: AttackRequest) -> AttackFinding:
    """Epsilon by honest fraction of the users."""
    n, d, protocol = asked.n, asked.d, asked.sum()
    fractions = asked.fractions or _HONEST
    rows = privacy_study(
        protocol, fractions, repeats=asked.repeats, seed=asked.seed, on_row=asked.on_row
    )
    table = show.grid(
        "honest fraction",
        "users",
        "paper: epsilon / fraction",
        "proven",
        "exact, worst found",
        "empirical >=",
        texts=0,
    )
    for row in rows:
        by_paper = "-" if row.paper is None else f"{row.paper:.4f}"
        each = row.proven, row.exact, row.empirical
        epsilons = ("-" if math.isnan(value) else f"{value:.4f}" for value in each)
        table.add_row(f"{row.fraction:.3f}", f"{row.honest:,}", by_paper, *epsilons)
    note = (
        f"n = {n:,}, d = {d}, {show.encoded_as(protocol.encoding, protocol.parameters)}, delta "
        f"{asked.privacy.delta:g}. The empirical value is a lower bound from samples of the "
        "implemented randomizer, at confidence 0.9999 a row. A value above the exact one would "
        "mean that the implementation is wrong."
    )

    def draw(axes: "Axes") -> tuple[str, str, str]:
        points = sorted(rows, key=lambda row: row.fraction)
        known = [(row.fraction, row.paper) for row in points if row.paper is not None]
        if known:
            axes.plot(*zip(*known, strict=True), "s--", color="gray", label="paper: ε / fraction")
        fractions = [row.fraction for row in points]
        colour = Trust.SHUFFLE.colour
        axes.plot(fractions, [row.proven for row in points], "o-", color=colour, label="proven")
        exact = [row.exact for row in points]
        axes.plot(fractions, exact, "x:", color=colour, label="exact, worst found")
        empirical = [row.empirical for row in points]
        axes.plot(fractions, empirical, "kv", label="empirical lower bound, 99.99 %")
        axes.set_ylim(bottom=0)
        worst = points[0]
        title = f"With {100 * worst.fraction:.3g} % honest users ε is {worst.proven:.3g}, proven"
        return title, "honest fraction of the users", f"ε at δ = {asked.privacy.delta:g}"

    return AttackFinding("privacy", rows, note, table, draw)


def manipulation(asked: AttackRequest) -> AttackFinding:
    """How far a corrupted user moves a vector sum, by attack."""
    n, d, protocol = asked.n, asked.d, asked.sum(scalar=False)
    fractions = asked.fractions or [0.1]
    if len(fractions) != 1:
        raise ParameterError("fraction", fractions, "one fraction with --study manipulation")
    rows = manipulation_study(
        protocol, fraction=fractions[0], repeats=asked.repeats, seed=asked.seed
    )
    table = show.grid("attack", "datum", "closed form", "observed a user", "s.e.", texts=2)
    for row in rows:
        moved = f"{row.expected:.4f}", f"{row.observed:.4f}", f"{row.error:.4f}"
        table.add_row(row.attack, row.datum, *moved)
    sums, refused = {"calibrated": protocol}, {}
    try:
        sums["paper"] = VectorSum.paper(n=n, d=d, privacy=asked.privacy)
    except ParameterError as error:
        refused["paper"] = str(error)
    reaches = {name: Reach.of(each) for name, each in sums.items()}
    each = "; ".join(
        f"{name} ({show.encoded_as(sums[name].encoding, sums[name].parameters)}): "
        f"{show.number(one.up)} up, {show.number(one.down)} down, {show.number(one.l2)} in l2"
        for name, one in reaches.items()
    )
    note = (
        f"n = {n:,}, d = {d}; all lengths in norm bounds of one user. A report can move a "
        f"coordinate from datum 0 at most by: {each}."
    )

    def draw(axes: "Axes") -> tuple[str, str, str]:
        places = range(len(rows))
        observed, bars = [row.observed for row in rows], [1.96 * row.error for row in rows]
        colour = Trust.SHUFFLE.colour
        axes.errorbar(observed, places, xerr=bars, fmt="o", color=colour, label="observed, 95 %")
        axes.plot([row.expected for row in rows], places, show.TRUE, ms=16, label="closed form")
        most = reaches["calibrated"].l2
        axes.axvline(most, color="gray", ls="--", lw=1, label="the most a report can do")
        axes.set_yticks(list(places), [f"{row.attack} ({row.datum})" for row in rows])
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xlim(-0.5, 3 * max(most, *observed))
        axes.invert_yaxis()
        title = f"One corrupted user moves the sum by {show.number(most)} norm bounds at most"
        return title, "displacement of the sum, l2, in norm bounds", ""

    return AttackFinding("manipulation", rows, note, table, draw, reaches | refused)


def training(asked: AttackRequest) -> AttackFinding:
    """The error of a model by attack and fraction of attackers."""
    given = asked.noise.given
    left_out({key: given.get(key) for key in ("max_bits", "honest_fraction")}, "--study training")
    wished = {
        name: given[name] for name in ("noise_ratio", "encoding", "rotation") if name in given
    }
    target = logistic(asked.n, asked.d, asked.privacy, **wished)
    names, fractions = asked.attacks or _NAMES, asked.fractions or _ATTACKERS
    rows = training_study(target, names, fractions, repeats=asked.repeats, seed=asked.seed)
    table = show.grid("attack", "attackers", "error", "s.e.", "epsilon")
    for row in rows:
        measured = f"{row.error:.4f}", f"{row.spread:.4f}", f"{row.epsilon:.4f}"
        table.add_row(row.attack, f"{row.fraction:.3f}", *measured)
    protocol = target.protocol
    assert isinstance(protocol, Optimiser)
    note = (
        f"{type(protocol).__name__}, {protocol.users:,} users in {protocol.rounds} batches. "
        "Epsilon is that of the worst batch, for the honest users in it. Error is that of "
        "classification on held-out data."
    )

    def draw(axes: "Axes") -> tuple[str, str, str]:
        honest, *others = rows
        marks = iter("osD^vPX*<>hd")  # the colour says the trust model
        for name in dict.fromkeys(row.attack for row in others):
            attacked = [row for row in others if row.attack == name]
            line = [honest, *sorted(attacked, key=lambda row: row.fraction)]
            fractions, errors = [row.fraction for row in line], [row.error for row in line]
            bars = [1.96 * row.spread for row in line]
            look: dict[str, Any] = {"capsize": 2, "color": Trust.SHUFFLE.colour, "mfc": "none"}
            axes.errorbar(fractions, errors, bars, fmt=f"{next(marks, '.')}-", label=name, **look)
        axes.set_ylim(bottom=0)
        worst = max(others, key=lambda row: row.error)
        title = f"{worst.attack} by {100 * worst.fraction:.3g} % of users: error {worst.error:.2f}"
        title += f", without attack {honest.error:.2f}"
        return title, "fraction of attackers", "classification error, held out, 95 %"

    return AttackFinding("training", rows, note, table, draw)


class AttackMeasure(StrEnum):
    """What is measured."""

    PRIVACY = "privacy"
    MANIPULATION = "manipulation"
    TRAINING = "training"


_STUDIES: dict[AttackMeasure, tuple[int, int, int, Callable[[AttackRequest], AttackFinding]]] = {
    AttackMeasure.PRIVACY: (1000, 1, 1000, privacy_of),
    AttackMeasure.MANIPULATION: (1000, 10, 10, manipulation),
    AttackMeasure.TRAINING: (10_000, 5, 3, training),
}
"""By study: default users, coordinates and repeats, and what measures it."""


def attack_command(
    privacy: PrivacyOptions,
    noise: SumOptions,
    output: show.Drawn,
    study: AttackMeasure = option(AttackMeasure.PRIVACY, "What is measured."),
    users: int | None = option(None, "Users; by default 1,000, and 10,000 for training.", "--n"),
    dimensions: int | None = option(None, "Coordinates; by default 1, 10 and 5.", "--d"),
    attack: list[str] | None = ATTACK,
    fraction: list[float] | None = option(
        None, "Fraction of honest users (privacy) or of attackers; repeatable."
    ),
    repeats: int | None = option(
        None, "Samples of every law (privacy; by default 1,000), or runs of every attack."
    ),
    seed: int | None = same(Hosting, "seed"),
) -> None:
    """Measure attacks: on privacy, on a sum (manipulation), or on a model (training).

    Example: shuffle-sim attack --study privacy --n 1000 --epsilon 1 --fraction 1 --fraction 0.5

    Example: shuffle-sim attack --study training --attack sign-flip --fraction 0.1
    """
    if attack and study is not AttackMeasure.TRAINING:
        raise ParameterError("attack", attack, "used with --study training")
    for each in fraction or []:
        real("fraction", each, 0.0, 1.0, closed=(study is AttackMeasure.TRAINING, True))
    default_n, default_d, default_repeats, measure = _STUDIES[study]
    status = show.console.status("attacking ...")
    asked = AttackRequest(
        default_n if users is None else users,
        default_d if dimensions is None else dimensions,
        privacy.budget,
        noise,
        attack or [],
        fraction or [],
        default_repeats if repeats is None else repeats,
        seed,
        lambda row, rows: status.update(f"attacking, row {row} of {rows} ..."),
    )
    with status:
        found = measure(asked)

    def draw(found: AttackFinding) -> "Figure":
        axes = show.new_axes(7, 4.5)
        notes = [f"{study}: {asked.n:,} users, d = {asked.d}, {show.budget(privacy)}"]
        if isinstance(reach := (found.reach or {}).get("paper"), Reach):
            beyond = f"{show.number(reach.l2)} with the paper's constants."
            notes.append(f"Beyond the axis: {beyond}")
        return show.finish(axes, *found.draw(axes), notes=notes)

    output.present(found, _print, draw)


def _print(found: AttackFinding) -> None:
    show.console.print(found.table)
    show.notes.print(found.note, style="dim")
