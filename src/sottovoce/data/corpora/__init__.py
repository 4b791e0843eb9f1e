"""Every kind of corpus, each with one verb: read."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from sottovoce.data.corpora.commonvoice import CommonVoice
from sottovoce.data.corpora.lhotse import Lhotse
from sottovoce.data.corpora.librispeech import LibriSpeech
from sottovoce.data.corpora.synthetic import Synthetic, generate
from sottovoce.data.corpora.table import Table
from sottovoce.data.manifest import Corpus
from sottovoce.processes import Progress

__all__ = ["AnyCorpus", "CommonVoice", "CorpusOption", "Lhotse", "LibriSpeech", "Synthetic", "Table", "read_corpus"]

AnyCorpus = LibriSpeech | CommonVoice | Table | Lhotse | Synthetic
CorpusOption = Annotated[AnyCorpus, Field(discriminator="kind")]


def read_corpus(spec: AnyCorpus, folder: Path, workers: int, progress: Progress) -> Corpus:
    """Find the utterances of a corpus; a synthetic one is made inside `folder` first."""
    if isinstance(spec, Synthetic):
        index = generate(spec, folder, workers, lambda done, total: progress("speech", done, total))
        return Table(
            file=index,
            language=spec.languages,
            language_column="language",
            label=spec.label,
        ).read()
    return spec.read()
