"""What real_tables.py found: tables in Markdown, with intervals, and a picture.

    python examples/real_tables_report.py scores.jsonl --picture real-tables.png

A method with settings (ridges, steps) shows the best of them in hindsight, for each table and
epsilon. Intervals are Student's over splits, 95 %: of a mean, or of paired differences where two
methods are compared on the same splits. Splits of one table overlap, so these are intervals of its
splits, not of new tables.
"""

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from real_tables_data import LED, SOURCES, UNSEEN
from scipy import stats

OURS, FREE = "shuffle", ("not private", "constant")
CENTRAL = (
    "central descent",
    "central, delta 0",
    "output",
    "objective",
    "gibbs",
    "diffprivlib",
    "dpsgd",
)
"""Competitors of a trusted curator."""
OTHERS = ("shuffle, sequential", "shuffle, proven bound", "local")
PERSONS = ("shuffle, persons", "central descent, persons")
LINES = {
    "shuffle": ("C0", "-"),
    "shuffle, sequential": ("C0", ":"),
    "shuffle, persons": ("C9", "-"),
    "central descent": ("C1", "-"),
    "objective": ("C2", "--"),
    "output": ("C3", "--"),
    "diffprivlib": ("C4", "-."),
    "dpsgd": ("C5", "-."),
    "local": ("C7", ":"),
}
MANY = 4
"""Splits from which the picture has an interval."""
Key = tuple[str, float | None, str]


@dataclass(frozen=True)
class Scores:
    """Of a method at an epsilon on a table, by split.

    Attributes:
        by_seed: score of each split.
        setting: the best in hindsight.
    """

    by_seed: dict[int, float]
    setting: str = ""

    @property
    def mean(self) -> float:
        """Over splits."""
        return float(np.mean(list(self.by_seed.values())))

    def interval(self) -> float:
        """Half of the interval of the mean."""
        return half(list(self.by_seed.values()))

    def less(self, other: "Scores") -> tuple[float, float]:
        """Mean difference on the splits of both, and half of its interval."""
        both = sorted(self.by_seed.keys() & other.by_seed.keys())
        apart = [self.by_seed[seed] - other.by_seed[seed] for seed in both]
        return float(np.mean(apart)), half(apart)


def half(values: list[float]) -> float:
    """Of Student's interval of a mean, 95 %; infinite for one value."""
    if len(values) < 2:
        return float("inf")
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
    return float(stats.t.ppf(0.975, len(values) - 1)) * error


