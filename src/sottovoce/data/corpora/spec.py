"""What every corpus has in common: frozen, validated options with one verb, `read`."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from sottovoce.data.manifest import Corpus
from sottovoce.errors import DataError


class CorpusSpec(BaseModel):
    """The options of one kind of corpus: the same for the command line, for presets and for the store's record."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def check(self) -> None:
        """Raise an error now if the corpus could not be made later."""

    def read(self) -> Corpus:
        """Find the utterances of the corpus."""
        raise NotImplementedError


def require_folder(path: Path) -> None:
    """Raise DataError unless the path is a folder."""
    if not path.is_dir():
        raise DataError(f"{path} is {'not a folder' if path.exists() else 'not there'}. Give the corpus' own folder.")


def require_file(path: Path) -> None:
    """Raise DataError unless the path is a file."""
    if not path.is_file():
        raise DataError(f"{path} is {'not a file' if path.exists() else 'not there'}. Check the path.")
