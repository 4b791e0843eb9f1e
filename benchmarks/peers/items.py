"""The work that all frameworks do: users, local batches and the network. Needs only the standard library."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

CLIP_NORM = 0.1
LOCAL_LR = 0.1
GRADIENT_CLIP = 1.0
NOISE = 1e-4  # sigma_dp; for the others noise of the same std on the average
FRAMES_PER_SECOND = 100


@dataclass(frozen=True)
class Item:
    """One comparison. In the network `ours` everyone wraps our encoder; in `plain` others write it in PyTorch."""

    name: str
    about: str
    speakers: int
    mean_utterances: float
    max_utterances: int
    cohort: int
    local_steps: int
    batch_seconds: float
    blocks: int
    width: int
    heads: int
    mlp_width: int
    network: str
    one_batch: bool  # everyone computes a batch in one piece, so that only the machinery differs
    steps: int  # central steps, each of them one repetition

    @classmethod
    def read(cls, folder: Path) -> "Item":
        """Return the item of a folder that `export.py` wrote."""
        return cls(**json.loads((folder / "item.json").read_text()))

    def store(self, folder: Path) -> Path:
        """Return where the store is: items with the same speakers share it."""
        return folder.parent / f"store-{self.speakers}"

    def write(self, folder: Path) -> None:
        """Write the item into a folder."""
        (folder / "item.json").write_text(json.dumps(asdict(self), indent=1))


_TINY: dict[str, Any] = {"blocks": 4, "width": 96, "heads": 4, "mlp_width": 384}
ITEMS = {
    item.name: item
    for item in (
        Item(
            "speech",
            "256 speakers with a heavy tail of utterances, 10 local steps, 0.55M parameters",
            **{"speakers": 256, "mean_utterances": 12, "max_utterances": 120, "cohort": 32, "local_steps": 10},
            **{"batch_seconds": 30.0, "network": "plain", "one_batch": False, "steps": 5, **_TINY},
        ),
        Item(
            "identical",
            "identical batches and our encoder under everyone: only the machinery differs",
            **{"speakers": 256, "mean_utterances": 12, "max_utterances": 120, "cohort": 32, "local_steps": 2},
            **{"batch_seconds": 30.0, "network": "ours", "one_batch": True, "steps": 10, **_TINY},
        ),
        Item(
            "crowd",
            "2,000 users with one utterance each and a very small model",
            **{"speakers": 2000, "mean_utterances": 1, "max_utterances": 1, "cohort": 500, "local_steps": 1},
            **{"batch_seconds": 30.0, "network": "plain", "one_batch": False, "steps": 8},
            **{"blocks": 1, "width": 32, "heads": 2, "mlp_width": 64},
        ),
        Item(
            "large",
            "50M parameters, cohorts of 4",
            **{"speakers": 256, "mean_utterances": 12, "max_utterances": 120, "cohort": 4, "local_steps": 2},
            **{"batch_seconds": 30.0, "network": "plain", "one_batch": False, "steps": 5},
            **{"blocks": 16, "width": 512, "heads": 8, "mlp_width": 2048},
        ),
    )
}
