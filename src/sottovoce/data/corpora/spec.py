"""The common base of all corpora: frozen, validated options with one verb, `read`."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from sottovoce.data.manifest import Corpus
from sottovoce.errors import DataError


class CorpusSpec(BaseModel):
    """The options of one kind of corpus, used by the command line, by presets and in the record of a store.

    The description of a field is also the help text of its option on the command line. Defining a subclass with a
    `kind` of its own is enough: `prepare` takes it, and configurations that name its kind validate (`open_union`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str = Field(description="the kind of corpus")

    @property
    def first_language(self) -> str:
        """The language whose tokens an estimate assumes: English unless the corpus says otherwise."""
        return "en"

    @property
    def paper_name(self) -> str:
        """The name of the corpus in the paper's table of audio per user; empty where it has none."""
        return ""

    def check(self) -> None:
        """Raise an error if it is already clear that the corpus cannot be read or generated."""
        for _, path in self:
            if isinstance(path, Path) and not path.exists():
                raise DataError(f"{path} does not exist. Give the place of the corpus.")

    def read(self) -> Corpus:
        """Return the corpus with all its utterances, as `Entry` or, where one is unusable, as `Rejection`."""
        raise NotImplementedError


def require_folder(path: Path) -> None:
    """Raise DataError unless the path is a folder."""
    if not path.is_dir():
        fact = "is not a folder" if path.exists() else "does not exist"
        raise DataError(f"{path} {fact}. Give the folder of the corpus.")


def require_file(path: Path) -> None:
    """Raise DataError unless the path is a file."""
    if not path.is_file():
        raise DataError(f"{path} {'is not a file' if path.exists() else 'does not exist'}. Check the path.")
