"""What commands ask of the things that the registry finds: their types."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, runtime_checkable
from typing import Protocol as Interface

from shuffle_sim.arrays import Floats
from shuffle_sim.data.population import Unit
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.base import Protocol
from shuffle_sim.protocol.release import CentralAlgorithm


@dataclass(frozen=True)
class Method:
    """A method in a comparison: one setting of an algorithm under one trust model.

    Errors are root mean squares, in l2 over the coordinates, with rounding at its worst.

    Attributes:
        name: of the algorithm or of the trust model.
        setting: of that.
        trust: who must be trusted.
        unit: whose data the guarantee protects.
        algorithm: what runs it; None where formulas alone are compared.
        messages: that a user sends in a round.
        bits: that a user sends in the whole run, the papers' count.
        limit_bits: that unbiased reports with this error take at least, added by a trusted party;
            0 where that says nothing.
        error: with honest users only.
        attacked: with malicious users that send the worst they can; infinite where nothing bounds
            them.
        rounds_per_user: in how many rounds a user answers at most.
        bound: proven, of the expected excess loss; infinite where none is proven.
        assumes: what the bound assumes of the data; "" for nothing.
        colour: in pictures.
        paper: whether a paper's constants were taken as they are.
        refused: why it cannot be had; all numbers are then without meaning.
    """

    name: str
    setting: str
    trust: Trust
    unit: Unit = Unit.RECORD
    algorithm: Protocol[Any] | CentralAlgorithm[Any] | None = field(default=None, repr=False)
    messages: int = 0
    bits: int = 0
    limit_bits: float = 0.0
    error: float = math.nan
    attacked: float = math.nan
    rounds_per_user: int = 1
    bound: float = math.inf
    assumes: str = ""
    colour: str = "black"
    paper: bool = False
    refused: str = ""

    @property
    def title(self) -> str:
        """Name and setting."""
        return f"{self.name}, {self.setting}" if self.setting else self.name


@runtime_checkable
class SumKind(Interface):
    """A registered class of sums: `calibrate` makes one; `scalar` says of numbers, not vectors."""

    scalar: bool
    calibrate: Callable[..., Protocol[Any]]


@runtime_checkable
class Encoded(Interface):
    """A sum whose numbers become messages by an encoding with these parameters.

    Attributes:
        bits: per user and coordinate.
    """

    encoding: str
    parameters: Mapping[str, Any]
    bits: int
    sensitivity: float
    standard_error: float


@runtime_checkable
class Optimiser(Interface):
    """A protocol that trains a model, the proven bound of its excess loss, and what was chosen."""

    @property
    def rounds(self) -> int:
        """Of interaction."""

    @property
    def rounds_per_user(self) -> int:
        """In how many of them a user answers at most."""

    @property
    def bound(self) -> float:
        """Infinite where none is proven."""

    @property
    def assumes(self) -> str:
        """What the bound assumes of the data; "" for nothing."""

    @property
    def choices(self) -> Mapping[str, str]:
        """What was chosen, and why."""


class Loss(Interface):
    """The loss of a linear model."""

    @property
    def classification(self) -> bool:
        """Whether labels are classes."""


class Ball(Interface):
    """Where the parameters lie."""

    @property
    def radius(self) -> float:
        """Of the l2 ball."""


class Problem(Interface):
    """What a trainer minimises."""

    @property
    def domain(self) -> Ball:
        """Where the parameters lie."""


class Trainer(Interface):
    """What makes the protocols that train one model; mypy holds the registered one to it."""

    @property
    def loss(self) -> Loss:
        """Of the margins."""

    @property
    def d(self) -> int:
        """Parameters."""

    @property
    def ridge(self) -> float:
        """Public."""

    @property
    def privacy(self) -> Privacy:
        """Of the whole run."""

    @property
    def choose(self) -> str:
        """How parameters are chosen: "practice" or "bound"."""

    @property
    def encoding(self) -> str | None:
        """Of numbers as messages; None: that of the fewest bits."""

    @property
    def honest_fraction(self) -> float:
        """Of the users that add their noise."""

    @property
    def tails(self) -> Mapping[str, Any]:
        """What is known of heavy tails, as central algorithms take it."""

    @property
    def problem(self) -> Problem:
        """What is minimised."""

    @property
    def clips(self) -> bool:
        """Whether gradients may be clipped; no proven bound holds then."""

    @property
    def unit(self) -> Unit:
        """What a user is."""

    def within(self, privacy: Privacy) -> "Trainer":
        """The same with another budget."""

    def selected(
        self,
        name: str,
        n: int,
        select: Mapping[str, Sequence[float]],
        fraction: float,
        **given: Any,
    ) -> Optimiser:
        """Optimisers for several values, and a paid selection among them."""

    def selected_by_curator(
        self, mechanism: str, n: int, select: Mapping[str, Sequence[float]]
    ) -> Any:
        """A curator's algorithms for several values, and a paid choice among them."""

    def for_records(self) -> "Trainer":
        """The same for users of one record each."""

    def proven(self) -> "Trainer":
        """The same with parameters of the smallest proven bound."""

    def optimisers(self) -> Iterable[str]:
        """The names of all registered optimisers for its users."""

    def protocol(
        self,
        name: str,
        n: int,
        *,
        hyper: str = ...,
        phases: int | None = ...,
        trust: Trust | str = ...,
        **given: float | str | None,
    ) -> Optimiser:
        """An optimiser for n users."""

    def central(self, mechanism: str, n: int) -> Any:
        """The curator's algorithm registered under a name, for n rows."""

    def neighbours(self, n: int) -> Mapping[str, tuple[Floats, Floats]]:
        """Tables of n rows that differ in one, by name, for audits."""

    def risk(self, theta: Floats, rows: Floats) -> float:
        """The mean loss."""

    def constant(self, rows: Floats) -> Floats:
        """The margin of the best constant prediction, or those of each class."""
