"""The docs' table of moved over stated: python -m tests.brute [--kinds A,B] [--extremes 40 ...].

A row is an algorithm; its numbers are those of the longest search that the arguments ask for.
"""

import argparse
import warnings
from collections.abc import Iterator

from shuffle_sim.errors import ParameterError

from . import cases, options
from .climbs import Effort, climb

HEAD = (
    "| algorithm | as calibrated | largest | with | settings | refused |\n"
    "|---|---|---|---|---|---|\n"
)


def ratios(kind: str, effort: Effort) -> Iterator[tuple[cases.Case, float | None]]:
    """Of the base of a class and of each option at each value; None where it is refused."""
    for case in cases.cases(kind, options.options(options.algorithms()[kind])):
        try:
            made = case.make()
        except ParameterError:
            yield case, None
            continue
        yield case, climb(made, case.space(made), effort.part(case.share)).answer.ratio


def line(kind: str, effort: Effort) -> str:
    """The row of a class."""
    found = list(ratios(kind, effort))
    tried = [(ratio, case) for case, ratio in found if ratio is not None]
    most, case = max(tried, key=lambda each: each[0])
    given = f"{case.option} {case.value[:40]}".replace("|", "/")
    refused = len(found) - len(tried)
    return f"| {kind} | {tried[0][0]:.3f} | {most:.3f} | {given} | {len(tried)} | {refused} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", help="names of classes, with commas; all by default")
    for name, default in (("extremes", 12), ("climbs", 2), ("steps", 40)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    kinds = given.kinds.split(",") if given.kinds else options.algorithms()
    print(HEAD, end="")
    for kind in kinds:
        if kind not in cases.HELPERS:
            print(line(kind, Effort(given.extremes, given.climbs, given.steps)), flush=True)


if __name__ == "__main__":
    main()
