"""LibriSpeech as it is distributed: SUBSET/SPEAKER/CHAPTER/*.flac and *.trans.txt, with SPEAKERS.TXT at the top."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from sottovoce.data.corpora.spec import CorpusSpec, require_folder
from sottovoce.data.manifest import Corpus, Entry, Reason, Rejection
from sottovoce.errors import DataError
from sottovoce.reading import read_bounded

# The training sets as the paper names them.
_PAPER_NAMES = {
    "LS-100": ("train-clean-100",),
    "LS-360": ("train-clean-360",),
    "LS-500": ("train-other-500",),
    "LS-860": ("train-clean-360", "train-other-500"),
    "LS-960": ("train-clean-100", "train-clean-360", "train-other-500"),
}


class LibriSpeech(CorpusSpec):
    """LibriSpeech: English books, read aloud."""

    kind: Literal["librispeech"] = "librispeech"
    root: Path = Field(description="the folder that contains dev-clean, train-clean-100, ... and SPEAKERS.TXT")
    subset: tuple[str, ...] = Field(
        min_length=1, description="subsets such as dev-clean, or LS-100, LS-360, LS-500, LS-860, LS-960"
    )

    @property
    def paper_name(self) -> str:
        """The subset, where there is only one."""
        return self.subset[0] if len(self.subset) == 1 else ""

    def read(self) -> Corpus:
        """Return the corpus with every utterance of the subsets."""
        require_folder(self.root)
        subsets = self._folders()
        return Corpus(_label(subsets), self.root, ("en",), self._rows(subsets))

    def _folders(self) -> list[str]:
        wanted = dict.fromkeys(folder for name in self.subset for folder in _PAPER_NAMES.get(name, (name,)))
        for name in wanted:
            if not (self.root / name).is_dir():
                folders = sorted(path.name for path in self.root.iterdir() if path.is_dir())
                raise DataError(
                    f"{self.root} has no subset {name}. It contains: {', '.join(folders) or 'no folders'}; "
                    f"the names {', '.join(_PAPER_NAMES)} are understood too."
                )
        return list(wanted)

    def _rows(self, subsets: list[str]) -> Iterator[Entry | Rejection]:
        sex = _read_sex(self.root / "SPEAKERS.TXT")
        for subset in subsets:
            # glob would treat a folder without read permission as empty; iterdir raises an error.
            for speaker in sorted(path for path in (self.root / subset).iterdir() if path.is_dir()):
                for path in sorted(speaker.iterdir()):
                    if path.is_dir():
                        yield from _chapter(path, self.root, subset, sex)
                    elif path.suffix == ".flac":
                        detail = f"{path.relative_to(self.root)} is in no chapter"
                        yield Rejection(path.stem, speaker.name, Reason.NO_TRANSCRIPT, detail)


def _label(subsets: list[str]) -> str:
    for name, folders in _PAPER_NAMES.items():
        if set(folders) == set(subsets):
            return name
    return "+".join(subsets)


def _chapter(chapter: Path, root: Path, subset: str, sex: dict[str, str]) -> Iterator[Entry | Rejection]:
    """Yield an entry for every transcript, and a rejection for every recording without one."""
    speaker = chapter.parent.name
    transcripts = read_transcripts(chapter / f"{speaker}-{chapter.name}.trans.txt")
    extra = {"subset": subset, "chapter": chapter.name, "sex": sex.get(speaker)}
    for utterance, text in transcripts:
        path = chapter.relative_to(root) / f"{utterance}.flac"
        yield Entry(utterance, speaker, text, "en", (str(path),), extra=extra)
    known = {utterance for utterance, _ in transcripts}
    for path in sorted(chapter.iterdir()):
        if path.suffix == ".flac" and path.stem not in known:
            yield Rejection(path.stem, speaker, Reason.NO_TRANSCRIPT, f"file {path.relative_to(root)}")


def read_transcripts(path: Path) -> list[tuple[str, str]]:
    """Return the utterances of a chapter and their texts; none where the file does not exist."""
    if not path.exists():
        return []
    lines = read_bounded(path).decode(errors="replace").splitlines()
    return [(utterance, text) for utterance, _, text in (line.partition(" ") for line in lines) if utterance]


def _read_sex(path: Path) -> dict[str, str]:
    """Return the sex column of SPEAKERS.TXT by speaker; empty if the file does not exist."""
    if not path.exists():
        return {}
    lines = read_bounded(path).decode(errors="replace").splitlines()
    rows = [line.split("|") for line in lines if not line.startswith(";")]
    return {row[0].strip(): row[1].strip() for row in rows if len(row) > 1}
