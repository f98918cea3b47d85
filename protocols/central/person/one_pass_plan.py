"""Plans of accelerated phases whose persons answer once, in public batches of their own.

Docs, theory, User level, "One pass": the batches know nothing of the point they are asked at. So
bounds are of new records, and a person's noise is that of one release.
"""

import dataclasses
import math
from typing import Any

from protocols.central.person.accelerated_erm_plan import AcceleratedPhase
from protocols.optimisation.acceleration import Schedule, envelope_error, gap_of
from protocols.optimisation.centring import candidates, squared_unit, with_drift
from protocols.optimisation.choices import Choices
from protocols.optimisation.setting import Setting
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.privacy.mechanisms import Gaussian

BATCHES = ("all", "once")
ROUNDS = sorted({math.ceil(1.3**power) for power in range(33)})
COARSE = (1, 2, 4, 8)
"""The same for all n and m: what serves few persons serves more, and bounds do not rise."""
GROWTH = 2
"""Persons of a phase over those of the phase before; there are several with strong convexity."""

Made = tuple[float, AcceleratedPhase] | None
Planned = dict[tuple[int, float, str, float | None], Made]


def one_pass(
    setting: Setting, made: Planned, count: int, center: str, smoothing: float | None
) -> tuple[float, tuple[AcceleratedPhase, ...]] | None:
    """(bound, phases); None where they cannot work.

    Args:
        setting: what for.
        made: what several plans have in common.
        count: of phases.
        center: as of the algorithm.
        smoothing: beta of the envelope; None for a smooth loss.
    """
    strong, phases, start = setting.problem.strong_convexity, [], 0
    bound, distance = math.inf, setting.distance
    if strong > 0:
        # lambda/2 r^2 <= F(start) - F* <= L r.
        distance = min(distance, 2 * setting.problem.objective_lipschitz / strong)
    elif count > 1:  # nothing tells that the next start is nearer
        return None
    whole = GROWTH**count - 1
    for at in range(count):
        size = setting.n * GROWTH**at // whole
        key = size, distance, center, smoothing
        if key not in made:
            near = dataclasses.replace(setting, n=max(size, 1), initial_distance=distance)
            made[key] = _phase(near, center, smoothing)
        if size == 0 or (found := made[key]) is None:
            return None
        bound, phase = found
        phases.append(dataclasses.replace(phase, cohort=Cohort.of(start, start + size)))
        start += size
        if strong > 0:
            distance = min(distance, math.sqrt(2 * bound / strong))
    return bound, tuple(phases)


def _phase(setting: Setting, center: str, smoothing: float | None) -> Made:
    """The bound of the excess loss that a phase leaves, and the phase."""
    problem, n, distance = setting.problem, setting.n, setting.distance
    beta, error = problem.planned_smoothness(smoothing), envelope_error(problem, smoothing)
    best: tuple[float, Any] | None = None
    for rounds in ROUNDS:
        if rounds > n:
            break
        batch = n // rounds
        noise, sampling = squared_unit(setting, batch, 1), problem.spread**2 / batch
        for coarse in COARSE if center == "carried" else COARSE[:1]:
            asked = Choices({"center": center, "coarse": coarse})
            for centring, steps, bias in candidates(setting, asked, batch, rounds, noise):
                more = error + bias * problem.domain.diameter
                # No radius is below the spread: most cases end here.
                sigma = math.sqrt(noise * centring.spread**2 + sampling)
                if best and gap_of(steps, beta, sigma, distance) + more >= best[0]:
                    continue
                moving = with_drift(centring, beta)
                radius = moving.accelerated_radius(steps, problem.domain.diameter)
                made = Schedule(steps, beta, math.sqrt(noise * radius**2 + sampling), distance)
                if best is None or made.gap + more < best[0]:
                    best = made.gap + more, (moving, made, batch)
    if best is None:
        return None
    bound, (centring, made, batch) = best
    mechanism, everyone = Gaussian.calibrated(setting.privacy, 1), Cohort.of(0, n)
    return bound, AcceleratedPhase(everyone, 0.0, (made,), centring, mechanism, batch=batch)
