"""The options of commands: the same thing has the same name in all of them."""

from pathlib import Path
from typing import Annotated

import typer

from shuffle_sim.data.files import check_name

Users = Annotated[int, typer.Option("--n", help="Number of users.")]
Dimensions = Annotated[
    int, typer.Option("--d", help="Coordinates: 1 for a scalar sum, more for a vector sum.")
]
Rounds = Annotated[
    int | None, typer.Option(help="Rounds, where there are several; by default chosen.")
]
Batch = Annotated[
    int | None, typer.Option(help="Users in a round of a sequential protocol; by default chosen.")
]
Epsilon = Annotated[float, typer.Option(help="Privacy parameter epsilon of the whole run.")]
Delta = Annotated[float, typer.Option(help="Privacy parameter delta of the whole run.")]
TrustName = Annotated[
    str, typer.Option("--trust", help="Who is trusted: shuffle (the shuffler) or central.")
]
Pure = Annotated[
    bool,
    typer.Option("--pure", help="Delta = 0, with --trust central. No shuffled view is pure."),
]
Moment = Annotated[
    str | None,
    typer.Option(
        help="K:G, or K:G:G2:G1: bounds of the moments of the gradients' length; clips are planned "
        "for them. A wrong one costs accuracy, never privacy."
    ),
]
Pilot = Annotated[
    bool, typer.Option("--pilot", help="Estimate clips by a private histogram of a tenth of all.")
]
NoiseRatio = Annotated[
    float | None,
    typer.Option(
        help="Noise allowed, as a multiple of the central Gaussian's. The fewest bits are chosen."
    ),
]
MaxBits = Annotated[
    int | None,
    typer.Option(
        help="Bits allowed per user and coordinate. The least noise is chosen. It replaces "
        "--noise-ratio."
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        help="How numbers become messages: carry or unary. Default: that of the fewest bits."
    ),
]
HonestFraction = Annotated[
    float, typer.Option(help="Fraction of users that are assumed to add their noise.")
]
RuntimeName = Annotated[
    str, typer.Option("--runtime", help="Where roles run: inprocess, processes or ray.")
]
Address = Annotated[
    str | None,
    typer.Option(
        help="With --runtime ray: host:port of a running cluster, or auto for that of this machine."
    ),
]
Workers = Annotated[
    str,
    typer.Option(
        help="Number of user shards. On Ray each is an actor. auto: measured before the run."
    ),
]
Placement = Annotated[
    str,
    typer.Option(
        help="apart: a process for each role. together: each worker has users and a part of the "
        "shuffler. Same bits with as many shuffler shards."
    ),
]
Fidelity = Annotated[
    str | None, typer.Option(help="literal, counts or aggregate. By default the cost decides.")
]
Security = Annotated[
    str,
    typer.Option(
        help="none, transport (hops are sealed) or onion (messages are sealed to the analyzer)."
    ),
]
SealingSeconds = Annotated[
    float | None,
    typer.Option(
        help="With onion: longest time to seal and open a round; longer is refused. Default 600."
    ),
]
Seed = Annotated[
    int | None, typer.Option(help="Makes the run reproducible. It is then not private.")
]
Attacks = Annotated[
    list[str] | None,
    typer.Option(
        "--attack",
        help="An attack, as in dropout:rate=0.1 or sign-flip:fraction=0.05; repeatable.",
    ),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        parser=lambda text: check_name("checkpoint", text),
        metavar="FOLDER",
        help="Keep the run in this folder, to resume it. Keep the folder secret: it holds the "
        "run's randomness.",
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the run in the folder of --checkpoint.")
]
RoundTimeout = Annotated[
    float | None,
    typer.Option(
        help="Seconds after which a role that does not answer is ended and put back. Default 600."
    ),
]
Yes = Annotated[
    bool, typer.Option("--yes", help="Start a run above the limits of bits, bytes and seconds.")
]
GeneratorName = Annotated[
    str,
    typer.Option(
        "--generator",
        help="What draws: sfc64 (statistical, quick) or chacha20 (cryptographic), without --seed.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Plot = Annotated[Path | None, typer.Option(help="File for a picture (.png, .svg or .pdf).")]
TableName = Annotated[
    str | None,
    typer.Option("--table", help="A registered one: breast-cancer, digits, diabetes, wine ..."),
]
File = Annotated[
    Path | None,
    typer.Option(help="Your own .csv, .tsv, .parquet or .npz file. It replaces --table."),
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
ChooseBounds = Annotated[
    float | None,
    typer.Option(
        "--choose-bounds",
        metavar="SHARE",
        help="Choose bounds that nobody stated by a private histogram, for this share of epsilon, "
        "such as 0.2. The whole run keeps --epsilon.",
    ),
]
SchemaFile = Annotated[
    Path | None,
    typer.Option(
        "--schema",
        help="A .toml file with types, bounds and categories of columns, as `shuffle-sim schema` "
        "drafts it.",
    ),
]
Missing = Annotated[
    str | None,
    typer.Option(
        help="What becomes of blank cells, on the user's side: drop (the row), midpoint (of the "
        "bounds) or indicator (midpoint, and a column that says so). Default: refused."
    ),
]
Categories = Annotated[
    list[str] | None,
    typer.Option(
        "--categories",
        help="Public categories NAME=a,b,c of a column; what is not listed is other. Repeatable.",
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(help="Between cells of a .csv file, or tab. Default: the header's commonest."),
]
Decimal = Annotated[
    str | None, typer.Option(help="Decimal mark of a .csv file: a point (default) or a comma.")
]
Thousands = Annotated[
    str | None, typer.Option(help="Mark between thousands in a .csv file. Default: none.")
]
Classes = Annotated[
    str | None,
    typer.Option(
        help="Public classes of the label, separated by commas. With three or more the model has "
        "several classes."
    ),
]
Person = Annotated[
    str | None,
    typer.Option(
        "--person", help="Column of the file that names the person; privacy is then of persons."
    ),
]
Records = Annotated[
    int | None,
    typer.Option(
        "--records",
        help="With --person: records that a person nominally has. Public. As many count, its "
        "first ones. Default 1, and 1,024 count.",
    ),
]
Label = Annotated[str | None, typer.Option("--label", help="Column of the file to predict.")]
Positive = Annotated[
    list[str] | None,
    typer.Option(
        "--positive",
        help="Class that becomes +1; all others become -1. Repeatable. Default: the last of two.",
    ),
]
Loss = Annotated[
    str,
    typer.Option(
        help="Of classes: logistic or hinge. Of numbers: squared, huber, absolute or pinball."
    ),
]
Quantile = Annotated[float | None, typer.Option(help="Quantile of the pinball loss.")]
Threshold = Annotated[
    float | None, typer.Option(help="Threshold of the Huber loss, for labels in [-1, 1].")
]
Radius = Annotated[
    float | None,
    typer.Option(
        help="Radius of the l2 ball of parameters. Default: 20 for classes, 5 for numbers."
    ),
]
Ridge = Annotated[float, typer.Option(help="Public ridge. It makes the objective strongly convex.")]
NormBound = Annotated[
    float | None,
    typer.Option(help="Longer gradients are clipped to it. Default: the loss's own bound."),
]
TestFraction = Annotated[
    float, typer.Option(help="Fraction of people that are held out and never asked.")
]
