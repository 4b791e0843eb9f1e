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
        """Read STORE or STORE@SPEAKERS. Names may hold further @: what exists decides which one separates."""
        cuts = [place for place, letter in enumerate(text) if letter == "@"]
        readings = [
            cls(store=Path(text)),
            *(cls(store=Path(text[:cut]), speakers=Path(text[cut + 1 :])) for cut in reversed(cuts)),
        ]
        whole = [reading for reading in readings if reading._exists()]
        if len(whole) > 1:
            stores = " and ".join(str(reading.store) for reading in whole)
            raise DataError(f"{text} can mean the stores {stores}. Rename one of them, or its list of speakers.")
        if whole or not cuts:
            return (whole or readings)[0]
        # Something is missing: name it where a store is, or else at the last @.
        return next((reading for reading in readings if reading.store.is_dir()), readings[1])

    def _exists(self) -> bool:
        return self.store.is_dir() and (self.speakers is None or self.speakers.exists())

    def open(self) -> Population:
        """Open the store and return all its speakers, or the listed ones, as a population."""
        store = Store.open(self.store)
        population = Population.of(store, None if self.speakers is None else read_speakers(self.speakers))
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
