"""From names to an optimiser: protocols and baselines that train a linear model."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocols.learning.baselines import Baseline, CuratedBounds
from protocols.learning.model import GRADIENT, Model, mechanism_of
from protocols.optimisation.base import Optimiser
from protocols.optimisation.phases import CuratedPhases, Phased
from protocols.selection.bounds import ChosenBounds, WithBounds
from protocols.selection.curator import CuratedSelection
from protocols.selection.models import FRACTION, Selected, Selection, grid
from protocols.shuffle import heavy_tails
from protocols.shuffle.noisy_mean import NoisyMean
from protocols.shuffle.optimiser import FirstOrder, optimiser, optimisers
from protocols.shuffle.practice import practical
from shuffle_sim.arrays import Floats
from shuffle_sim.data.population import Unit
from shuffle_sim.data.row_map import RowMap
from shuffle_sim.errors import ParameterError, one_of
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import SumSpec
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.encodings import FACTORS, SANE_BITS, at_least, choose, usual_ratio

_OF_TRAINER = ("radius", "ridge", "norm_bound")
SELECTABLE = (*_OF_TRAINER, "rounds", "eta", "smoothing")
"""Parameters among whose values a paid selection chooses."""
_PASSES, _CREEP = 12, 1.01  # of the search for a noise ratio that fits the bits
_HYPER = ("calibrated", "paper")
DESCENTS = {Unit.RECORD: "shuffle-gd", Unit.PERSON: "user-level-gd"}
"""That descent, by what a user is."""


@dataclass(frozen=True)
class Trainer(Model):
    """Makes protocols that train one linear model, and runs their baselines."""

    def paid(
        self,
        name: str,
        n: int,
        *,
        select: Mapping[str, Sequence[float]] | None = None,
        fraction: float = FRACTION,
        share: float | None = None,
        by: RowMap | None = None,
        **given: Any,
    ) -> Any:
        """The optimiser of a name, with what is chosen privately around it; `Trained` opens it.

        Args:
            name: of the optimiser.
            n: users.
            select: values of SELECTABLE parameters; None: no selection.
            fraction: of the users who score what is selected.
            share: of epsilon for bounds of the columns that have none; None: all have.
            by: how users map their rows, with `share`.
            given: as for `protocol`.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed.
        """

        def made(privacy: Privacy) -> Any:
            within = self.within(privacy)
            if select is not None:
                return within.selected(name, n, select, fraction, **given)
            return within.protocol(name, n, **given)

        if share is None or by is None:
            return made(self.privacy)
        return ChosenBounds.calibrated(
            made,
            n=n,
            by=by,
            privacy=self.privacy,
            share=share,
            encoding=self.encoding,
            honest_fraction=self.honest_fraction,
        )

    def selected(
        self,
        name: str,
        n: int,
        select: Mapping[str, Sequence[float]],
        fraction: float,
        **given: Any,
    ) -> Selected:
        """Optimisers for every combination of some values, and a paid selection among them.

        Args:
            name: of the optimiser.
            n: users, those who score included.
            select: values of SELECTABLE parameters.
            fraction: of the users who score.
            given: as for `protocol`.

        Raises:
            ParameterError: as for `protocol`; persons; or what is not selectable.
        """
        if self.unit is Unit.PERSON or given.get("phases") is not None:
            allowed = "left out where users are persons, and in phases"
            raise ParameterError("select", list(select), allowed)
        for key in select:
            one_of("select", key, SELECTABLE)

        def make(users: int, privacy: Privacy, **values: float) -> FirstOrder[Any]:
            own: dict[str, Any] = {key: values.pop(key) for key in _OF_TRAINER if key in values}
            trainer = dataclasses.replace(self, privacy=privacy, **own)
            rounds = {k: int(v) if k == "rounds" else v for k, v in values.items()}
            made = trainer.protocol(name, users, **(given | rounds))
            assert isinstance(made, FirstOrder)
            return made

        return Selected.calibrated(
            grid(select, make),
            n=n,
            privacy=self.privacy,
            fraction=fraction,
            encoding=self.encoding,
            honest_fraction=self.honest_fraction,
        )

    def selected_by_curator(
        self, mechanism: str, n: int, select: Mapping[str, Sequence[float]]
    ) -> CuratedSelection:
        """A curator's algorithms for every combination of some values, and a choice among them.

        Raises:
            ParameterError: as for `central`; or what is not selectable there.
        """
        if mechanism == GRADIENT:
            allowed = "left out with mechanism 'gradient': candidates have one release each"
            raise ParameterError("select", list(select), allowed)
        for key in select:
            if key not in _OF_TRAINER:
                allowed = f"one of {', '.join(_OF_TRAINER)}, with --trust central"
                raise ParameterError("select", key, allowed)

        def make(privacy: Privacy, **values: float) -> Any:
            own: dict[str, Any] = values
            return dataclasses.replace(self, privacy=privacy, **own).central(mechanism, n)

        return CuratedSelection.calibrated(grid(select, make), loss=self.loss, privacy=self.privacy)

    def optimisers(self) -> list[str]:
        """The names of all registered optimisers for its users."""
        return list(optimisers(self.unit))

    def protocol(
        self,
        name: str,
        n: int,
        *,
        hyper: str = "calibrated",
        phases: int | None = None,
        trust: Trust | str = Trust.SHUFFLE,
        **given: float | str | None,
    ) -> Optimiser[Any]:
        """The optimiser `name` for n users.

        Args:
            name: as registered.
            n: users.
            hyper: "calibrated" from the noise really used, or "paper" for the paper's formulas.
            phases: over disjoint users, for a strongly convex objective; 0: chosen; None: no
            phases.
            trust: whose noise steps, batch and rounds are chosen for.
            given: what the optimiser takes, such as rounds, batch, eta, smoothing; None: chosen.

        Raises:
            ParameterError: for what is not an optimiser, does not fit together or is not possible.
        """
        kind: type[Optimiser[Any]] = optimiser(name, self.unit)
        if self.choose == "practice" and not optimiser(name, self.unit).tuned:
            # Not an error: comparisons ask every optimiser with one choice.
            proven = dataclasses.replace(self, choose="bound")  # nothing is tuned for it
            return proven.protocol(name, n, hyper=hyper, phases=phases, trust=trust, **given)
        if self._printed(hyper):
            self._proven("hyper", hyper)
        common: dict[str, Any] = {"n": n, "problem": self.problem, "privacy": self.privacy, **given}
        if phases is not None:
            self._proven("phases", phases)
            kind, common = Phased, common | {"optimiser": kind, "phases": phases or None}
        if hyper == "paper":
            return kind.paper(**common)
        if self.moments is not None:
            self._proven("moment", self.moments)
        ratio = self.noise_ratio
        if ratio is None:  # honest users' noise alone must protect
            ratio = usual_ratio(self.encoding, self.honest_fraction)

        def made(ratio: float) -> Optimiser[Any]:
            adapted: dict[str, Any] = {"trust": trust, "noise_ratio": ratio, **common}
            adapted |= {"encoding": self.encoding, "rotation": self.rotation}
            adapted["honest_fraction"] = self.honest_fraction
            if self.choose == "practice":
                return practical(optimiser(name, self.unit), **adapted)
            if self.moments is not None and issubclass(kind, FirstOrder):
                return heavy_tails.calibrated(kind, moments=self.moments, **adapted)
            return kind.calibrated(**adapted)

        if self.max_bits is not None:
            return self._within(self.max_bits, made, ratio)
        if self.noise_ratio is not None or self.encoding is not None:
            return made(ratio) if self.noise_ratio is not None else at_least(made, ratio)
        # With few users noise near the central Gaussian's takes up to millions of bits.
        tried = []
        for factor in FACTORS:
            tried.append(made(factor * ratio))
            bits = [mean.sum.bits for mean, _ in _means(tried[-1])]
            if factor > 1:
                why = f"{factor * ratio:.4g}: less takes over {SANE_BITS} bits per coordinate"
                tried[-1].choices["noise_ratio"] = why
            if max(bits) <= SANE_BITS:
                return tried[-1]
        # None is sane: the fewest bits, whatever the noise.
        return min(tried, key=lambda each: max(mean.sum.bits for mean, _ in _means(each)))

    def _printed(self, hyper: str) -> bool:
        """Whether the paper's formulas are asked for.

        Raises:
            ParameterError: neither they nor calibrated ones are, or with what they do not take.
        """
        one_of("hyper", hyper, _HYPER)
        own = (self.noise_ratio, self.max_bits, self.encoding, self.honest_fraction)
        if hyper == "paper" and own != (None, None, None, 1.0):
            allowed = "used without noise_ratio, max_bits, encoding, honest_fraction"
            raise ParameterError("hyper", hyper, allowed)
        return hyper == "paper"

    def _proven(self, name: str, value: object) -> None:
        """Refuse what rests on proven bounds where parameters are tuned.

        Raises:
            ParameterError: parameters are tuned.
        """
        if self.choose == "practice":
            raise ParameterError(name, value, "used with choose='bound' (--choose bound)")

    def central(self, mechanism: str, n: int, *, phases: int | None = None, **given: Any) -> Any:
        """A curator's optimiser by name; it gets the moments, or is told to estimate them.

        Args:
            mechanism: as registered, "-perturbation" left out if wanted; or GRADIENT: the descent
                of the shuffle model with a curator's Gaussian noise.
            n: rows, or persons.
            phases: over disjoint rows, as for `protocol`.
            given: as for its `calibrated`; of GRADIENT as for `paid`.

        Raises:
            ParameterError: an unknown name, or what the algorithm refuses.
        """
        if mechanism == GRADIENT:
            if self.privacy.delta == 0:
                allowed = "above 0 with mechanism 'gradient'; at 0 take objective or output"
                raise ParameterError("delta", 0.0, allowed)
            given |= {"trust": Trust.CENTRAL, "phases": phases}
            made = self.paid(DESCENTS[self.unit], n, **given)
            bounds = isinstance(made, ChosenBounds)
            return CuratedBounds(made) if bounds else Baseline(made, Trust.CENTRAL)
        kind: type[Optimiser[Any]]
        name, kind = mechanism_of(mechanism, self.unit)
        if phases is not None:
            name, given = f"{name} in phases", given | {"optimiser": kind, "phases": phases or None}
            kind = CuratedPhases
        for key, value in self.tails.items():
            if key not in kind.takes:
                raise ParameterError(key, value, f"left out: {name} does not take it")
        common: dict[str, Any] = {"n": n, "problem": self.problem, "privacy": self.privacy}
        return kind.calibrated(**common, **self.tails, **given)

    def _within(
        self, bits: float, make: Callable[[float], Optimiser[Any]], ratio: float
    ) -> Optimiser[Any]:
        """With at most `bits` per user, coordinate and round; the least noise that they allow.

        More noise is taken where another ratio changes the batch, too.
        """
        made = make(ratio)
        for attempt in range(_PASSES):
            # Another ratio may choose other batches, which need another ratio; and `fewest_bits`
            # may miss by some bits.
            specs = (
                SumSpec(
                    mean.batch, self.d, self.privacy, repeats, self.honest_fraction, self.rotation
                )
                for mean, repeats in _means(made)
            )
            plans = (choose(spec, None, bits, self.encoding)[1] for spec in specs)
            ratio = max(plan.noise_ratio for plan in plans)
            # A little more each time: without it two batches could follow each other for ever.
            made = make(ratio * _CREEP**attempt)
            if all(mean.sum.bits <= bits for mean, _ in _means(made)):
                return made
        raise ParameterError(
            "max_bits", bits, "larger, or used with --batch: no ratio of the noise was found to fit"
        )


@dataclass(frozen=True)
class Trained:
    """What a run gave, opened: the model alone, and what was chosen privately around it.

    Attributes:
        theta: the parameters.
        low, high: bounds of the columns that had none; None: nothing was chosen.
        selection: of one model among several; None: there was one.
    """

    theta: Floats
    low: Floats | None = None
    high: Floats | None = None
    selection: Selection | None = None

    @classmethod
    def of(cls, value: Any) -> "Trained":
        """Of the value of a run."""
        low, high, selection = None, None, None
        # Bounds lie outside: what is selected is selected on rows within them.
        if isinstance(value, WithBounds):
            low, high, value = value.low, value.high, value.value
        if isinstance(value, Selection):
            selection, value = value, value.theta
        return cls(np.asarray(value), low, high, selection)


def _means(made: Any) -> list[tuple[NoisyMean, int]]:
    """The private averages of an optimiser, with the rounds a user answers in."""
    phases = made.phases if isinstance(made, Phased) else (made,)
    return [(phase.mean, phase.rounds_per_user) for phase in phases]
