"""The library of attacks by name, and studies of what they do."""

from shuffle_sim.attacks.catalogue import attack, attacks, parameters

__all__ = ["attack", "attacks", "parameters"]
