"""The vocabulary that protocols are written in: queries, randomizers, rounds and adversaries."""
