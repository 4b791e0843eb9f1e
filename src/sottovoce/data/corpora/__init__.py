"""Kinds of corpora, one file each: a frozen spec whose verb `read` returns every utterance, or says why it cannot.

    LibriSpeech   the folders it is distributed in
    CommonVoice   the layout of version 13
    Table         any TSV, CSV, JSONL or Parquet table of recordings
    Lhotse        manifests of recordings and supervisions
    LhotseCuts    manifests of cuts
    Kaldi         data directories
    NeMo          manifests with one JSON object per line
    HuggingFace   datasets on disk, as Arrow or Parquet files
    Synthetic     speech that eSpeak NG generates

A kind of your own is a subclass of `CorpusSpec` in any module that is imported. To add one to the package, write one
file and import it here.
"""

from sottovoce.data.corpora.any_corpus import AnyCorpus, read_corpus
from sottovoce.data.corpora.commonvoice import CommonVoice
from sottovoce.data.corpora.huggingface import HuggingFace
from sottovoce.data.corpora.kaldi import Kaldi
from sottovoce.data.corpora.lhotse import Lhotse, LhotseCuts
from sottovoce.data.corpora.librispeech import LibriSpeech
from sottovoce.data.corpora.nemo import NeMo
from sottovoce.data.corpora.spec import CorpusSpec
from sottovoce.data.corpora.synthetic import Synthetic
from sottovoce.data.corpora.table import Table

__all__ = [
    "AnyCorpus",
    "CommonVoice",
    "CorpusSpec",
    "HuggingFace",
    "Kaldi",
    "Lhotse",
    "LhotseCuts",
    "LibriSpeech",
    "NeMo",
    "Synthetic",
    "Table",
    "read_corpus",
]
