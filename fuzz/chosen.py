"""What a session of the fuzzer was asked for."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Chosen:
    """The inputs, the seed, and the command lines to start from."""

    inputs: Path
    seed: int
    quick: bool = False  # only commands that need no trained model
    only: str = ""  # what their words begin with
