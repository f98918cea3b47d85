"""P_GD: fully interactive gradient descent (Cheu et al. 2022, Algorithm 5 and Theorem 4.9): every
user answers every round.
"""

import math
from typing import ClassVar

import numpy as np

from protocols.problems.problem import Problem, demand
from protocols.shuffle.noisy_mean import NOISE_RATIO, Noise, NoisyMean
from protocols.shuffle.sgd import Averaged, AverageState
from protocols.sums.one_round import claim_of
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError, integer, positive
from shuffle_sim.privacy.bounds import paper
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.trust import Trust

MAX_ROUNDS = 1000
"""More rounds are not chosen unasked: each costs every user a report."""

_SLACK = 1.05  # of the bound, for fewer rounds


class ShuffleGD(Averaged):
    """All n users answer in each of T rounds; the result is the average of theta_0, ...,
    theta_{T-1}.

    Formal guarantee: the domination lemma with adaptive Gaussian composition over the T rounds.
    Population gap, for eta <= 2/beta: R^2/(2 eta T) + eta (L^2 + rho^2)/2 by Lemma 4.2, or for eta
    beta < 1 R^2/(2 eta T) + L R/T + eta rho^2/(2 (1 - eta beta)) by the smooth descent lemma, plus
    L^2 eta (T-1)/n for generalising (uniform stability: one user's datum moves the average iterate
    by at most L eta (T-1)/n; a declared spread replaces one L).
    """

    one_shot: ClassVar[bool] = False

    @property
    def rounds_per_user(self) -> int:
        """Every user answers in every round."""
        return self.rounds

    def cohort(self, state: AverageState) -> Cohort:
        """Everybody."""
        return Cohort.of(0, self.mean.batch)

    @staticmethod
    def best_step(
        problem: Problem, n: int, distance: float, rounds: int, noise: float, kinks: bool
    ) -> tuple[float, float]:
        """(eta, bound): the step with the smaller of the two proven bounds, for noise rho^2 in each
        round.

        With kinks, the envelope's beta is 1/eta: stable beside any ridge up to 1/eta, and it adds
        L^2 eta/2.
        """
        length, spread = (
            problem.objective_lipschitz,
            problem.lipschitz * problem.spread * (rounds - 1) / n,
        )
        curved = problem.lipschitz**2 / 2 if kinks else 0.0
        cost = (length**2 + noise) / 2 + spread + curved
        stable = 1 / max(problem.ridge, 1e-300) if kinks else 2 / max(problem.smoothness(), 1e-300)
        eta = min(distance / math.sqrt(2 * rounds * cost), stable)
        found = (distance**2 / (2 * eta * rounds) + eta * cost, eta)
        if not kinks:
            beta = problem.smoothness()
            fractions = np.geomspace(1e-6, 0.95, 300) / max(beta, 1e-6 / distance)
            for each in (
                *fractions.tolist(),
                distance / math.sqrt(2 * rounds * max(noise / 2 + spread, 1e-300)),
            ):
                if each * beta < 0.999:
                    tilted = noise / (2 * (1 - each * beta)) + spread
                    smooth = (
                        distance**2 / (2 * each * rounds)
                        + length * distance / rounds
                        + each * tilted
                    )
                    found = min(found, (smooth, each))
        return found[1], found[0]

    @classmethod
    def plan_for(
        cls,
        n: int,
        problem: Problem,
        noise: Noise,
        distance: float,
        batch: int | None = None,
        rounds: int | None = None,
    ) -> tuple[int, int, float]:
        """(n, rounds, bound): the fewest rounds whose bound is within 5 % of the best up to
        MAX_ROUNDS.
        """
        if batch is not None and batch != n:
            raise ParameterError("batch", batch, f"all {n} users")
        kinks = not problem.smooth
        most = np.unique(np.geomspace(1, min(n, MAX_ROUNDS), 60).round().astype(int))
        tried = most.tolist() if rounds is None else [rounds]
        bounds = {
            t: cls.best_step(problem, n, distance, t, noise.squared(n, t), kinks)[1] for t in tried
        }
        best = min(bounds.values())
        chosen = next(t for t in tried if bounds[t] <= _SLACK * best)
        return n, chosen, bounds[chosen]

    @classmethod
    def calibrated(
        cls,
        *,
        n: int,
        problem: Problem,
        privacy: Privacy,
        batch: int | None = None,
        rounds: int | None = None,
        eta: float | None = None,
        smoothing: float | None = None,
        initial_distance: float | None = None,
        noise_ratio: float = NOISE_RATIO,
        honest_fraction: float = 1.0,
        trust: Trust | str = Trust.SHUFFLE,
    ) -> "ShuffleGD":
        """The step with the smallest proven bound for the noise of T composed rounds.

        Args:
            n: users.
            problem: loss and domain.
            privacy: of the whole run, all rounds together.
            batch: n, if given.
            rounds: T; chosen, at most MAX_ROUNDS, where not given.
            eta: step; chosen where not given.
            smoothing: beta of the Moreau envelope; 1/eta for a loss with kinks, none for a smooth
                one, where not given.
            initial_distance: R, if better known than from the domain.
            noise_ratio: of the noise over the central Gaussian's.
            honest_fraction: of the users that add their noise, in every round.
            trust: whose noise the parameters are chosen for (for baselines).
        """
        noise = Noise.of_problem(problem, privacy, noise_ratio, trust, honest_fraction)
        distance = (
            problem.reach
            if initial_distance is None
            else positive("initial_distance", initial_distance)
        )
        if rounds is not None:
            integer("rounds", rounds)
        _, times, _ = cls.plan_for(integer("n", n), problem, noise, distance, batch, rounds)
        mean = noise.mean(n, times)
        squared = noise.of(mean, times)
        best, bound = cls.best_step(problem, n, distance, times, squared, not problem.smooth)
        step = best if eta is None else positive("eta", eta)
        beta = 1 / step if smoothing is None and not problem.smooth else smoothing
        choices = {
            "batch": f"{n}: everybody, in every round",
            "trust": f"{trust}: rho = {math.sqrt(squared):.4g}, R = {distance:.4g}",
            **(
                {}
                if rounds is not None
                else {"rounds": f"{times}: fewest within 5 % of the best bound up to {MAX_ROUNDS}"}
            ),
            **(
                {} if eta is not None else {"eta": f"{step:.4g}: smallest proven bound {bound:.4g}"}
            ),
            "smoothing": "given"
            if smoothing
            else "none: the loss is smooth"
            if beta is None
            else f"{beta:.4g}: 1/eta",
        }
        return cls(
            problem=problem,
            n=n,
            rounds=times,
            eta=step,
            mean=mean,
            privacy=privacy,
            smoothing=beta,
            bound=bound if eta is None and smoothing is None else math.inf,
            choices=choices,
        )

    @classmethod
    def paper(
        cls,
        *,
        n: int,
        problem: Problem,
        privacy: Privacy,
        rounds: int | None = None,
        eta: float | None = None,
        smoothing: float | None = None,
    ) -> "ShuffleGD":
        """The parameters of Theorem 4.9 with its advanced composition and Theorem 3.2's constants;
        for comparison.

        Raises:
            ParameterError: also where its per-round budget does not compose to what the theorem
                claims.
        """
        demand(problem, privacy)
        epsilon, delta, d = privacy.epsilon, privacy.delta, problem.d
        integer("n", n)
        log = math.log(n * d / delta)
        times = (
            max(1, min(n, math.floor((epsilon * n / log) ** 2 / d)))
            if rounds is None
            else integer("rounds", rounds)
        )
        diameter, length = problem.domain.diameter, problem.lipschitz
        beta = smoothing
        if beta is None and not problem.smooth:
            beta = length / diameter * min(math.sqrt(n), epsilon * n / (math.sqrt(d) * log**1.5))
        stable = 2 / max(problem.smoothness(beta), 1e-300)
        step = (
            min(diameter / (problem.objective_lipschitz * math.sqrt(times)), stable)
            if eta is None
            else positive("eta", eta)
        )
        each, share = paper.interactive_budget(epsilon, delta, times)
        mean = NoisyMean.paper(n, d, length, each, share)
        choices = {
            "batch": f"{n}: everybody, in every round",
            "rounds": f"{times}: min(n, epsilon^2 n^2/(d ln^2(n d/delta)))"
            if rounds is None
            else "given",
            "eta": f"{step:.4g}: min(D/(L sqrt T), 2/beta)" if eta is None else "given",
            "smoothing": "given"
            if smoothing
            else "none: the loss is smooth"
            if beta is None
            else f"{beta:.4g}: Theorem 4.9",
        }
        return cls(
            problem=problem,
            n=n,
            rounds=times,
            eta=step,
            mean=mean,
            privacy=privacy,
            smoothing=beta,
            choices=choices,
            claim=claim_of(privacy, "Theorem 4.9"),
        )
