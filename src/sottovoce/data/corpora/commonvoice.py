"""Common Voice in the layout of version 13: LANGUAGE/{train,dev,test,validated}.tsv and LANGUAGE/clips/*.mp3."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from sottovoce.data.corpora.rows import Malformed, read_rows
from sottovoce.data.corpora.spec import CorpusSpec, require_folder
from sottovoce.data.manifest import Corpus, Entry, Reason, Rejection
from sottovoce.errors import DataError

_COLUMNS = ("client_id", "path", "sentence")


class CommonVoice(CorpusSpec):
    """Common Voice: sentences read aloud by volunteers; every `client_id` is a speaker."""

    kind: Literal["commonvoice"] = "commonvoice"
    root: Path = Field(description="the folder that contains en/, fr/ or de/ (cv-corpus-13.0-2023-03-09)")
    language: Literal["en", "fr", "de"] = Field(description="the language to read: en, fr or de")
    split: Literal["train", "dev", "test", "validated"] = Field(
        "train", description="the .tsv file to read: train, dev, test or validated"
    )

    @property
    def first_language(self) -> str:
        """The language of the corpus."""
        return self.language

    @property
    def paper_name(self) -> str:
        """The paper names language and split."""
        return f"CV-{self.language}-{self.split}"

    def read(self) -> Corpus:
        """Return the corpus with every clip of the split."""
        require_folder(self.root)
        folder = self.root / self.language
        table = folder / f"{self.split}.tsv"
        if not table.is_file():
            hint = f" Did you mean {self.root.absolute().parent}?" if (self.root / f"{self.split}.tsv").exists() else ""
            raise DataError(f"{table} does not exist. ROOT is the folder that contains {self.language}/.{hint}")
        return Corpus(self.paper_name, folder, (self.language,), self._rows(table))

    def _rows(self, table: Path) -> Iterator[Entry | Rejection]:
        advice = "Choose another ROOT: this table is not from Common Voice."
        for row in read_rows(table, dict.fromkeys(_COLUMNS, advice)):
            if isinstance(row, Malformed):
                yield Rejection(f"{table.name} {row.place}", "", Reason.MALFORMED_ROW, row.detail)
                continue
            extra = {name: value or None for name, value in row.items() if name not in _COLUMNS}
            clip = row["path"] or ""
            if not clip:
                yield Rejection("", row["client_id"] or "", Reason.MISSING_FILE, "the row names no clip")
                continue
            yield Entry(
                utterance=Path(clip).stem,
                speaker=row["client_id"] or "",
                text=row["sentence"] or "",
                language=self.language,
                paths=(f"clips/{clip}",),
                extra=extra,
            )
