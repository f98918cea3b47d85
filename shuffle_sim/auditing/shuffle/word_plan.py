"""The registry of checks of randomizers of categories, and of others whose view is of words."""

from dataclasses import replace
from typing import Any

from shuffle_sim.auditing.claims.plan import KINDS, CheckKind

_KIND = {each.method: each for each in KINDS}
COMPANY = "company", "once", "read", "stations"
_OF_WORDS = "a few users in two blocks", lambda b: f"{b.repeats:,} rounds"


def _counted(bench: Any) -> bool:
    return bool(bench.randomizer.view != "messages")


WORD_KINDS: tuple[CheckKind, ...] = (
    replace(
        _KIND["domain"],
        looks_at="rows far outside, numbers that are no category, and what is not finite",
        samples=lambda b: "exact",
        power="what is no datum admitted as one",
        applies=lambda b: b.known and (b.of_balls or b.of_bins),
    ),
    replace(
        _KIND["alone"],
        samples=lambda b: f"{len(b.inside)} data, in three orders",
        applies=lambda b: b.known and b.of_balls,
    ),
    replace(_KIND["defined"], brief=False),
    replace(
        _KIND["search"],
        looks_at="data all over the range, or categories: words watched, and the one sent most",
        brief=True,
        samples=lambda b: "up to 300 data, 300 to 1,000 reports on each",
        power="noise left out for a twentieth of the range, or for a category",
    ),
    CheckKind(
        "each user's words have their exact law",
        "users_law",
        "words of every user, sums over users, neighbours, pairs and projections; each kernel and"
        " generator",
        lambda b: f"{b.users:,} users and {b.labels} words in some 300 rounds",
        "a coin that users share; users, categories or words with less noise",
    ),
    CheckKind(
        "each word of all users has its exact law (literal)",
        "literal_law",
        *_OF_WORDS,
        "a word without noise, or a truth that is sent twice",
        brief=True,
    ),
    CheckKind(
        "each word of all users has its exact law (counts)",
        "counts_law",
        *_OF_WORDS,
        "the same, at counts fidelity",
        applies=_counted,
    ),
    CheckKind(
        "each word of all users has its exact law (aggregate)",
        "aggregate_law",
        *_OF_WORDS,
        "other noise where words are counted at once",
        applies=_counted,
        brief=True,
    ),
    CheckKind(
        "words that are drawn apart tell nothing of each other",
        "apart",
        "ranks of up to 32 words in tallies of many users, two by two; halves of groups; totals",
        lambda b: "2,000 rounds of up to 1,000 users; groups and totals of up to 4,096 words",
        "noise that two words share, or all; a coin for several words of a user",
        applies=lambda b: hasattr(b.randomizer, "drawn_with"),
        brief=True,
    ),
    CheckKind(
        "each word of many users at once has its exact law",
        "tallies",
        "tallies of a block of the pair's data",
        lambda b: "150 rounds of up to 1,000 users",
        "other noise where many users are counted at once",
        applies=_counted,
    ),
    CheckKind(
        "two rounds over the same data draw independent noise",
        "rounds",
        *_OF_WORDS,
        "the same coins in every round",
    ),
    *(each for each in KINDS if each.method in ("sampled", "keys", "streams", *COMPANY)),
    CheckKind(
        "a message is as private as is stated of it",
        "message",
        "the probabilities of a report, of all its words at once, for every two data",
        lambda b: "exact",
        "a local randomiser that loses more than its epsilon0, or whose event says more of it",
        applies=lambda b: b.known and b.local,
    ),
    *(each for each in KINDS if each.method == "order"),
    CheckKind(
        "one word reveals no more than the event is charged for",
        "event",
        "the exact delta of a word's tally, of the worst pair, at seven epsilons",
        lambda b: "exact, for up to 60 users",
        "an event that states more lies, noise or honest users",
        brief=True,
    ),
    CheckKind(
        "no sum of words reveals more than the event is charged for",
        "weighed",
        "tallies of all who are counted on, of whom one holds the other end of the worst pair",
        lambda b: f"{b.weighed_rounds:,} rounds of each table",
        "noise that is nowhere: neither drawn nor in the law that is stated",
        applies=_counted,
    ),
)
"""The same of randomizers of categories and of words."""
