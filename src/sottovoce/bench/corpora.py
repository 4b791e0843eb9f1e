"""The speech of a benchmark: its corpora as stores, and its parts as lists of speakers.

OUT/corpora/NAME-HASH           a store, prepared from the corpus that the benchmark describes
OUT/corpora/parts/*.txt         the speakers of a part, one per line

Corpora are shared by all benchmarks below one OUT: the same description is the same store.
"""

import hashlib
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

from sottovoce.bench.locks import Say, lock_path, look_anew, silent, waiting_for
from sottovoce.bench.preset import Part, Size
from sottovoce.data.preparation import MAX_REJECTED, prepare
from sottovoce.data.selection import Selection
from sottovoce.data.splits import split_by_column
from sottovoce.data.store import Store
from sottovoce.errors import ConfigError, DataError
from sottovoce.files import make_folder, written_whole
from sottovoce.processes import Progress
from sottovoce.randomness import rank

_SPLIT_SEED = 0  # who is held out does not change with the seed of a run


def prepare_parts(
    size: Size,
    wanted: Iterable[str],
    out: Path,
    workers: int,
    progress: Progress,
    *,
    max_rejected: float = MAX_REJECTED,
    say: Say = silent,
) -> dict[str, Selection]:
    """Prepare the stores that the wanted parts need, unless they exist, and return the parts.

    What another command is preparing at this moment is waited for.
    """
    names = sorted(set(wanted))
    for corpus in sorted({size.parts[name].corpus for name in names}):
        path = store_path(size, corpus, out)
        if not path.exists():
            with waiting_for(lock_path(out, path.name), f"the corpus {corpus}", say):
                look_anew(path.parent)
                if not path.exists():
                    request = size.request(corpus)
                    prepare(
                        request.corpus,
                        path,
                        joining=request.joining,
                        unknown_letters=request.unknown_letters,
                        bandwidth_hz=request.bandwidth_hz,
                        max_rejected=max_rejected,
                        workers=workers,
                        progress=progress,
                    )
    return {name: selection for name in names if (selection := find_part(size, name, out, make=True)) is not None}


def store_path(size: Size, corpus: str, out: Path) -> Path:
    """Return where the store of a corpus is, or would be."""
    return out / "corpora" / f"{corpus}-{size.request(corpus).hash[:10]}"


def unprepared(size: Size, wanted: Iterable[str], out: Path) -> list[str]:
    """Return the corpora that some parts need and that are not prepared yet."""
    return [
        name
        for name in sorted({size.parts[part].corpus for part in wanted})
        if not store_path(size, name, out).exists()
    ]


def find_part(size: Size, name: str, out: Path, *, make: bool = False) -> Selection | None:
    """Return a part; None where its corpus is not prepared yet. `make` writes the list of its speakers."""
    part = size.parts[name]
    path = store_path(size, part.corpus, out)
    if not path.exists():
        return None
    spec = hashlib.sha256(f"{path.name} {part.model_dump_json()}".encode()).hexdigest()[:10]
    speakers = out / "corpora" / "parts" / f"{name.replace('/', '-')}-{spec}.txt"
    if not speakers.exists():
        if not make:
            return None
        chosen = choose(Store.open(path), part)
        make_folder(speakers.parent)
        with written_whole(speakers, private=True) as file:
            file.writelines(f"{speaker}\n".encode() for speaker in chosen)
    return Selection(store=path, speakers=speakers)


def choose(store: Store, part: Part) -> list[str]:
    """Return the speakers of a part, sorted."""
    speakers = store.speaker_names().to_pylist()
    for column, value in part.where.items():
        kept = set(_with_value(store, column, value))
        speakers = [speaker for speaker in speakers if speaker in kept]
    begin, _, end = part.speakers.partition(":")
    first, last = _count(begin, len(speakers), 0), _count(end, len(speakers), len(speakers))
    chosen = sorted(rank(_SPLIT_SEED, "split", speakers)[first:last])
    if not chosen:
        raise DataError(
            f"The part {part.speakers!r} of {store.path} has no speaker: the slice is outside the "
            f"{len(speakers)} speakers. Change the slice."
        )
    return chosen


def _with_value(store: Store, column: str, value: str) -> list[str]:
    values = set(store.index([column])[column].to_pylist()) if column in store.index_columns() else set()
    return store.speaker_names().to_pylist() if values == {value} else split_by_column(store, column, value)[0]


def _count(text: str, total: int, missing: int) -> int:
    """Read "24" or "10%" of the speakers, rounded down as in the paper."""
    if not text:
        return missing
    number = Fraction(text.rstrip("%"))
    count = number * total / 100 if text.endswith("%") else number
    if count > total:
        raise ConfigError(f"Expected at most {total} speakers, not {text}.")
    return int(count)
