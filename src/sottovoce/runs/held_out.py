"""Held-out sets: dev and test share neither speakers nor audio with training, nor with each other.

What a model does on its own users says nothing of others, and figures on dev and test are not covered by the guarantee:
where dev is a user, they would reveal that user.
"""

from collections.abc import Collection, Sequence

from sottovoce.data.overlap import overlap_of
from sottovoce.data.population import Population
from sottovoce.errors import DataError
from sottovoce.privacy.acceptance import Acceptance, require_accepted

_LEAVE_OUT = "Leave them out of one (`sotto data split`)."


def require_disjoint(
    one: Population, other: Population, names: tuple[str, str], accepted: Collection[Acceptance]
) -> None:
    """Raise where two populations share speakers or audio; `names` are those of the populations in the message.

    Speakers of one store raise DataError. Equal names in two stores raise PrivacyError, unless the operator states that
    they are different people, and so does equal audio under different names, unless the operator takes that risk.
    """
    common = overlap_of(one, other)
    both = f"{names[0]} and {names[1]}"
    if common.names and common.same_store:
        raise DataError(f"{both} share speaker {_listed(common.names)}. Split the speakers first.")
    if common.utterances:
        problem = f"{both} share audio, of speaker {_listed(common.speakers)}."
        require_accepted("same_audio", accepted, problem, _LEAVE_OUT)
    if common.names:
        problem = f"{both} are different stores with the same speaker {_listed(common.names)}."
        require_accepted("same_names", accepted, problem, _LEAVE_OUT)


def _listed(speakers: Sequence[str]) -> str:
    return repr(speakers[0]) if len(speakers) == 1 else f"{speakers[0]!r} and {len(speakers) - 1} more"
