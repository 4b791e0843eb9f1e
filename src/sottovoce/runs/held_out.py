"""Held-out sets: dev and test share neither speakers nor audio with training, nor with each other.

What a model does on its own users says nothing of others, and figures on dev and test are not covered by the guarantee:
where dev is a user, they would reveal that user.
"""

from collections.abc import Collection

from sottovoce.data.overlap import overlap
from sottovoce.data.population import Population
from sottovoce.errors import DataError
from sottovoce.privacy.acceptance import Acceptance, require_accepted


def require_disjoint(
    one: Population, other: Population, names: tuple[str, str], accepted: Collection[Acceptance]
) -> None:
    """Raise DataError where two populations share audio, whatever the speakers are called.

    Equal names in different stores raise PrivacyError, unless the operator states that they are different people.
    `names` are those of the populations in the message.
    """
    common = overlap(one, other)
    if common.utterances:
        raise DataError(
            f"{names[0]} and {names[1]} share {common.utterances} utterances, such as some of {common.speakers[0]!r}. "
            "Split the speakers first."
        )
    if common.names:
        problem = f"{len(common.names)} speakers of {names[0]} and {names[1]} have equal names, such as"
        require_accepted(
            "same_names", accepted, f"{problem} {common.names[0]!r}.", "Leave them out of one (`sotto data split`)."
        )
