"""A trust model of your own: a service adds the values, and nobody else sees one of them."""

from protocols.central.record.sums import CentralSum
from shuffle_sim.privacy.trust import Trust

AGGREGATOR = Trust(
    "aggregator",
    trusted="aggregator",
    protects="the sum",
    colour="tab:green",
    assumption="an aggregator that releases the sum alone",
    ratio=1.0,
)


class AggregatedSum(CentralSum):
    """The curator's sum, simulated: the aggregator adds its noise."""

    family, trust = "aggregated", AGGREGATOR
