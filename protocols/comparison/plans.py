"""Plans of sums: the one that is asked for, the trade-off around it, and what it is beside."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from protocols.comparison.methods import Method, Methods
from protocols.sums.binomial_sum import BinomialSum
from protocols.sums.laplace_sum import ERRORS, laplace_ratio
from protocols.sums.planned import PlannedSum
from protocols.sums.vector_sum import VectorSum
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.bounds import central, gaussian, paper
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.laplace_planner import ERROR
from shuffle_sim.privacy.planner import Plan, SumSpec
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.encodings import at_least, choose, encodings, robust, usual_ratio
from shuffle_sim.registry import registered

_CURVE = (1.01, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0)


@dataclass(frozen=True)
class PlanRow:
    """A plan beside others, with what one malicious user does to its sum."""

    encoding: str
    parameters: Mapping[str, Any]
    bits_per_user_and_coordinate: float
    bits_per_user_and_round: int
    noise_ratio: float
    best_ratio: float
    error_ratio: float
    malicious_user_moves: float
    std: float
    epsilon: float

    @classmethod
    def of(cls, name: str, plan: Plan) -> "PlanRow":
        """Of a plan for the sum of this name."""
        kind = registered("protocol", name)
        moved = kind.planned(plan).randomizer.manipulation(1, plan.spec.n)
        errors = plan.noise_ratio, plan.best_ratio, plan.error_ratio, moved
        bits = plan.bits, plan.report_bits
        return cls(kind.encoding, plan.parameters, *bits, *errors, plan.std, plan.epsilon)


def searched(
    spec: SumSpec,
    noise_ratio: float | None = None,
    max_bits: float | None = None,
    encoding: str | None = None,
    objective: str = "bits",
) -> tuple[str, Plan, list[PlanRow]]:
    """The sum and plan that are asked for, and the trade-off of bits and noise around them.

    Args:
        spec: what is summed.
        noise_ratio: over the central Gaussian's; or
        max_bits: per user, coordinate and round; neither: the usual noise.
        encoding: None: the best of all.
        objective: "bits", or "error" for sums too of which a malicious user moves much more.

    Raises:
        ParameterError: noise and bits are both given, or no plan has so little of them.
    """
    scalar = spec.d == 1
    nearest = objective == "error" and scalar
    plan = partial(choose, spec, encoding=encoding, scalar=scalar, objective=objective)
    if noise_ratio is not None or max_bits is not None:
        name, chosen = plan(noise_ratio=noise_ratio, max_bits=max_bits)
    elif nearest:
        name, chosen = plan(noise_ratio=ERROR * laplace_ratio(spec))
    else:
        usual = usual_ratio(encoding, spec.honest / spec.n, scalar)
        name, chosen = at_least(lambda ratio: plan(noise_ratio=ratio), usual)
    least = laplace_ratio(spec) if nearest else math.sqrt(spec.n / spec.honest)
    curve = {}
    for factor in ERRORS if nearest else _CURVE:
        with suppress(ParameterError):  # more noise than one encoding can do without
            sum_name, each = plan(noise_ratio=factor * least)
            # With few users, or few bits, ratios coincide.
            curve[sum_name, each.bits, f"{each.noise_ratio:.4f}"] = PlanRow.of(sum_name, each)
    return name, chosen, list(curve.values())


@dataclass(frozen=True)
class PaperSum:
    """The paper's constants for a sum: bits per coordinate, noise over the sum's; or why not."""

    bits: float | None = None
    ratio: float | None = None
    refused: str | None = None


@dataclass(frozen=True)
class NoiseReport:
    """Standard errors: of a sum of all users, of central noises, and by the paper's constants."""

    standard_error_of_sum: float
    central: float
    best_central: float
    best_central_noise: str
    paper: PaperSum

    @classmethod
    def of(
        cls, protocol: PlannedSum, n: int, d: int, privacy: Privacy, rounds: int = 1
    ) -> "NoiseReport":
        """Of a sum of n vectors, whose users answer in so many rounds."""
        error, reach = protocol.standard_error, protocol.sensitivity
        try:
            constants = VectorSum.paper(n=n, d=d, privacy=privacy)
            theirs = PaperSum(constants.bits, constants.standard_error / error)
        except ParameterError as why:
            theirs = PaperSum(refused=str(why))
        least, noise = central.best(privacy.epsilon, privacy.delta, d, rounds)
        normal = gaussian.sigma(privacy.epsilon, privacy.delta, reach) * rounds**0.5
        return cls(error, normal, least * reach, noise, theirs)


def planned_methods(plan: Plan) -> Methods:
    """What a plan is compared with: errors are per coordinate and round, at sensitivity 1.

    Bits are per user, coordinate and round.
    """
    spec = plan.spec
    cases = [
        ("Gaussian", trust, spec.central * trust.noise(spec.n))
        for trust in (Trust.CENTRAL, Trust.LOCAL)
    ]
    privacy = spec.privacy.epsilon, spec.privacy.delta
    least, name = central.best(*privacy, spec.d, spec.rounds)
    if name != "Gaussian":
        cases.insert(1, (f"{name}, the least noise", Trust.CENTRAL, least))
    found = [
        Method(str(trust), setting, trust, bits=trust.unit_bits, error=std)
        for setting, trust, std in cases
    ]
    return Methods([*found, *_encoded(plan), _planned_by_paper(plan)])


def _encoded(plan: Plan) -> list[Method]:
    """Every encoding at the plan's noise ratio."""
    spec, found = plan.spec, []
    scalar = spec.d == spec.rounds == 1
    for encoding, name in encodings(scalar).items():
        if not robust(name):
            continue  # the plan itself may be of it
        case = f"encoding {encoding}", f"{plan.noise_ratio:.4g} x central", Trust.SHUFFLE

        def numbers(encoding: str = encoding) -> dict[str, Any]:
            _, each = choose(spec, plan.noise_ratio, None, encoding, scalar)
            return {"bits": each.bits, "error": each.std}

        found.append(Method.tried(*case, numbers))
    return found


def _planned_by_paper(plan: Plan) -> Method:
    """The binomial sum with the paper's constants."""
    spec, privacy = plan.spec, plan.spec.privacy

    def numbers() -> dict[str, Any]:
        each, share = (
            (privacy.epsilon, privacy.delta)
            if spec.rounds == 1
            else paper.interactive_budget(privacy.epsilon, privacy.delta, spec.rounds)
        )
        constants = (
            paper.lemma_3_1(spec.n, each, share)
            if spec.d == 1
            else paper.theorem_3_2(spec.n, spec.d, each, share)
        )
        # b p (1 - p) of the noise and 1/4 of the rounding of each user, in steps.
        variance = spec.n * (constants.b * constants.p * (1 - constants.p) + 0.25)
        error = math.sqrt(variance) / constants.g
        return {"bits": constants.g + constants.b, "error": error, "paper": True}

    return Method.tried(BinomialSum.family, "the paper's constants", Trust.SHUFFLE, numbers)
