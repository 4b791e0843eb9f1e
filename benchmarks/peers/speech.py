"""The exported speech: what a user of another framework would load. Needs NumPy and PyTorch only."""

import json
from pathlib import Path

import numpy as np
import torch

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


class Speech:
    """Features and targets of all utterances, and who trains on which utterances in which step."""

    def __init__(self, folder: Path) -> None:
        """Open the files; features stay on disk until they are read."""
        self.features = np.load(folder / "features.npy", mmap_mode="r")
        index = np.load(folder / "index.npz")
        self.starts, self.targets, self.target_starts = index["starts"], index["targets"], index["target_starts"]
        self.tokens = int(index["tokens"])
        # schedule[t] is a list of (user, batches); a batch is a list of utterances.
        self.schedule: list[list[tuple[str, list[list[int]]]]] = json.loads((folder / "schedule.json").read_text())

    def padded(self, utterances: list[int], longest: int | None = None, rows: int | None = None) -> Batch:
        """Return features, frames, targets and their lengths, padded to the longest utterance or to what is given.

        Rows that are padding have one frame and no target: there are as many targets as utterances.
        """
        frames = [int(self.starts[place + 1] - self.starts[place]) for place in utterances]
        lengths = [int(self.target_starts[place + 1] - self.target_starts[place]) for place in utterances]
        count = rows or len(utterances)
        features = torch.zeros(count, longest or max(frames), self.features.shape[1])
        targets = torch.zeros(len(utterances), max(lengths), dtype=torch.long)
        for row, place in enumerate(utterances):
            features[row, : frames[row]] = torch.from_numpy(
                np.array(self.features[self.starts[place] : self.starts[place + 1]])
            )
            targets[row, : lengths[row]] = torch.from_numpy(
                self.targets[self.target_starts[place] : self.target_starts[place + 1]]
            )
        return features, torch.tensor(frames + [1] * (count - len(frames))), targets, torch.tensor(lengths)
