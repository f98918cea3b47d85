"""The demo's command after installation: seconds outside Ray's own start (target: at most 15)."""

import subprocess
import sys
from pathlib import Path

from benchmarks.clock import best

RAY_START = """
from actors.runtime import RayRuntime
runtime = RayRuntime()
runtime._connect()
runtime.close()
"""


def measure() -> dict[str, object]:
    script = str(Path(sys.executable).parent / "shuffle-sim")
    demo = [
        script,
        "sum",
        "--table",
        "breast-cancer",
        "--epsilon",
        "1",
        "--delta",
        "1e-5",
        "--runtime",
        "ray",
        "--workers",
        "2",
    ]
    whole = best(lambda: subprocess.run(demo, check=True, capture_output=True), 2)
    ray = best(
        lambda: subprocess.run([sys.executable, "-c", RAY_START], check=True, capture_output=True),
        2,
    )
    return {
        "demo_seconds": whole,
        "ray_start_and_stop_seconds": ray,
        "outside_ray_seconds": whole - ray,
        "target_seconds": 15.0,
    }
