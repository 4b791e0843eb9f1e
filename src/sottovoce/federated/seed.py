"""The seed model of a federated run: who it was trained on, as far as that can be known.

The guarantee is about what a run releases. It says nothing of what its seed model reveals, so a seed model that was
trained on some of the users voids it: that is an error wherever it can be seen.
"""

from pathlib import Path

from sottovoce.data.overlap import overlap_of
from sottovoce.data.population import Population
from sottovoce.data.selection import Selection
from sottovoce.errors import PrivacyError, SottoError
from sottovoce.files import sha256_of
from sottovoce.model.recogniser import model_path
from sottovoce.runs.documents import RunConfig, read_json

NONE = "none"


def describe_seed_model(checkpoint: Path | None, users: Population) -> str:
    """Say in a few words what the seed model was trained on; raise PrivacyError where its speakers are users."""
    if checkpoint is None:
        return NONE
    try:
        model = model_path(checkpoint)
    except SottoError:
        return "no longer there, trained on speakers that are not known"
    digest, begun = sha256_of(model), _begun(model)
    if begun is None:
        return f"sha256 {digest}, trained on speakers that are not known"
    known = True
    roles = ["train", "dev"] if begun.setting("data.dev") else ["train"]
    for role in roles:  # the best of its checkpoints was chosen on dev
        speakers = _speakers_of(begun, role)
        known = known and speakers is not None
        common = 0 if speakers is None else _common_speakers(speakers, users)
        if common:
            raise PrivacyError(
                f"The seed model {checkpoint} was made with {common} of the users ({role}): their audio is in it "
                "without noise. Split the speakers first."
            )
    before = begun.setting("data.seed_model")
    earlier = "" if before is None else f"; it began with: {describe_seed_model(Path(before), users)}"
    what = "other speakers" if known else "speakers that are no longer there to be compared"
    return f"sha256 {digest}, trained on {what}{earlier}"


def _speakers_of(begun: RunConfig, role: str) -> Population | None:
    """Return the speakers that a run was trained or evaluated on; None where that can no longer be known."""
    selection = begun.setting(f"data.{role}")
    if selection is None:
        return None
    try:
        speakers = Selection(**selection).open()
    except SottoError:
        return None
    dealt = role == "train" and begun.setting("users.iid")
    population = speakers.iid(begun.setting("seed")) if dealt else speakers
    same = population.hash in (begun.data.get(role), begun.data.get("users") if role == "train" else None)
    return speakers if same else None


def _begun(model: Path) -> RunConfig | None:
    """Return the configuration of the run that a model lies in: RUN/last/model.safetensors, or below checkpoints.

    A config.json of something else than a run says nothing.
    """
    for folder in (*model.absolute().parents[:2], *model.resolve().parents[:3]):
        if (folder / RunConfig.FILE).is_file():
            content = read_json(folder / RunConfig.FILE)
            ours = isinstance(content, dict) and isinstance(content.get("config"), dict)
            return RunConfig.read(folder) if ours else None
    return None


def _common_speakers(one: Population, other: Population) -> int:
    """Return how many users of the second population are heard in the first, by name or by audio."""
    return len(overlap_of(one, other).speakers)
