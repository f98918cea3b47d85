"""Privacy accounting for the shuffle model: which theorem gives which epsilon.

`binomial` exact privacy of binomial noise in one dimension; `gaussian` the Gaussian yardstick;
`domination` and `rounding` the bounds for vectors and for many rounds, `renyi` that for a round of
few coins; `paper` the constants of the papers' own theorems; `events`, `accountant` and `ledger`
turn the rounds of a run into its guarantee; `planner` chooses parameters.
"""
