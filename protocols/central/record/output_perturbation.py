"""Output perturbation: minimise without privacy, certify, add noise once.

Lowy and Razaviyayn (2021), Algorithms 1 to 8, with the mends of docs/theory/output-perturbation.md:
the certificate in place of an expected gap, the sensitivity of the data part alone, exact noise.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import scipy

from protocols.central.record.minimum import (
    CERTIFIED,
    Minimum,
    OneRelease,
    demand_case,
    shown,
)
from protocols.central.record.output_bound import Bound, best_bound, noise_of
from protocols.central.record.printed import printed
from protocols.erm.adversarial import Perturbation, RobustRisk
from protocols.erm.groups import GroupRisk
from protocols.erm.one_vs_rest import OneVsRestRisk
from protocols.erm.payoff import Payoff
from protocols.erm.risk import Risk
from protocols.erm.saddle import SaddleRisk
from protocols.erm.solver import THETA
from protocols.erm.solver.minimise import ROUNDING
from protocols.erm.solver.public import check_radius, least_radius, named
from protocols.erm.tilted import TiltedRisk
from protocols.optimisation.choices import Choices
from protocols.optimisation.search import least
from protocols.optimisation.setting import Setting
from protocols.problems.multiclass import OneVsRestHinge
from protocols.problems.problem import Problem
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer, positive, real
from shuffle_sim.privacy.bounds import paper
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.mechanisms import Gaussian, L2Laplace, Noise

_STATED = "the payoff is convex in w, concave in v and no steeper than stated: held at points"
_RIDGES = np.geomspace(1e-9, 1e3, 241)


class OutputPerturbation(OneRelease):
    """A certified minimiser plus noise for the promised radius: any solver, one release.

    Rows are those of the problem's loss; the result is theta, shape (d,). Formal guarantee: that of
    the noise at sensitivity D + 2 r, for any rows and any solver; D is that of exact minimisers, r
    the certified radius. Where the output is not projected, it may lie outside the domain.

    Attributes:
        bound: proven, of the expected excess of the problem's objective.
        radius: r.
        shift: D + 2 r.
        mechanism: the noise.
    """

    takes: ClassVar[tuple[str, ...]] = ("ridge", "noise", "theta", "solver", "population")
    """In place of the problem's ridge; one of NOISES; the promised radius over D; a name, a
    callable `solver(objective) -> w` or a linear model of scikit-learn; whether the bound is of the
    expected loss of new rows. A ridge and a noise not given are those of the least bound."""
    kind: ClassVar[type[Risk]] = Risk
    solver: ClassVar[str] = "newton"
    statistic: Minimum
    mechanism: Noise
    assumptions: tuple[str, ...] = (CERTIFIED,)

    def __init__(
        self,
        *,
        n: int,
        problem: Problem,
        privacy: Privacy,
        risk: Risk,
        mechanism: Noise,
        theta: float = THETA,
        radius: float | None = None,
        projected: bool = True,
        solver: Any = "newton",
        bound: float = math.inf,
        choices: dict[str, str] | None = None,
    ) -> None:
        """Explicit parameters; `calibrated` chooses good ones.

        Args:
            n: rows.
            problem: what is minimised.
            privacy: asked for.
            risk: the problem's, with the ridge that is used.
            mechanism: noise in l2.
            theta: the promised radius over D.
            radius: in place of theta.
            projected: whether the output is projected onto the domain.
            solver: name, callable or scikit-learn estimator.
            bound: proven, of the expected excess.
            choices: what was chosen, and why.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed.
        """
        self.n, self.problem, self.privacy = demand_case(n, privacy), problem, privacy
        self.risk, self.mechanism, self.projected = risk, mechanism, projected
        real("theta", theta, 0.0, 1.0)
        wanted = theta * risk.sensitivity(n)[0] if radius is None else positive("radius", radius)
        self.radius = check_radius(risk, self.n, wanted)
        self.statistic = Minimum(risk, self.radius, self.n, named(solver, risk))
        self.bound, self.choices = bound, dict(choices or {})

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        """The noise, and where the problem has no ridge the ridge, of the least proven bound.

        Over `RealSpace(d)` the problem must have a ridge.
        """
        n, problem, privacy = setting.n, setting.problem, setting.privacy
        noise, population = choices["noise"], choices.get("population", False)
        share = choices["theta"]
        given, kept = cls._own(choices), cls.kept_ridge(problem, choices["ridge"])
        tried = [kept] if kept is not None else _RIDGES.tolist()
        names = [noise] if noise is not None else list(cls._noises(privacy))
        noises = {name: noise_of(name, privacy, problem.d) for name in names}
        names.sort(key=lambda name: noises[name].error(1.0, problem.d))  # of equal bounds the first

        def at(strength: float, name: str) -> tuple[Bound, Risk]:
            risk = cls._kind(problem).of(problem, strength, **given)
            base = problem.ridge if kept is None else strength
            theta = accuracy(risk, n) if share is None else share
            return best_bound(risk, n, noises[name], theta, base, population), risk

        def excess(strength: float, name: str) -> float:
            return at(strength, name)[0].excess

        best, (chosen, name) = least(excess, tried, names)
        if kept is None:  # the grid is coarse: ten points a decade or more
            place = math.log(chosen)
            # 20 points a decade are ln(10)/20 = 0.115 apart: both neighbours are within.
            fine = scipy.optimize.minimize_scalar(
                lambda log: excess(math.exp(log), name), bounds=(place - 0.2, place + 0.2)
            )
            chosen = math.exp(float(fine.x)) if fine.fun < best else chosen
        bound, risk = at(chosen, name)
        why = {
            "ridge": "given" if kept is not None else f"{shown(chosen)}: least proven bound",
            "noise": "given" if noise else f"{name}: least proven bound",
            "projected": f"{bound.projected}: least proven bound",
        }
        return cls(
            n=n,
            problem=problem,
            privacy=privacy,
            risk=risk,
            mechanism=noises[name],
            theta=accuracy(risk, n) if share is None else share,
            projected=bound.projected,
            solver=choices.get("solver", cls.solver),
            bound=bound.excess,
            choices=why,
        )

    @classmethod
    def paper_for(cls, setting: Setting, choices: Choices) -> Self:
        """The paper's ridge, accuracy alpha and noise, for comparison; alpha is certified.

        Which theorem or corollary they are of is in `choices`: the class of the objective, delta
        and the solver decide. The printed sensitivity is kept where it is above the tight one.
        Algorithm 6 and 8 are not private as printed (E7, E13): the mended noise is taken.
        """
        n, problem, privacy = setting.n, setting.problem, setting.privacy
        kind, solver = cls._kind(problem), choices.get("solver", cls.solver)
        make = partial(kind.of, problem, **cls._own(choices))
        as_printed = printed(make, problem, n, privacy, solver)
        noise: Noise = L2Laplace(privacy.epsilon, problem.d)
        if privacy.delta:
            noise = Gaussian(paper.output_sigma(privacy.epsilon, privacy.delta))
        made = cls(
            n=n,
            problem=problem,
            privacy=privacy,
            risk=as_printed.risk,
            mechanism=noise,
            radius=as_printed.radius,
            projected=problem.domain.bounded,
            solver=solver,
            choices=as_printed.why,
        )
        made.statistic = replace(made.statistic, printed=as_printed.sensitivity)
        return made

    @classmethod
    def _kind(cls, problem: Problem) -> type[Risk]:
        one_each = isinstance(problem.loss, OneVsRestHinge) and cls.kind is Risk
        return OneVsRestRisk if one_each else cls.kind

    @classmethod
    def _own(cls, choices: Choices) -> dict[str, Any]:
        """What the kind of risk takes."""
        return {}

    @classmethod
    def _noises(cls, privacy: Privacy) -> Iterator[str]:
        yield "gamma"
        if privacy.delta:
            yield from ("relaxed-gamma", "gaussian")

    @classmethod
    def kept_ridge(cls, problem: Problem, ridge: float | None) -> float | None:
        """The ridge to keep; None: to be chosen."""
        if not isinstance(problem, Problem):
            raise ParameterError("problem", problem, "a Problem(loss, domain, ridge)")
        if ridge is not None:
            return real("ridge", ridge, 0.0, math.inf, closed=(True, False))
        if problem.strong_convexity > 0:
            return problem.ridge
        if not problem.domain.bounded:
            allowed = "above 0, or the domain bounded: else no ridge can be chosen"
            raise ParameterError("ridge", problem.ridge, allowed)
        return None

    @property
    def shift(self) -> float:
        """D + 2 r, for which the noise pays."""
        return self.statistic.sensitivity.value

    def finish(self, released: Floats) -> Floats:
        return self.risk.domain.project(released) if self.projected else released


def accuracy(risk: Risk, n: int) -> float:
    """The promised radius over D: THETA, or what rounding errors leave where D is very small."""
    # `check_radius` lets rounding errors take ROUNDING of a radius; 1e-9 is for its comparison.
    least = least_radius(risk, integer("n", n)) * (1 + 1e-9)
    return min(0.99, max(THETA, least / (ROUNDING * risk.sensitivity(n)[0])))


class TiltedERM(OutputPerturbation):
    """Output perturbation of tilted empirical risk (Algorithm 1, Theorems 5.1 and 5.2).

    Parameters are those of `OutputPerturbation`, and `tilt`, above 0. Formal guarantee: as there,
    with D = (2 L/ridge) C/(n - 1 + C), C = e^(tilt * spread of the losses at one w).
    """

    kind, own_objective = TiltedRisk, True
    takes = (*OutputPerturbation.takes, "tilt")

    @classmethod
    def _own(cls, choices: Choices) -> dict[str, Any]:
        return {"tilt": positive("tilt", choices.get("tilt", 1.0))}


class AdversarialERM(OutputPerturbation):
    """Output perturbation of adversarial training (Algorithm 7) of a linear model.

    Parameters are those of `OutputPerturbation`, and `norm`, `radius` and `corners` of a
    `Perturbation`. Formal guarantee: as there, with the slopes of the perturbed rows.
    """

    kind, own_objective = RobustRisk, True
    takes = (*OutputPerturbation.takes, "norm", "radius", "corners")

    @classmethod
    def _own(cls, choices: Choices) -> dict[str, Any]:
        return {"budget": Perturbation(**choices.of("norm", "radius", "corners"))}


class SaddleERM(OutputPerturbation):
    """Output perturbation of a saddle problem (Algorithm 8): a `Payoff`, or the worst groups.

    Parameters are those of `OutputPerturbation`, and `concavity` and `weights` of a `SaddleRisk`;
    the loss is a `Payoff`, a `Grouped` with rows (x, y, group), or one of two classes, which then
    are the groups. Formal guarantee: as there, with the distance that both players allow, and that
    of a payoff's stated `steepness`.
    """

    kind, solver, own_objective = SaddleRisk, "extragradient", True
    takes = (*OutputPerturbation.takes, "concavity", "weights")

    def __init__(self, **given: Any) -> None:
        """As `OutputPerturbation`."""
        super().__init__(**given)
        if isinstance(self.problem.loss, Payoff):
            self.assumptions = (CERTIFIED, _STATED)

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        if choices["population"]:
            allowed = "False: the worst mixture's expected loss has no bound here"
            raise ParameterError("population", True, allowed)
        return super().calibrated_for(setting, choices)

    @classmethod
    def _kind(cls, problem: Problem) -> type[Risk]:
        if problem.loss.smoothness() is None:
            allowed = "smooth, such as Logistic(): a saddle point of kinks has no proof"
            raise ParameterError("loss", problem.loss, allowed)
        return SaddleRisk if isinstance(problem.loss, Payoff) else GroupRisk

    @classmethod
    def _own(cls, choices: Choices) -> dict[str, Any]:
        return choices.of("concavity", "weights")
