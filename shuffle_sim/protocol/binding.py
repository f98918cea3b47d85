"""The event of a round is bound to what it broadcasts: what is charged is what is sent."""

from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.events import NonPrivateEvent, PrivacyEvent
from shuffle_sim.privacy.planner import honest_users
from shuffle_sim.protocol.query import Query
from shuffle_sim.protocol.randomizer import Randomizer

UNCHECKED = "the event is stated by the protocol, not checked: its randomizer derives none"
"""What a guarantee assumes where a round's event could not be derived."""
UNCONFIRMED = "a smaller epsilon is claimed by the protocol, which its charges do not confirm"
"""What a guarantee says where a protocol's own theorem promises more than what was charged."""


def checked_event(
    event: PrivacyEvent,
    randomizer: Randomizer,
    query: Query,
    cohort: Cohort,
    honest_fraction: float,
) -> bool:
    """Whether the event of a round is the one that its randomizer derives; False: it derives none.

    Fewer honest users than the cohort has may be counted on, never more than the fraction of it
    that is assumed honest.

    Raises:
        ParameterError: it is another release than the randomizer makes of the query's values.
    """
    if isinstance(event, NonPrivateEvent):
        return True  # it promises nothing
    most = honest_users(honest_fraction, cohort.size)
    derived = randomizer.event(most, query)
    if derived is None:
        return False
    # What is stated may count on fewer: then it is held against the event of that many.
    honest = getattr(event, "honest", most)
    counted = event.with_honest(most) == event  # what needs more users promises less, or nothing
    if counted and honest >= 1 and event in (derived, randomizer.event(honest, query)):
        return True
    raise ParameterError(
        "event", event, f"that of the randomizer and query which the round broadcasts: {derived}"
    )
