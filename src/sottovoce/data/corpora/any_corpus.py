"""The union of all kinds of corpora, and how to read any of them."""

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

AnyCorpus = LibriSpeech | CommonVoice | Table | Lhotse | Synthetic
CorpusOption = Annotated[AnyCorpus, Field(discriminator="kind")]


def read_corpus(spec: AnyCorpus, folder: Path, *, workers: int, progress: Progress) -> Corpus:
    """Return the utterances of a corpus; a synthetic corpus is generated in `folder` first."""
    if not isinstance(spec, Synthetic):
        return spec.read()
    index = generate(spec, folder, workers, lambda done, total: progress("speech", done, total))
    return Table(file=index, language=spec.languages, language_column="language", label=spec.label).read()
