"""The picture of docs/benchmarks.md from the results: python -m benchmarks.picture docs/benchmarks.svg."""

import json
import sys
from pathlib import Path

from matplotlib.figure import Figure

RESULTS = Path(__file__).parent / "results"


def result(name: str) -> dict:
    return json.loads((RESULTS / f"{name}.json").read_text())


def draw(path: str) -> None:
    scale, growth = result("scale"), result("growth")
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    speed, cost = figure.subplots(1, 2, width_ratios=(1, 1.4))
    names = list(scale["speed_over_baseline"])
    speed.barh(names, [scale["speed_over_baseline"][name] for name in names], color="tab:blue", height=0.6)
    for place, name in enumerate(names):
        speed.plot([scale["targets"][name]] * 2, [place - 0.4, place + 0.4], "k--", lw=1, label="aim" if not place else None)
    speed.axvline(1, color="grey", lw=0.8)
    speed.invert_yaxis()
    speed.set_xlabel("user-rounds a second, over those without privacy")
    speed.legend(loc="lower right")
    for fidelity, marker in (("literal", "o"), ("counts", "s"), ("aggregate", "^")):
        for what, style in (("users", "-"), ("dimensions", "--"), ("bits", ":")):
            sizes = [float(size) for size in growth[fidelity][what]]
            if what == "bits":
                sizes = [44 + size for size in sizes]
            cost.plot(
                [size / sizes[0] for size in sizes], list(growth[fidelity][what].values()), style + marker, ms=4,
                label=f"{fidelity}, {what}",
            )  # fmt: skip
    cost.set_xscale("log", base=2)
    cost.set_yscale("log", base=2)
    cost.set_xlabel("times as many")
    cost.set_ylabel("times the seconds a round")
    cost.plot([1, 8], [1, 8], color="grey", lw=0.8)
    figure.legend(*cost.get_legend_handles_labels(), loc="outside right upper", fontsize=7)
    figure.savefig(path)


if __name__ == "__main__":
    draw(sys.argv[1])
