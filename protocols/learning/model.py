"""What is trained: a linear model on an l2 ball, its privacy, and how a private sum carries it.

People and commands name losses, mechanisms and moments; here the names become things.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy

from protocols.optimisation import practice
from protocols.optimisation.base import Optimiser
from protocols.problems import instances
from protocols.problems.domains import Domain, L2Ball
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from protocols.problems.moments import Moments
from protocols.problems.multiclass import MultiClass
from protocols.problems.problem import Problem
from protocols.problems.weighted import Weighted
from shuffle_sim.arrays import Floats
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError, integer, one_of, positive
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.registry import loaded, names, registered, registered_kinds

RADIUS = {True: 20.0, False: 5.0}
"""Of the ball, where not given: for losses of classes, and for others."""
GRADIENT = "gradient"
"""Name of the curator's mechanism that takes the rounds of the tuned descent of all users."""


@dataclass(frozen=True)
class Model:
    """A linear model that is to be trained, and within what budget.

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
        rotation: public seed of a rotation of the gradients; None: there is none.
        honest_fraction: of the users that add their noise.
        moments: of the gradients; clips are planned for them.
        pilot: whether they estimate moments by a private histogram instead.
        records: nominal number of records of a person, public; the users are then persons. None:
            each user is one record.
        choose: "bound" for the parameters of the smallest proven bound; "practice" for those tuned
            on synthetic data, of which no bound is proven.
        intercept: value of the last feature in all rows, public; tuned steps center the others.
        domain: of the parameters, in place of the ball.
    """

    loss: Loss
    d: int
    privacy: Privacy
    radius: float | None = None
    ridge: float = 0.0
    norm_bound: float | None = None
    noise_ratio: float | None = None
    max_bits: float | None = None
    encoding: str | None = None
    rotation: int | None = None
    honest_fraction: float = 1.0
    moments: Moments | None = None
    pilot: bool = False
    records: int | None = None
    choose: str = "bound"
    intercept: float | None = None
    domain: Domain | None = None

    @classmethod
    def of(
        cls,
        loss: str,
        d: int,
        privacy: Privacy,
        *,
        moment: str | None = None,
        classes: int = 2,
        **others: Any,
    ) -> Self:
        """With the loss registered under a name; labels lie in [-1, 1], or are places of classes.

        Args:
            loss: its name.
            d: parameters; with more than two classes for each of them.
            privacy: of the whole run.
            moment: k:G_k, k:G_k:G_2 or k:G_k:G_2:G_1.
            classes: of the labels.
            others: attributes, and parameters of the loss; those that are None are not given.

        Raises:
            ParameterError: unknown loss, or a parameter that it does not have.
        """
        if moment is not None:
            others["moments"] = moments_of(moment)
        known = {each.name for each in dataclasses.fields(cls)}
        own = {name: others.pop(name) for name in [*others] if name not in known}
        outputs = classes if classes > 2 else 1
        return cls(named_loss(loss, classes=classes, **own), d * outputs, privacy, **others)

    def __post_init__(self) -> None:
        """Check what no protocol checks."""
        one_of("choose", self.choose, practice.CHOOSE)
        if not isinstance(self.loss, LinearLoss | MultiClass | Weighted):
            raise ParameterError("loss", self.loss, "a LinearLoss")
        if self.noise_ratio is not None and self.max_bits is not None:
            raise ParameterError(
                "noise_ratio, max_bits",
                (self.noise_ratio, self.max_bits),
                "given one of the two, not both",
            )
        if self.max_bits is not None:
            positive("max_bits", self.max_bits)

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
    def classification(self) -> bool:
        """Whether labels are classes."""
        loss = self.loss.loss if isinstance(self.loss, Weighted) else self.loss
        assert isinstance(loss, LinearLoss | MultiClass)
        return loss.classification

    @property
    def unit(self) -> Unit:
        """What a user is."""
        return Unit.RECORD if self.records is None else Unit.PERSON

    @property
    def problem(self) -> Problem:
        """What is minimised."""
        return Problem(
            self.loss,
            self._ball() if self.domain is None else self.domain,
            ridge=self.ridge,
            norm_bound=self.norm_bound,
            records=1 if self.records is None else self.records,
            constant=self.intercept,
        )

    def _ball(self) -> L2Ball:
        if self.radius is not None:
            return L2Ball(self.d, positive("radius", self.radius))
        # Proven bounds grow with the radius: a small one, unless steps are tuned.
        proven = RADIUS[self.classification]
        return L2Ball(self.d, proven if self.choose == "bound" else practice.RADIUS)

    def within(self, privacy: Privacy) -> Self:
        """The same with another budget."""
        return dataclasses.replace(self, privacy=privacy)

    def for_records(self) -> Self:
        """The same for users of one record each."""
        return dataclasses.replace(self, records=None)

    def proven(self) -> Self:
        """The same with parameters of the smallest proven bound."""
        return dataclasses.replace(self, choose="bound")

    @property
    def clips(self) -> bool:
        """Whether gradients may be clipped: no proven bound of the excess loss holds then."""
        return self.problem.lipschitz < self.loss.lipschitz(self.problem.domain.radius)

    def neighbours(self, n: int) -> dict[str, tuple[Floats, Floats]]:
        """Tables of n rows or persons that differ in one, by name, for audits."""
        found = instances.neighbours(integer("n", n), self.loss.columns(self.d) - 1)
        if (many := self.records) is None:
            return found
        return {
            name: (np.repeat(one[:, None], many, axis=1), np.repeat(other[:, None], many, axis=1))
            for name, (one, other) in found.items()
        }

    def risk(self, theta: Floats, rows: Floats) -> float:
        """The mean loss, without any ridge."""
        return float(self.loss.values(theta, rows).mean())

    def constant(self, rows: Floats) -> Floats:
        """The margins, one for each class if there are several, with the least mean loss on `rows`.

        Among constants, to 1e-6, or about 1e-4 for several classes.
        """
        labels, reach, loss = rows[:, -1], self.problem.domain.radius, self.loss
        if isinstance(loss, MultiClass):
            # Constants see no feature: shares of the classes are all of the data that counts.
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

        assert isinstance(loss, LinearLoss)

        def mean_loss(margin: float) -> float:
            return float(loss.value(np.full_like(labels, margin), labels).mean())

        found = scipy.optimize.minimize_scalar(
            mean_loss, bounds=(-reach, reach), method="bounded", options={"xatol": 1e-6}
        )
        return np.array([found.x])