def collected(records: list[dict[str, Any]]) -> dict[Key, Scores]:
    """By table, epsilon and method: the best setting's scores."""
    found: dict[Key, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for each in records:
        if each["score"] is not None:
            key = each["table"], each["epsilon"], each["method"]
            found[key][each["setting"]][each["seed"]] = each["score"]
    scores = {}
    for key, settings in found.items():
        most = max(len(each) for each in settings.values())
        full = {name: each for name, each in settings.items() if len(each) == most}
        name = max(full, key=lambda name: float(np.mean(list(full[name].values()))))
        scores[key] = Scores(full[name], name)
    return scores


def best(scores: dict[Key, Scores], table: str, epsilon: float) -> tuple[str, Scores]:
    """The central competitor with the best mean."""
    tried = [(name, scores[key]) for name in CENTRAL if (key := (table, epsilon, name)) in scores]
    return max(tried, key=lambda each: each[1].mean)


def shown(each: Scores | None) -> str:
    """Mean and half of the interval."""
    if each is None:
        return ""
    around = each.interval()
    return f"{each.mean:.3f}" + (f" ± {around:.3f}" if around < np.inf else "")


def overview(records: list[dict[str, Any]], scores: dict[Key, Scores]) -> list[str]:
    """What the tables are."""
    lines = ["| table | subject | people asked | columns | splits | seen in tuning |"]
    lines.append("|---|---|---|---|---|---|")
    for name, source in SOURCES.items():
        rows = [each for each in records if each["table"] == name]
        if rows:
            ours = scores.get((name, 1.0, OURS))
            splits = 0 if ours is None else len(ours.by_seed)
            seen = f"yes: its scores led to {LED[name]}" if name in LED else "yes"
            seen = "never" if name in UNSEEN else seen
            facts = f"{rows[0]['n']:,} | {rows[0]['d']} | {splits} | {seen}"
            lines.append(f"| {name} | {source.subject} | {facts} |")
    return lines


def compared(scores: dict[Key, Scores], epsilon: float) -> list[str]:
    """Ours beside the best central competitor at one epsilon."""
    lines = [f"| table | {OURS} | best central | difference | {' | '.join(FREE)} |"]
    lines.append("|---|---|---|---|---|---|")
    for table in SOURCES:
        if (ours := scores.get((table, epsilon, OURS))) is not None:
            name, other = best(scores, table, epsilon)
            apart, around = ours.less(other)
            free = " | ".join(shown(scores.get((table, None, each))) for each in FREE)
            difference = f"{apart:+.3f} ± {around:.3f}"
            lines.append(
                f"| {table} | {shown(ours)} | {shown(other)} ({name}) | {difference} | {free} |"
            )
    return lines


def listed(scores: dict[Key, Scores], epsilon: float, names: tuple[str, ...]) -> list[str]:
    """Some methods at one epsilon."""
    lines = ["| table | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for table in SOURCES:
        each = [scores.get((table, epsilon, name)) for name in names]
        if any(each):
            lines.append(f"| {table} | " + " | ".join(map(shown, each)) + " |")
    return lines


def by_epsilon(scores: dict[Key, Scores], name: str) -> list[str]:
    """One method at all epsilons, and what no privacy scores."""
    epsilons = sorted({key[1] for key in scores if key[1] is not None})
    lines = ["| table | " + " | ".join(f"{each:g}" for each in epsilons) + " | not private |"]
    lines.append("|---" * (len(epsilons) + 2) + "|")
    for table in SOURCES:
        each = [scores.get((table, epsilon, name)) for epsilon in epsilons]
        if any(each):
            cells = [shown(found) for found in (*each, scores.get((table, None, FREE[0])))]
            lines.append(f"| {table} | " + " | ".join(cells) + " |")
    return lines


def draw(scores: dict[Key, Scores], path: Path) -> None:
    """Score against epsilon, a panel for each table."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    tables = [table for table in SOURCES if (table, 1.0, OURS) in scores]
    columns = 3
    figure, panels = plt.subplots(
        -(-len(tables) // columns), columns, figsize=(12, 3.1 * -(-len(tables) // columns))
    )
    flat = list(np.ravel(panels))
    for panel, table in zip(flat, tables, strict=False):
        for name, (color, style) in LINES.items():
            found = sorted(
                (key[1], each)
                for key, each in scores.items()
                if key[0] == table and key[2] == name and key[1] is not None
            )
            if found:
                x = [epsilon for epsilon, _ in found]
                y = [each.mean for _, each in found]
                around = [each.interval() if len(each.by_seed) >= MANY else 0 for _, each in found]
                panel.errorbar(x, y, around, color=color, ls=style, lw=1.4, capsize=2, label=name)
                panel.plot(x, y, "o", color=color, ms=2.5)
        free, constant = (scores[table, None, name].mean for name in FREE)
        panel.axhline(free, color="black", lw=0.8, label="not private")
        panel.axhline(constant, color="gray", lw=0.8, ls="--", label="constant")
        numbers = SOURCES[table].target_bounds is not None
        panel.set_xscale("log")
        panel.set_xlim(0.08, 12.5)
        panel.set_ylim(max(-0.5 if numbers else 0.3, constant - 0.35), free + 0.05)
        panel.set_title(f"{table}, {'R²' if numbers else 'accuracy'}", fontsize=10)
        panel.set_xlabel("epsilon")
    handles, labels = flat[0].get_legend_handles_labels()
    known = dict(zip(labels, handles, strict=True))
    for panel in flat:
        more = panel.get_legend_handles_labels()
        known |= dict(zip(more[1], more[0], strict=True))
    for panel in flat[len(tables) :]:
        panel.axis("off")
    flat[-1].legend(known.values(), known.keys(), fontsize=8, ncols=2, loc="center")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Print, and draw if asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("scores", type=Path)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--picture", type=Path)
    asked = parser.parse_args()
    records = [json.loads(line) for line in asked.scores.read_text().splitlines()]
    scores = collected(records)
    parts = [overview(records, scores), compared(scores, asked.epsilon)]
    parts += [listed(scores, asked.epsilon, names) for names in (CENTRAL, OTHERS, PERSONS)]
    parts += [by_epsilon(scores, name) for name in (OURS, "shuffle, persons")]
    sys.stdout.write("\n\n".join("\n".join(part) for part in parts) + "\n")
    if asked.picture is not None:
        draw(scores, asked.picture)


if __name__ == "__main__":
    main()
