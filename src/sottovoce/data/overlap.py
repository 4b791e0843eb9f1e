"""What two populations have in common: speakers by name, and audio by its digests.

Dev, test and a seed model's speakers must not be the users. Within one store a name is one speaker, and both have the
speaker's audio. In two stores a name may be one person (a Common Voice client has the same id in every split) or two
(the `f1` of two corpora), which only the operator can know. Equal audio is never a coincidence: it is the same
recording, whatever the speaker is called.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sottovoce.data.digests import places_of_common
from sottovoce.data.population import Population


@dataclass(frozen=True)
class Overlap:
    """What the second of two populations shares with the first."""

    names: Sequence[str]  # of speakers in both, sorted
    same_store: bool  # so that a name is one speaker
    utterances: int  # of the second, whose audio is in the first, too
    speakers: Sequence[str]  # of the second, who are in the first by name or by audio, sorted


def overlap_of(one: Population, other: Population) -> Overlap:
    """Return what two populations have in common; the users of an IID control count as the speakers heard in them."""
    names = sorted({*one.heard()} & {*other.heard()})
    rows = other.all_rows()
    places = places_of_common(one.store.audio_digests[one.all_rows()], other.store.audio_digests[rows])
    heard = {*names, *other.store.speakers_of(rows[places])}
    return Overlap(names, one.store.info.hash == other.store.info.hash, len(places), sorted(heard))