def mechanism_of(name: str, unit: Unit = Unit.RECORD) -> tuple[str, type[Optimiser[Any]]]:
    """The registered central algorithm of a name, "-perturbation" left out if wanted.

    Raises:
        ParameterError: there is none for the unit.
    """
    every = registered_kinds("algorithm", Optimiser)
    kinds = {key: kind for key, kind in every.items() if kind.unit is unit}
    full = f"{name}-perturbation"
    key = full if full in kinds else name
    if key not in list(kinds):  # a list: what is not a name need not be hashable
        raise ParameterError("mechanism", name, f"one of {', '.join([GRADIENT, *kinds])}")
    return key, kinds[key]


def named_loss(
    name: str | LinearLoss,
    features: float = 1.0,
    *,
    classes: int = 2,
    labels: float | None = 1.0,
    classification: bool | None = None,
    **own: Any,
) -> LinearLoss | MultiClass:
    """The loss registered under a name, also a third party's.

    Args:
        name: as registered; or a loss, whose bounds are put in place of its own. With several
            classes that of their joint loss is the same.
        features: l2 bound of the features.
        classes: of the labels; more than two have a joint loss, a registered `multiclass_loss`.
        labels: bound of labels that are numbers; None: none.
        classification: whether labels must be classes, or must be numbers; None: either.
        own: parameters of the loss; None: not given.

    Raises:
        ParameterError: an unknown loss, one for other labels, or a parameter that it does not have.
    """
    kind: Any = type(name) if isinstance(name, LinearLoss) else registered("loss", name)
    if classification is not None and kind.classification is not classification:
        every = loaded("loss").items()
        fit = [key for key, each in every if each.classification is classification]
        raise ParameterError("loss", name, f"one of {', '.join(fit)}")
    if classes > 2:
        if name not in names("multiclass_loss"):
            allowed = f"{' or '.join(names('multiclass_loss'))}, for several classes"
            raise ParameterError("loss", name, allowed)
        several: MultiClass = registered("multiclass_loss", name)(classes, features)
        return several
    known = parameters_of(kind)
    given = {key: value for key, value in own.items() if value is not None}
    for key, value in given.items():
        if key not in known:
            raise ParameterError(key, value, f"given with a loss that has it: {name} has none")
    if "labels" in known:
        given["labels"] = labels
    if isinstance(name, LinearLoss):
        return dataclasses.replace(name, features=features, **given)
    made: LinearLoss = kind(features=features, **given)
    return made


def parameters_of(loss: Any) -> list[str]:
    """The names of what a loss is made with, its bound of features left out."""
    return [each.name for each in dataclasses.fields(loss) if each.name != "features"]


def moments_of(text: str) -> Moments:
    """k:G_k, k:G_k:G_2 or k:G_k:G_2:G_1."""
    try:
        numbers = [float(each) for each in text.split(":")]
    except ValueError:
        numbers = []
    if not 2 <= len(numbers) <= 4:
        raise ParameterError("moment", text, "K:G, K:G:G2 or K:G:G2:G1, such as 4:1.5:1.0")
    return Moments(*numbers)
