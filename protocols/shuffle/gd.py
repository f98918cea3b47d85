"""P_GD: fully interactive gradient descent (Cheu et al. 2022, Algorithm 5)."""

import math
from typing import Self

import numpy as np

from protocols.optimisation.acceleration import smoothing_for
from protocols.optimisation.base import AverageState
from protocols.optimisation.choices import Choices
from protocols.optimisation.setting import MAX_ROUNDS, Setting
from protocols.problems.problem import Problem
from protocols.shuffle.noisy_mean import NoisyMean
from protocols.shuffle.sgd import Averaged
from protocols.sums.one_round import claim_of
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import integer, positive
from shuffle_sim.privacy.bounds import paper
from shuffle_sim.privacy.guarantee import Privacy

_SLACK = 1.05  # of the bound, for fewer rounds
_ROUNDS = np.unique(np.geomspace(1, MAX_ROUNDS, 60).round().astype(int)).tolist()
_FRACTIONS = np.geomspace(1e-6, 0.95, 300)
"""Of 1/beta that are tried as steps."""


class ShuffleGD(Averaged):
    """All n users answer in each of T rounds; the result is the average of theta_0 to theta_{T-1}.

    Formal guarantee: the domination lemma with adaptive Gaussian composition over the T rounds.
    Population gap, for eta <= 2/beta: R^2/(2 eta T) + eta (L^2 + rho^2)/2 by Lemma 4.2, or for eta
    beta < 1 R^2/(2 eta T) + L R/T + eta rho^2/(2 (1 - eta beta)) by the smooth descent lemma, plus
    L^2 eta (T-1)/n for generalising (uniform stability: one user's datum moves the average iterate
    by at most L eta (T-1)/n; a declared spread replaces one L).
    """

    one_shot = False
    tuned = True
    takes = ("rounds", "eta", "smoothing")
    """T; the step; beta of the envelope, by default 1/eta for a loss with kinks."""
    paper_cost = "Corollary B.11"

    @property
    def rounds_per_user(self) -> int:
        return self.rounds

    def cohort(self, state: AverageState) -> Cohort:
        return Cohort.of(0, self.mean.batch)

    @staticmethod
    def best_step(
        problem: Problem, n: int, distance: float, rounds: int, noise: float
    ) -> tuple[float, float]:
        """(eta, bound): the step with the smaller of two proven bounds, for noise rho^2 a round.

        With kinks, the envelope's beta is 1/eta: stable beside any ridge up to 1/eta, and it adds
        L^2 eta/2.
        """
        kinks, length = not problem.smooth, problem.objective_root
        spread = problem.root * problem.spread * (rounds - 1) / n
        curved = problem.root**2 / 2 if kinks else 0.0
        cost = (length**2 + noise) / 2 + spread + curved
        stable = (
            1 / max(problem.ridge, 1e-300)
            if kinks
            else 2 / max(problem.planned_smoothness(), 1e-300)
        )
        # Where R^2/(2 eta T) = eta cost, unless the step would not be stable.
        eta = min(distance / math.sqrt(2 * rounds * cost), stable)
        found = (distance**2 / (2 * eta * rounds) + eta * cost, eta)
        if not kinks:
            beta = problem.planned_smoothness()
            # Of the descent lemma's bound without its pole at eta beta = 1; tried beside fractions
            # of 1/beta.
            free = distance / math.sqrt(2 * rounds * max(noise / 2 + spread, 1e-300))
            etas = np.append(_FRACTIONS / max(beta, 1e-6 / distance), free)
            # The bound has 1 - eta beta in a denominator.
            etas = etas[etas * beta < 0.999]
            start = distance**2 / (2 * etas * rounds) + length * distance / rounds
            bounds = start + etas * (noise / (2 * (1 - etas * beta)) + spread)
            least = int(bounds.argmin())
            found = min(found, (float(bounds[least]), float(etas[least])))
        return found[1], found[0]

    @classmethod
    def best(cls, setting: Setting, choices: Choices) -> tuple[int, int, float]:
        """The fewest rounds whose bound is within 5 % of the best; and the best with these 5 %.

        Their own bound lies anywhere in between. It may rise where more users allow fewer rounds.
        """
        n, problem, distance = setting.n, setting.problem, setting.distance

        def bound(rounds: int) -> float:
            noise = setting.squared_noise(n, rounds)
            return cls.best_step(problem, n, distance, rounds, noise)[1]

        if (rounds := choices["rounds"]) is None:
            most_rounds = setting.max_rounds_per_user
            tried = sorted({t for t in (*_ROUNDS, most_rounds) if t <= min(n, most_rounds)})
            bounds = {t: bound(t) for t in tried}
            most = _SLACK * min(bounds.values())
            return n, next(t for t in tried if bounds[t] <= most), most
        return n, integer("rounds", rounds), bound(rounds)

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        choices.choose("batch", setting.n, "everybody, in every round")
        (n, rounds, most), problem = cls.best(setting, choices), setting.problem
        mean = NoisyMean.calibrated_for(setting, n, rounds)
        noise = mean.bounded_noise_in(setting, rounds)
        best, bound = cls.best_step(problem, n, setting.distance, rounds, noise)
        bound = max(bound, most)
        facts = f"rho = {math.sqrt(noise):.4g}, R = {setting.distance:.4g}"
        choices.choose("trust", setting.trust, facts)
        why = f"fewest within 5 % of the best bound, at most {setting.max_rounds_per_user}"
        choices.choose("rounds", rounds, why)
        eta = positive("eta", choices.choose("eta", best, f"smallest proven bound {bound:.4g}"))
        if not choices.given.keys().isdisjoint(("eta", "smoothing")):
            bound = math.inf
        smoothing = smoothing_for(problem, choices, 1 / eta, "1/eta")
        own = {"rounds": rounds, "eta": eta, "smoothing": smoothing, "bound": bound}
        return cls.made(setting, mean, choices, **own)

    @classmethod
    def printed_cost(cls, *, n: int, d: int, privacy: Privacy) -> paper.PrintedCost:
        """What Algorithm 5 would send as printed; arguments and errors of `paper.algorithm_5`."""
        return paper.algorithm_5(n, d, privacy.epsilon, privacy.delta)

    @classmethod
    def printed_gap(cls, setting: Setting) -> float:
        """Theorem 4.9: D L/sqrt(n) + D L sqrt(d) ln^1.5(d/delta)/(epsilon n)."""
        d, n, privacy = setting.problem.d, setting.n, setting.privacy
        noise: float = math.sqrt(d) * math.log(d / privacy.delta) ** 1.5 / (privacy.epsilon * n)
        return setting.width * setting.problem.objective_lipschitz * (1 / math.sqrt(n) + noise)

    @classmethod
    def paper_for(cls, setting: Setting, choices: Choices) -> Self:
        """Theorem 4.9 with its advanced composition, and the constants of Theorem 3.2.

        Raises:
            ParameterError: also where its budget of a round does not compose to its claim.
        """
        problem, epsilon, delta = setting.problem, setting.privacy.epsilon, setting.privacy.delta
        n, d, diameter, length = setting.n, problem.d, setting.width, problem.lipschitz
        choices.choose("batch", n, "everybody, in every round")
        log, printed = math.log(n * d / delta), paper.interactive_rounds(n, d, epsilon, delta)
        why = "min(n, epsilon^2 n^2/(d ln^2(n d/delta)))"
        rounds = integer("rounds", choices.choose("rounds", printed, why))
        beta = length / diameter * min(math.sqrt(n), epsilon * n / (math.sqrt(d) * log**1.5))
        smoothing = smoothing_for(problem, choices, beta, "Theorem 4.9")
        stable = 2 / max(problem.planned_smoothness(smoothing), 1e-300)
        step = min(diameter / (problem.objective_lipschitz * math.sqrt(rounds)), stable)
        eta = positive("eta", choices.choose("eta", step, "min(D/(L sqrt T), 2/beta)"))
        mean = NoisyMean.paper(n, d, length, *paper.interactive_budget(epsilon, delta, rounds))
        claim = claim_of(setting.privacy, "Theorem 4.9")
        own = {"rounds": rounds, "eta": eta, "smoothing": smoothing, "claim": claim}
        return cls.made(setting, mean, choices, **own)
