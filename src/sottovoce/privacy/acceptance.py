"""What an operator may state where the code cannot know: each statement by its name, recorded in the ledger.

A risk that can be seen is an error. Where the operator knows better, or takes the risk, `privacy.accept` names the
statement. The ledger's header holds its name, and the privacy statement prints its sentence.
"""

from collections.abc import Collection, Mapping
from typing import Literal

from sottovoce.errors import PrivacyError

Acceptance = Literal[
    "same_names", "same_audio", "unknown_seed_model", "other_users", "large_delta", "unprotected_runs", "public_dev"
]

SENTENCES: Mapping[Acceptance, str] = {
    "same_names": "speakers of equal names in different stores are different people",
    "same_audio": "some audio is held out and a user's, too, so that figures on dev and test may reveal that user",
    "unknown_seed_model": "the seed model's speakers could not be compared with the users, and are other people",
    "large_delta": "delta is not below 1/K, so that this epsilon promises little",
    "unprotected_runs": "other runs used these users, and the budget does not cover what they reveal",
    "public_dev": "dev is public speech of people who are no users, so that it may decide when the run ends",
    "other_users": "the users of the private run that the seed model comes from are other people",
}


def require_accepted(
    name: Acceptance, accepted: Collection[Acceptance], problem: str, otherwise: str, *, how: str | None = None
) -> None:
    """Raise PrivacyError where the operator has not stated this; `problem` and `otherwise` are whole sentences.

    `how` is the option of a command that states it; a training's setting where None.

    Example: `require_accepted("large_delta", privacy.accept, "delta is 1 and K is 5.", "Choose a smaller delta.")`
    """
    if name not in accepted:
        stated = f"--set privacy.accept=[{name}]. A ledger records it" if how is None else how
        raise PrivacyError(f"{problem} {otherwise} Or state that {SENTENCES[name]}: {stated}.")
