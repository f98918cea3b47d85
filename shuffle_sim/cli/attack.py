"""`shuffle-sim attack`: what corrupted users do to privacy, to a sum and to a trained model."""

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from shuffle_sim.cli import studies
from shuffle_sim.cli.options import Attacks, Drawn, PrivacyOptions, Seed, SumOptions
from shuffle_sim.cli.show import console, new_figure, present
from shuffle_sim.errors import ParameterError, real

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Study(StrEnum):
    """What is measured."""

    PRIVACY = "privacy"
    MANIPULATION = "manipulation"
    TRAINING = "training"


_STUDIES: dict[Study, tuple[int, int, int, Callable[[studies.Asked], studies.Found]]] = {
    Study.PRIVACY: (1000, 1, 4000, studies.privacy),
    Study.MANIPULATION: (1000, 10, 10, studies.manipulation),
    Study.TRAINING: (10_000, 5, 3, studies.training),
}
"""By study: default users, coordinates and repeats, and what measures it."""


def attack_command(
    privacy: PrivacyOptions,
    noise: SumOptions,
    output: Drawn,
    study: Annotated[Study, typer.Option(help="What is measured.")] = Study.PRIVACY,
    users: Annotated[
        int | None, typer.Option("--n", help="Users; by default 1,000, and 10,000 for training.")
    ] = None,
    dimensions: Annotated[
        int | None, typer.Option("--d", help="Coordinates; by default 1, 10 and 5.")
    ] = None,
    attack: Attacks = None,
    fraction: Annotated[
        list[float] | None,
        typer.Option(help="Fraction of honest users (privacy) or of attackers; repeatable."),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(help="Samples of every law (privacy), or runs of every attack.")
    ] = None,
    seed: Seed = None,
) -> None:
    """Measure attacks: on privacy, on a sum (manipulation), or on a model (training).

    Example: shuffle-sim attack --study privacy --n 1000 --epsilon 1 --fraction 1 --fraction 0.5

    Example: shuffle-sim attack --study training --attack sign-flip --fraction 0.1
    """
    if attack and study is not Study.TRAINING:
        raise ParameterError("attack", attack, "used with --study training")
    for each in fraction or []:
        real("fraction", each, 0.0, 1.0, closed=(study is Study.TRAINING, True))
    default_n, default_d, default_repeats, measure = _STUDIES[study]
    asked = studies.Asked(
        default_n if users is None else users,
        default_d if dimensions is None else dimensions,
        privacy.budget,
        noise,
        attack or [],
        fraction or [],
        default_repeats if repeats is None else repeats,
        seed,
    )
    with console.status("attacking ..."):
        found = measure(asked)

    def draw(found: studies.Found) -> "Figure":
        figure = new_figure(7, 4.5)
        axes = figure.subplots()
        found.draw(axes)
        budget = f"ε = {privacy.epsilon:g}, δ = {privacy.delta:g}"
        axes.set_title(f"{study}: n = {asked.n:,}, d = {asked.d}, {budget}")
        axes.grid(alpha=0.3)
        return figure

    present(found, _print, draw, json=output.json, plot=output.plot)


def _print(found: studies.Found) -> None:
    console.print(found.table)
    console.print(found.note, style="dim")
