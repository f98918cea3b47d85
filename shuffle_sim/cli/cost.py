"""`shuffle-sim cost`: what a protocol sends."""

from dataclasses import dataclass

from protocols.comparison.named import named_protocol
from protocols.shuffle.optimiser import FirstOrder
from shuffle_sim.cli import show
from shuffle_sim.cli.options import (
    Group,
    Hosting,
    ModelOptions,
    PrivacyOptions,
    Size,
    StepOptions,
    SumOptions,
    left_out,
    option,
    same,
)
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.forecast import Forecast, PaperBits, forecast
from shuffle_sim.execution.options import SEALING_SECONDS
from shuffle_sim.privacy.bounds.paper import PrintedCost

OBJECTIVE = (
    "What is least: bits or messages, or error. Malicious users may then move a sum much more. "
    "Default: bits of sums, messages of histograms, error of other counts."
)
METHOD = "pollution, two-sided, response, fixed-blanket or unary; default pollution."
LEAVES = "Cells of the range of quantiles, at least."
KEPT = "Prefixes that a level of heavy hitters keeps at most."


@dataclass(frozen=True)
class CountForm(Group):
    """What registered counts take; each has its own defaults."""

    objective: str | None = option(None, OBJECTIVE)
    max_messages: float | None = option(None, "Messages that a user may send, on average.")
    method: str | None = option(None, METHOD)
    leaves: int | None = option(None, LEAVES)
    bits: int | None = option(None, "Of an item of heavy hitters, or a value of group means.")
    kept: int | None = option(None, KEPT)
    moments: int | None = option(None, "Of group means: 2 for variances, too.")


@dataclass(frozen=True)
class CostSummary:
    """What a protocol will cost.

    `printed` is what it would with the paper's constants, where no run could send that; `refused`
    says why they do not serve the case.
    """

    protocol: str
    n: int
    d: int
    epsilon: float
    delta: float
    security: str
    forecast: Forecast
    wire_bytes: dict[str, int]
    paper: PaperBits | None
    printed: PrintedCost | None
    refused: str
    warnings: tuple[str, ...]


def cost_command(
    users: Size,
    privacy: PrivacyOptions,
    noise: SumOptions,
    output: show.Output,
    model: ModelOptions,
    steps: StepOptions,
    counts: CountForm,
    protocol: str | None = option(
        None, "Name of a sum or of an optimiser; default: the sum of the fewest bits."
    ),
    security: str = same(Hosting, "security"),
) -> None:
    """Show what a protocol costs in communication: per user, per round, and hop by hop.

    Example: shuffle-sim cost --n 10000 --d 10 --noise-ratio 1.05 --security onion

    Example: shuffle-sim cost --n 100000 --d 10 --protocol shuffle-sgd --loss hinge
    """
    n, d, budget = users.users, users.dimensions, privacy.budget
    asked, printed, refused = model.given | steps.given | counts.given, None, ""
    if protocol is None:
        left_out(asked, "a sum")
        name, made = noise.encoded(n, d, budget)
    else:
        name, made = protocol, named_protocol(protocol, n, d, budget, **noise.given, **asked)
        if isinstance(made, FirstOrder):
            try:
                printed = made.printed_cost(n=n, d=d, privacy=budget)
            except ParameterError as error:
                refused = str(error)
    found = forecast(made, security=security)
    paper = PaperBits.of(made, found, d, budget)
    wire = {hop.name: hop.wire for hop in found.hops}
    case = name, n, d, privacy.epsilon, privacy.delta, security
    summary = CostSummary(*case, found, wire, paper, printed, refused, budget.warnings(n))
    output.present(summary, _print_cost)


def _print_cost(summary: CostSummary) -> None:
    f, kind = summary.forecast, "sequentially" if summary.forecast.sequential else "fully"
    show.console.print(
        f"\n[bold]{summary.protocol}[/], n = {f.users:,}, d = {summary.d:,}, security "
        f"{summary.security}: {kind} interactive\n{show.plural(f.rounds, 'round')} of at most "
        f"{f.batch:,} users; a user answers in at most {f.participation:,}, "
        f"{f.asked / f.users:.3g} on average\n"
    )
    counted = {
        "messages": (f.messages, f.user_messages),
        "payload bits (the paper's count)": (f.payload_bits, f.user_payload_bits),
        "label bits, if sent one by one": (f.label_bits, f.user_label_bits),
    }
    rows = [(what, *(f"{round(each, 2):,}" for each in sent)) for what, sent in counted.items()]
    wire = f.user_wire_bytes
    rows.append(("bytes on the wire, on average", f"{wire / f.participation:,.1f}", f"{wire:,.1f}"))
    show.print_table(("a user", "in the largest round", "over the run"), rows)
    show.print_warnings(summary.warnings)
    show.console.print()
    sizes = [(each.payload, each.framing, each.sealing, each.wire) for each in f.hops]
    hops = [(each.name, *map(show.size, row)) for each, row in zip(f.hops, sizes, strict=True)]
    hops.append(("all hops", *(show.size(sum(each)) for each in zip(*sizes, strict=True))))
    show.print_table(("hop, over the run", "payload", "framing", "seals", "on the wire"), hops)
    if f.seconds:
        show.console.print(
            f"\nSealing and opening takes about {show.number(f.seconds)} s on this machine with "
            "one worker."
        )
    if f.slowest > SEALING_SECONDS:
        show.console.print(
            f"A run refuses a round of more than {SEALING_SECONDS:g} s, unless --sealing-seconds "
            "allows it."
        )
    if summary.paper is not None:
        paper = summary.paper
        factor = "rounds answered x " if f.participation > 1 else ""
        show.details.print(
            f"\n{paper.where} of the paper: O({show.number(paper.bits)}) bits a user, by {factor}"
            "d (sqrt(batch) + ln(1/delta)/epsilon^2).\nThe bits here are "
            f"{paper.constant:.3g} times that."
        )
    if (printed := summary.printed) is not None:
        rounds = show.plural(printed.rounds, "round")
        sent = f"{rounds} of {printed.messages:,} messages, {printed.bits:.3g} bits a user"
        show.console.print(f"\nAs the paper prints it: {sent}.")
    if summary.refused:
        show.console.print(f"\nAs the paper prints it, it does not serve: {summary.refused}.")
