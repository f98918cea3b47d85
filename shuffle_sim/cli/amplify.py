"""`shuffle-sim amplify`: what permuting the reports of a local randomiser promises."""

from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from shuffle_sim.cli.pictures import dress, legend, new_figure
from shuffle_sim.cli.show import Drawn, console, details, number, print_fact, print_warnings
from shuffle_sim.privacy.amplification import Amplification, amplify
from shuffle_sim.privacy.guarantee import DELTA, weaknesses
from shuffle_sim.privacy.trust import Trust

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def amplify_command(
    output: Drawn,
    epsilon0: Annotated[float, typer.Option("--epsilon0", help="Of one report, pure.")],
    users: Annotated[int, typer.Option("--n", help="Users, each with one message a round.")],
    delta: Annotated[float, typer.Option(help="Privacy parameter delta of the whole run.")] = DELTA,
    rounds: Annotated[int, typer.Option(help="Rounds in which the same users report.")] = 1,
    sampling: Annotated[
        float, typer.Option(help="Probability with which a user secretly takes part in a round.")
    ] = 1.0,
    symbols: Annotated[
        int | None,
        typer.Option(help="k of k-ary randomised response. Default: any randomiser."),
    ] = None,
    honest_fraction: Annotated[
        float, typer.Option(help="Fraction of users that are assumed to add their noise.")
    ] = 1.0,
) -> None:
    """Say which epsilon the permuted reports of a local randomiser have.

    Example: shuffle-sim amplify --epsilon0 4 --n 100000

    Example: shuffle-sim amplify --epsilon0 10 --n 1000000 --symbols 1000 --plot amplify.png
    """

    def found(each: float) -> Amplification:
        return amplify(
            each,
            users,
            delta,
            rounds=rounds,
            sampling=sampling,
            symbols=symbols,
            honest_fraction=honest_fraction,
        )

    def draw(summary: Amplification) -> "Figure":
        others = (epsilon0 * np.linspace(0.25, 1.25, 9)).clip(max=30.0)
        figure = new_figure(7, 4.5)
        axes = figure.subplots()
        curve = [found(float(each)) for each in others]
        shuffled = [each.epsilon for each in curve]
        axes.semilogy(others, others * rounds, color=Trust.LOCAL.colour, label="reports alone")
        axes.semilogy(others, shuffled, "o-", color=Trust.SHUFFLE.colour, label="permuted, proven")
        if summary.least:
            least = [each.least for each in curve]
            axes.semilogy(others, least, ":", color="gray", label="no theorem can prove less")
        axes.semilogy([epsilon0], [summary.epsilon], "k*", ms=13)
        title = f"{users:,} users: ε0 = {epsilon0:g} becomes ε = {number(summary.epsilon)}"
        dress(axes, title, "ε0 of one report", f"ε at δ = {delta:g}")
        legend(figure)
        return figure

    output.present(found(epsilon0), _print, draw)


def _print(summary: Amplification) -> None:
    print_fact("Privacy", str(summary), where=console)
    basis = f"by {summary.basis}; numbers are outward by {summary.error:g} relative"
    print_fact("", basis, where=details)
    print_warnings(weaknesses(summary.epsilon, summary.delta, summary.users))
