"""Run all benchmarks, or those named: python -m benchmarks [name ...].

Results go to benchmarks/results/<name>.json.
"""

import importlib
import json
import os
import platform
import sys
from pathlib import Path

import numpy as np

NAMES = (
    "literal_round",
    "placement",
    "studies",
    "hops",
    "workers",
    "ahead",
    "planning",
    "startup",
    "scale",
    "carries",
    "dense",
    "moved",
    "growth",
    "memory",
    "model",
    "training",
    "fit",
    "persons",
    "uneven_persons",
    "onion",
    "certified",
    "tuning",
    "simulate",
    "year",
    "long_sums",
    "stopped",
    "peer",
    "counts",
    "families",
    "ratios",
    "frequencies",
)


def machine() -> dict[str, object]:
    """What a result was measured on."""
    model = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    return {
        "cores": os.cpu_count(),
        "cpu": model[0] if model else "?",
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def main() -> None:
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    for name in sys.argv[1:] or NAMES:
        print(f"{name} ...", flush=True)
        result = {
            "benchmark": name,
            "machine": machine(),
            **importlib.import_module(f"benchmarks.{name}").measure(),
        }
        (folder / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
