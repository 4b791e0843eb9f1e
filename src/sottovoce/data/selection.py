"""The data of a training or an evaluation: a store, or some of its speakers."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from sottovoce.data.population import Population
from sottovoce.data.store import Store
from sottovoce.errors import DataError
from sottovoce.reading import LARGEST_LIST, read_bounded


class Selection(BaseModel):
    """A store and, optionally, a file that lists some of its speakers.

    Example:
        population = Selection.parse("stores/voices@split/seed.txt").open()
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: Path = Field(description="a store made by `sotto data prepare`")
    speakers: Path | None = Field(None, description="a file with one speaker per line; null: all speakers")

    @classmethod
    def parse(cls, text: str) -> "Selection":
        """Read STORE or STORE@SPEAKERS."""
        store, at, speakers = text.partition("@")
        return cls(store=Path(store), speakers=Path(speakers) if at else None)

    def open(self) -> Population:
        """Open the store and return all its speakers, or the listed ones, as a population."""
        names = None if self.speakers is None else read_speakers(self.speakers)
        population = Population.of(Store.open(self.store), names)
        if len(population.all_rows()) == 0:
            raise DataError(f"{self.speakers or self.store} selects no utterances. Name at least one speaker.")
        return population


def read_speakers(path: Path) -> list[str]:
    """Return the names in a file with one speaker per line."""
    try:
        lines = read_bounded(path, LARGEST_LIST).decode().splitlines()
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"{path} does not exist. Give a file with one speaker per line.") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is not a text file in UTF-8. Give a file with one speaker per line.") from None
    return [line.strip() for line in lines if line.strip()]
