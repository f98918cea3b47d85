"""The options of commands: the same thing has the same name in all of them."""

from pathlib import Path
from typing import Annotated

import typer

Users = Annotated[int, typer.Option("--n", help="Number of users.")]
Dimensions = Annotated[
    int, typer.Option("--d", help="Coordinates; 1: a scalar sum; more: a vector sum.")
]
Rounds = Annotated[
    int | None, typer.Option(help="Rounds, where there are several; by default chosen.")
]
Batch = Annotated[
    int | None, typer.Option(help="Users in a round of a sequential protocol; by default chosen.")
]

Epsilon = Annotated[float, typer.Option(help="Privacy parameter epsilon of the whole run.")]
Delta = Annotated[float, typer.Option(help="Privacy parameter delta of the whole run.")]
NoiseRatio = Annotated[
    float | None,
    typer.Option(
        help="Noise allowed, as a multiple of the central Gaussian's; the fewest bits are chosen."
    ),
]
MaxBits = Annotated[
    int | None,
    typer.Option(
        help="Bits allowed per user and coordinate; the least noise is chosen. Instead of "
        "--noise-ratio."
    ),
]
HonestFraction = Annotated[
    float, typer.Option(help="Fraction of users whose noise is counted on, assumed in advance.")
]
RuntimeName = Annotated[str, typer.Option("--runtime", help="inprocess or ray.")]
Address = Annotated[
    str | None,
    typer.Option(
        help="With --runtime ray: host:port of a running Ray cluster to join, or auto for this "
        "machine's."
    ),
]
Workers = Annotated[int, typer.Option(help="User shards (on Ray: actors).")]
Fidelity = Annotated[
    str | None, typer.Option(help="literal, counts or aggregate; by default chosen by cost.")
]
Security = Annotated[
    str,
    typer.Option(
        help="none, transport (each hop sealed) or onion (each message sealed to the analyzer)."
    ),
]
SealingSeconds = Annotated[
    float | None,
    typer.Option(
        help="With onion: refuse rounds that take longer to seal and open; by default 600."
    ),
]
Seed = Annotated[
    int | None, typer.Option(help="Makes the run reproducible, and therefore not private.")
]
Attacks = Annotated[
    list[str] | None,
    typer.Option(
        "--attack",
        help="name or name:key=value,... as in dropout:rate=0.1 or sign-flip:fraction=0.05; "
        "repeatable.",
    ),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        help="Keep the run in this folder, so that it can be resumed. It holds the run's "
        "randomness: keep it secret."
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with the run in the folder of --checkpoint.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Plot = Annotated[Path | None, typer.Option(help="Write a picture (.png, .svg or .pdf) there.")]
TableName = Annotated[
    str | None, typer.Option("--table", help="breast-cancer, digits, diabetes or wine.")
]
File = Annotated[
    Path | None, typer.Option(help="Your own .csv, .parquet or .npz file. Instead of --table.")
]
Columns = Annotated[
    str | None, typer.Option(help="Columns of the file, separated by commas; by default all.")
]
BoundsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--bounds",
        help="Public bounds low:high of every column, or name=low:high of one; repeatable.",
    ),
]
Label = Annotated[str | None, typer.Option("--label", help="Column of the file to predict.")]
Positive = Annotated[
    list[str] | None,
    typer.Option(
        "--positive",
        help="Class that becomes +1, all others -1; repeatable. By default, of two classes the "
        "last.",
    ),
]
Loss = Annotated[
    str,
    typer.Option(
        help="logistic or hinge for classes; squared, huber, absolute or pinball for numbers."
    ),
]
Quantile = Annotated[float | None, typer.Option(help="Of the pinball loss.")]
Threshold = Annotated[float | None, typer.Option(help="Of the Huber loss, for labels in [-1, 1].")]
Radius = Annotated[
    float | None,
    typer.Option(
        help="Of the l2 ball of the parameters; by default 20 for classes, 5 for numbers."
    ),
]
Ridge = Annotated[float, typer.Option(help="Public ridge; makes the objective strongly convex.")]
NormBound = Annotated[
    float | None,
    typer.Option(help="Longer gradients are clipped to it; by default the loss's own bound."),
]
TestFraction = Annotated[
    float, typer.Option(help="Fraction of the people who are held out and never asked.")
]
