"""The picture of docs/benchmarks.md: python -m benchmarks.picture docs/growth.png."""

import json
import sys
from pathlib import Path

from matplotlib.figure import Figure

RESULTS = Path(__file__).parent / "results"
NOISE_BITS_TO_BITS = (
    44  # rounding steps of the growth benchmark, which names its sizes by the noise bits
)


def draw(path: str) -> None:
    growth = json.loads((RESULTS / "growth.json").read_text())
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    panels = figure.subplots(1, 3, sharex=True, sharey=True)
    for axes, what in zip(panels, ("users", "dimensions", "bits"), strict=True):
        for fidelity, style in (("literal", "o-"), ("counts", "s--"), ("aggregate", "^:")):
            sizes = [
                float(size) + (NOISE_BITS_TO_BITS if what == "bits" else 0)
                for size in growth[fidelity][what]
            ]
            axes.plot(
                [size / sizes[0] for size in sizes],
                list(growth[fidelity][what].values()),
                style,
                ms=4,
                label=fidelity,
            )
        axes.plot([1, 8], [1, 8], color="grey", lw=0.8, zorder=0)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        axes.set_yticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        axes.set_xlabel(f"times as many {what}")
    panels[0].set_ylabel("times the seconds a round")
    panels[0].legend()
    figure.savefig(path)


if __name__ == "__main__":
    draw(sys.argv[1])
