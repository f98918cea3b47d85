"""From names and numbers to an optimiser: linear models on an l2 ball, and their baselines."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from protocols.central.optimiser import CentralOptimiser
from protocols.optimisation import practice
from protocols.optimisation.base import Optimiser
from protocols.optimisation.phases import Phased
from protocols.optimisation.setting import NOISE_RATIO
from protocols.problems import instances
from protocols.problems.domains import L2Ball
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.moments import Moments
from protocols.problems.multiclass import MultiClass, OneVsRestHinge, Softmax
from protocols.problems.problem import Problem
from protocols.selection.curator import CuratedSelection
from protocols.selection.models import Selected, grid
from protocols.shuffle import heavy_tails
from protocols.shuffle.noisy_mean import NoisyMean
from protocols.shuffle.optimiser import FirstOrder, optimiser, optimisers
from protocols.shuffle.practice import practical
from shuffle_sim.arrays import Floats
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError, integer, positive
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import SumSpec
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.encodings import SANE_BITS, choose
from shuffle_sim.registry import registered, registered_kinds

RADIUS = {True: 20.0, False: 5.0}
"""Of the ball, where not given: for losses of classes, and for others."""

SEVERAL: dict[str, type[MultiClass]] = {"logistic": Softmax, "hinge": OneVsRestHinge}
"""Losses of more than two classes, by that of two."""

_OF_TRAINER = ("radius", "ridge", "norm_bound")
SELECTABLE = (*_OF_TRAINER, "rounds", "eta", "smoothing")
"""Parameters among whose values a paid selection chooses."""
_RATIOS = (1.0, 1.2, 1.5, 2.0, 3.0)
_PASSES, _CREEP = 12, 1.01  # of the search for a noise ratio that fits the bits
_HYPER = ("calibrated", "paper")


@dataclass(frozen=True)
class Trainer:
    """Makes protocols that train one linear model, and runs their baselines.

    Attributes:
        loss: of the margins.
        d: parameters.
        privacy: of the whole run.
        radius: of the ball that the parameters are in; None: by RADIUS.
        ridge: public.
        norm_bound: gradients are clipped to it on the user's side; None: the loss's own bound.
        noise_ratio: of the noise over the central Gaussian's; None: NOISE_RATIO, or as `max_bits`
            allows.
        max_bits: per user, coordinate and round, instead.
        encoding: of a sum's numbers as messages; None: that of the fewest bits.
        honest_fraction: of the users that add their noise.
        moments: of the gradients; clips are planned for them.
        pilot: whether they estimate moments by a private histogram instead.
        records: nominal number of records of a person, public; the users are then persons. None:
            each user is one record.
        choose: "bound" for the parameters of the smallest proven bound; "practice" for those tuned
            on synthetic data, of which no bound is proven.
        intercept: value of the last feature in all rows, public; tuned steps center the others.
    """

    loss: LinearLoss | MultiClass
    d: int
    privacy: Privacy
    radius: float | None = None
    ridge: float = 0.0
    norm_bound: float | None = None
    noise_ratio: float | None = None
    max_bits: int | None = None
    encoding: str | None = None
    honest_fraction: float = 1.0
    moments: Moments | None = None
    pilot: bool = False
    records: int | None = None
    choose: str = "bound"
    intercept: float | None = None

    @classmethod
    def of(
        cls,
        loss: str,
        d: int,
        privacy: Privacy,
        *,
        quantile: float | None = None,
        threshold: float | None = None,
        moment: str | None = None,
        classes: int = 2,
        **others: Any,
    ) -> "Trainer":
        """With the loss registered under a name; labels lie in [-1, 1], or are places of classes.

        Parameters of the loss that are None are not given. `moment` is k:G_k, k:G_k:G_2 or
        k:G_k:G_2:G_1. With more than two `classes` there are d parameters for each.

        Raises:
            ParameterError: unknown loss, or a parameter that it does not have.
        """
        kind = registered("loss", loss)
        known = {each.name for each in dataclasses.fields(kind)}
        given = {
            key: value
            for key, value in (("quantile", quantile), ("threshold", threshold))
            if value is not None
        }
        for key, value in given.items():
            if key not in known:
                raise ParameterError(key, value, f"given with a loss that has it: {loss} has none")
        if moment is not None:
            others["moments"] = _moments(moment)
        if classes > 2:
            if loss not in SEVERAL:
                raise ParameterError("loss", loss, f"{' or '.join(SEVERAL)}, for several classes")
            return cls(SEVERAL[loss](classes), d * classes, privacy, **others)
        return cls(
            kind(**given, **({"labels": 1.0} if "labels" in known else {})), d, privacy, **others
        )

    def __post_init__(self) -> None:
        """Check what no protocol checks."""
        practice.chosen_by(self.choose)
        if not isinstance(self.loss, LinearLoss | MultiClass):
            raise ParameterError("loss", self.loss, "a LinearLoss")
        if self.noise_ratio is not None and self.max_bits is not None:
            raise ParameterError(
                "noise_ratio, max_bits",
                (self.noise_ratio, self.max_bits),
                "given one of the two, not both",
            )
        if self.max_bits is not None:
            integer("max_bits", self.max_bits)

    @property
    def tails(self) -> dict[str, Any]:
        """What is known of heavy tails, as central algorithms take it."""
        known: dict[str, Any] = {}
        if self.moments is not None:
            known["moments"] = self.moments
        if self.pilot:
            known["pilot"] = True
        return known

    @property
    def unit(self) -> Unit:
        """What a user is."""
        return Unit.RECORD if self.records is None else Unit.PERSON

    @property
    def problem(self) -> Problem:
        """What is minimised."""
        if self.radius is not None:
            radius = positive("radius", self.radius)
        else:
            proven = RADIUS[self.loss.classification]
            radius = proven if self.choose == "bound" else practice.RADIUS
        return Problem(
            self.loss,
            L2Ball(self.d, radius),
            ridge=self.ridge,
            norm_bound=self.norm_bound,
            records=1 if self.records is None else self.records,
            constant=self.intercept,
        )

    def within(self, privacy: Privacy) -> "Trainer":
        """The same with another budget."""
        return dataclasses.replace(self, privacy=privacy)

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
        if self.unit is Unit.PERSON:
            raise ParameterError("select", list(select), "left out where users are persons")
        for key in select:
            if key not in SELECTABLE:
                raise ParameterError("select", key, f"one of {', '.join(SELECTABLE)}")

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
        for key in select:
            if key not in _OF_TRAINER:
                allowed = f"one of {', '.join(_OF_TRAINER)}, with --trust central"
                raise ParameterError("select", key, allowed)

        def make(privacy: Privacy, **values: float) -> CentralOptimiser[Any]:
            own: dict[str, Any] = values
            return dataclasses.replace(self, privacy=privacy, **own).central(mechanism, n)

        return CuratedSelection.calibrated(grid(select, make), loss=self.loss, privacy=self.privacy)

    def for_records(self) -> "Trainer":
        """The same for users of one record each."""
        return dataclasses.replace(self, records=None)

    def proven(self) -> "Trainer":
        """The same with parameters of the smallest proven bound."""
        return dataclasses.replace(self, choose="bound")

    @property
    def clips(self) -> bool:
        """Whether gradients may be clipped: no proven bound of the excess loss holds then."""
        return self.problem.lipschitz < self.loss.lipschitz(self.problem.domain.radius)

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
            proven = dataclasses.replace(self, choose="bound")  # nothing is tuned for it
            return proven.protocol(name, n, hyper=hyper, phases=phases, trust=trust, **given)
        if hyper not in _HYPER:
            raise ParameterError("hyper", hyper, f"one of {', '.join(_HYPER)}")
        common: dict[str, Any] = {"n": n, "problem": self.problem, "privacy": self.privacy, **given}
        if hyper == "paper":
            own = (phases, self.noise_ratio, self.max_bits, self.encoding, self.honest_fraction)
            if own != (None, None, None, None, 1.0):
                allowed = "used without phases, noise_ratio, max_bits, encoding, honest_fraction"
                raise ParameterError("hyper", hyper, allowed)
            self._proven("hyper", hyper)
            return kind.paper(**common)
        if phases is not None:
            self._proven("phases", phases)
            kind, common = Phased, common | {"optimiser": kind, "phases": phases or None}
        if self.moments is not None:
            self._proven("moment", self.moments)
        ratio = self.noise_ratio
        if ratio is None:  # honest users' noise alone must protect
            ratio = NOISE_RATIO / math.sqrt(self.honest_fraction)

        def made(ratio: float) -> Optimiser[Any]:
            adapted: dict[str, Any] = {"trust": trust, "noise_ratio": ratio, **common}
            adapted |= {"encoding": self.encoding, "honest_fraction": self.honest_fraction}
            if self.choose == "practice":
                return practical(optimiser(name, self.unit), **adapted)
            if self.moments is not None and issubclass(kind, FirstOrder):
                return heavy_tails.calibrated(kind, moments=self.moments, **adapted)
            return kind.calibrated(**adapted)

        if self.max_bits is not None:
            return self._within(self.max_bits, made, ratio)
        if self.noise_ratio is not None or self.encoding is not None:
            return made(ratio)
        # With few users noise near the central Gaussian's takes up to millions of bits.
        tried = []
        for factor in _RATIOS:
            tried.append(made(factor * ratio))
            bits = [mean.sum.bits for mean, _ in _means(tried[-1])]
            if factor > 1:
                why = f"{factor * ratio:.4g}: less takes over {SANE_BITS} bits per coordinate"
                tried[-1].choices["noise_ratio"] = why
            if max(bits) <= SANE_BITS:
                return tried[-1]
        return min(tried, key=lambda each: max(mean.sum.bits for mean, _ in _means(each)))

    def _proven(self, name: str, value: object) -> None:
        """Refuse what rests on proven bounds where parameters are tuned.

        Raises:
            ParameterError: parameters are tuned.
        """
        if self.choose == "practice":
            raise ParameterError(name, value, "used with choose='bound' (--choose bound)")

    def central(self, mechanism: str, n: int) -> CentralOptimiser[Any]:
        """The registered central algorithm of a name, "-perturbation" left out if wanted.

        It gets the moments, or is told to estimate them.

        Raises:
            ParameterError: an unknown name, or what the algorithm refuses.
        """
        every = registered_kinds("algorithm", CentralOptimiser)
        kinds = {name: kind for name, kind in every.items() if kind.unit is self.unit}
        full = f"{mechanism}-perturbation"
        name = full if full in kinds else mechanism
        if name not in kinds:
            raise ParameterError("mechanism", mechanism, f"one of {', '.join(kinds)}")
        for key, value in self.tails.items():
            if key not in kinds[name].takes:
                raise ParameterError(key, value, f"left out: {name} does not take it")
        problem, privacy = self.problem, self.privacy
        made: CentralOptimiser[Any] = kinds[name].calibrated(
            n=n, problem=problem, privacy=privacy, **self.tails
        )
        return made

    def neighbours(self, n: int) -> dict[str, tuple[Floats, Floats]]:
        """Tables of n rows that differ in one, by name, for audits."""
        return instances.neighbours(integer("n", n), self.d)

    def risk(self, theta: Floats, rows: Floats) -> float:
        """The mean loss, without any ridge."""
        return float(self.loss.values(theta, rows).mean())

    def constant(self, rows: Floats) -> Floats:
        """The margins, one for each class if there are several, with the least mean loss on `rows`.

        Among constants, to 1e-6, or about 1e-4 for several classes.
        """
        labels, reach, loss = rows[:, -1], self.problem.domain.radius, self.loss
        if isinstance(loss, MultiClass):
            shares = np.bincount(labels.astype(int), minlength=loss.classes) / len(labels)
            marks = np.eye(loss.classes, dtype=bool)

            def mean(margins: Floats) -> float:
                return float(shares @ loss.value(np.tile(margins, (len(marks), 1)), marks))

            found = scipy.optimize.minimize(
                mean,
                np.zeros(loss.classes),
                bounds=[(-reach, reach)] * loss.classes,
                method="Powell",
            )
            return np.asarray(found.x)

        def mean_loss(margin: float) -> float:
            return float(loss.value(np.full_like(labels, margin), labels).mean())

        found = scipy.optimize.minimize_scalar(
            mean_loss, bounds=(-reach, reach), method="bounded", options={"xatol": 1e-6}
        )
        return np.array([found.x])

    def _within(
        self, bits: int, make: Callable[[float], Optimiser[Any]], ratio: float
    ) -> Optimiser[Any]:
        """With at most `bits` per user, coordinate and round; the least noise that they allow.

        More noise is taken where another ratio changes the batch, too.
        """
        made = make(ratio)
        for attempt in range(_PASSES):
            # Another ratio may choose other batches, which need another ratio; and `fewest_bits`
            # may miss by some bits.
            specs = (
                SumSpec(mean.batch, self.d, self.privacy, repeats, self.honest_fraction)
                for mean, repeats in _means(made)
            )
            plans = (choose(spec, None, bits, self.encoding)[1] for spec in specs)
            ratio = max(plan.noise_ratio for plan in plans)
            made = make(ratio * _CREEP**attempt)
            if all(mean.sum.bits <= bits for mean, _ in _means(made)):
                return made
        raise ParameterError(
            "max_bits", bits, "larger, or used with --batch: no ratio of the noise was found to fit"
        )


def _moments(text: str) -> Moments:
    """k:G_k, k:G_k:G_2 or k:G_k:G_2:G_1."""
    try:
        numbers = [float(each) for each in text.split(":")]
    except ValueError:
        numbers = []
    if not 2 <= len(numbers) <= 4:
        raise ParameterError("moment", text, "K:G, K:G:G2 or K:G:G2:G1, such as 4:1.5:1.0")
    return Moments(*numbers)


def _means(made: Any) -> list[tuple[NoisyMean, int]]:
    """The private averages of an optimiser, with the rounds a user answers in."""
    phases = made.phases if isinstance(made, Phased) else (made,)
    return [(phase.mean, phase.rounds_per_user) for phase in phases]
