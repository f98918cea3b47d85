"""What moves between neighbours is at most what is stated: searched by force, over all there is.

`walks` follows a run on two neighbours with one transcript, `statements` says by how much each of
its answers may move, `neighbours` and `climbs` look for the pair that moves most, and `options`
finds what can be set in all that is registered. `python -m tests.brute` prints the docs' table.
"""
