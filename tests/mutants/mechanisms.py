"""Mechanisms with a defect that few draws do not show, and curators who misuse mechanisms."""

import numpy as np
import scipy

from shuffle_sim.execution import curator
from shuffle_sim.privacy import discrete
from shuffle_sim.privacy.mechanisms import Exponential, Gaussian
from shuffle_sim.sampling import randomness


def _noise(made):
    """Gaussian noise that is made of the true one: by mechanism, noise and generator."""

    def plant(patch):
        true = Gaussian.noise
        patch.setattr(Gaussian, "noise", lambda self, rng, d: made(self, true(self, rng, d), rng))

    return plant


def _sign_of_two(mechanism, noise, rng):
    noise[2] = np.abs(noise[2]) * np.sign(noise[0] * noise[1])
    return noise


def _of_32_bits(mechanism, noise, rng):
    uniform = (rng.integers(0, 1 << 32, noise.size) + 0.5) / (1 << 32)
    return mechanism.noise_multiplier * scipy.special.ndtri(uniform)


def _few_seeds(mechanism, noise, rng):
    few = np.random.default_rng(int(rng.integers(1 << 20)))
    return mechanism.noise_multiplier * few.standard_normal(noise.size)


def _twelve_uniforms(mechanism, noise, rng):
    return mechanism.noise_multiplier * (rng.random((12, noise.size)).sum(axis=0) - 6)


def _none_near_0(mechanism, noise, rng):
    return noise * (abs(noise[0]) > 1e-4 * mechanism.noise_multiplier)


def _bare(where):
    """Values that have no noise."""

    def plant(patch):
        true = Gaussian.sample

        def sample(self, value, sensitivity, rng):
            found = true(self, value, sensitivity, rng)
            return np.where(where(np.asarray(value)), value, found)

        patch.setattr(Gaussian, "sample", sample)

    return plant


def multiples_of_three(patch):
    true = discrete.draw
    patch.setattr(discrete, "draw", lambda *given: [round(x / 3) * 3 for x in true(*given)])


def rounded_gumbel(patch):
    """Choices of nearly equal scores: the first of them is taken."""

    def sample(self, value, sensitivity, rng):
        scores = self.epsilon * (value - np.max(value)) / sensitivity
        return int(np.argmax(np.round(scores + rng.gumbel(size=len(value)), 1)))

    patch.setattr(Exponential, "sample", sample)


def of_31_bits(patch):
    """Its seeds can be tried out, though no two runs meet."""

    def noise(self, rng, d):
        old = np.random.RandomState(int(rng.integers(1 << 31)))
        return self.noise_multiplier * old.standard_normal(d)

    patch.setattr(Gaussian, "noise", noise)


MECHANISMS = {
    "noise of 31 bits": of_31_bits,
    "noise on a fine grid": _noise(lambda mechanism, noise, rng: np.round(noise, 8)),
    "noise of 32 bits": _noise(_of_32_bits),
    "a sign of two others": _noise(_sign_of_two),
    "noise of few seeds": _noise(_few_seeds),
    "twelve uniforms": _noise(_twelve_uniforms),
    "none near 0": _noise(_none_near_0),
    "bare where all are negative": _bare(lambda value: value.max() < 0),
    "bare where integers": _bare(lambda value: (value == np.rint(value)) & (value != 0)),
}
"""By name: Gaussian noise that the mechanism itself must show, asked alone."""


def _answered(change):
    """What the curator answers: of itself, the release, its place, and what was released."""

    def plant(patch):
        true = curator.Curator.answer

        def answer(self, release, index):
            return change(self, release, index, true(self, release, index))

        patch.setattr(curator.Curator, "answer", answer)

    return plant


def _nearer(self, release, index, released):
    return released + 0.2 * (self._value(release) - released) if index == 1 else released


def _remembered(self, release, index, released):
    """Noise of one variance, of which most is that of the release before."""
    if type(release.mechanism) is not Gaussian:
        return released
    value = self._value(release)
    noise, before = released - value, vars(self).get("_noise")
    self._noise = noise if before is None else 0.8 * before + 0.6 * noise
    return value + self._noise


def values_twice(patch):
    true = curator.Curator._total
    patch.setattr(
        curator.Curator, "_total", lambda self, part, cohort: 2 * true(self, part, cohort)
    )


def less_at_last(patch):
    """The third release has half of its noise."""
    true = curator.Curator.answer

    def answer(self, release, index):
        if index != 2:
            return true(self, release, index)
        half = Gaussian(release.mechanism.noise_multiplier / 2)
        value = self._value(release)
        released = true(self, release, index)
        return (
            value
            + half.sample(0 * value, release.sensitivity.value, self._stream(9, 0))
            + 0 * released
        )

    patch.setattr(curator.Curator, "answer", answer)


def later_of_few_bits(patch):
    """Streams of later releases keep 16 bits of the entropy."""
    true = randomness.stream

    def other(entropy, index, *key):
        return true(entropy if index < 2 else entropy & 0xFFFF, index, *key)

    patch.setattr(curator, "stream", other)


VALUES = {
    "values twice": values_twice,
    "the second nearer to its value": _answered(_nearer),
    "noise with a memory": _answered(_remembered),
    "half of the noise at last": less_at_last,
    "later streams of few bits": later_of_few_bits,
}
"""By name: curators whose releases are not what their mechanism makes of the value."""
