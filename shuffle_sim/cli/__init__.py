"""The command `shuffle-sim`: the composition root, which finds protocols and runtimes through their
entry points.
"""
