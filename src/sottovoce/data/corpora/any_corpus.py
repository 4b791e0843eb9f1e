"""The open union of all kinds of corpora, and how to read any of them."""

from pathlib import Path
from typing import Annotated

from sottovoce.data.corpora.spec import CorpusSpec
from sottovoce.data.corpora.synthetic import Synthetic, generate
from sottovoce.data.corpora.table import Table
from sottovoce.data.manifest import Corpus
from sottovoce.open_union import OpenUnion
from sottovoce.processes import Progress

AnyCorpus = Annotated[CorpusSpec, OpenUnion(CorpusSpec, "kind", label="corpus")]


def read_corpus(spec: AnyCorpus, folder: Path, *, workers: int, progress: Progress) -> Corpus:
    """Return the utterances of a corpus; a synthetic corpus is generated in `folder` first."""
    if not isinstance(spec, Synthetic):
        return spec.read()
    index = generate(spec, folder, workers, lambda done, total: progress("speech", done, total))
    return Table(file=index, language=spec.languages, language_column="language", label=spec.label).read()
