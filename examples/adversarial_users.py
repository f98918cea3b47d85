"""Inject users that drop out, collude or lie: what becomes of the sum, of epsilon and of reports.

python examples/adversarial_users.py
"""

import numpy as np

from protocols import VectorSum
from shuffle_sim import Privacy, run
from shuffle_sim.arrays import Floats
from shuffle_sim.attacks.catalogue import attack
from shuffle_sim.protocol.adversary import AttackContext, Coalition

N, D = 5000, 2


class Push(Coalition):
    """An attack of one's own: everyone in the coalition claims the same vector."""

    def values(self, context: AttackContext, xs: Floats, rng: np.random.Generator) -> Floats:
        return np.full_like(xs, 1 / np.sqrt(D))


rows = np.random.default_rng(0).uniform(-0.5, 0.5, size=(N, D))
protocol = VectorSum.calibrated(n=N, d=D, privacy=Privacy(1.0, 1e-6), noise_ratio=1.1)
adversaries = {
    "nobody": None,
    "dropout": attack("dropout:rate=0.2"),
    "collude": attack("collude:fraction=0.2"),
    "sign-flip": attack("sign-flip:fraction=0.2"),
    "ones": attack("ones:fraction=0.05"),
    "garbage": attack("garbage:fraction=0.1"),
    "push": Push(0.2),
}
print(f"one standard error of the sum: {protocol.standard_error:.1f}")
print(f"{'attack':>9} {'error':>7} {'epsilon':>8} {'accepted':>8} {'dropped':>8} {'missing':>8}")
for name, adversary in adversaries.items():
    result = run(protocol, rows, adversary=adversary, seed=1)
    error = np.linalg.norm(result.value - rows.sum(axis=0))
    reports = result.reports
    print(
        f"{name:>9} {error:7.1f} {result.privacy.epsilon:8.3f} {reports.accepted:8} "
        f"{sum(reports.dropped.values()):8} {reports.missing:8}"
    )
