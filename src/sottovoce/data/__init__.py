"""From corpora to populations: everything that turns recordings into the data of a training.

    corpora       LibriSpeech, CommonVoice, Table, Lhotse, Synthetic: what to read, and from where
    preparation   `prepare` turns a corpus into a Store; `merge` joins several stores; `Joining` joins short utterances;
                  `upgrade` completes a store of an older version
    populations   Population: the users of a store; Selection: a store and a list of its speakers;
                  `overlap_of`: what two populations have in common
    splits        `split_by_fraction` and others: two disjoint lists of speakers
    training      Batching: batches by seconds of audio; `draw_cohort`: the users of one central step
    text          TokenSet: the tokens of a language; `normalise`: a transcript as the recogniser learns it
    statistics    `statistics_of`: hours, speakers, and minutes per speaker

Example:
    from pathlib import Path
    from sottovoce.data import LibriSpeech, Population, prepare

    store = prepare(LibriSpeech(root=Path("LibriSpeech"), subset=("LS-100",)), "stores/ls-100")
    seed_speakers, federated_speakers = Population.of(store).split("0.1", seed=0)

Names are loaded when they are first used. None of them loads torch.
"""

from typing import TYPE_CHECKING

from sottovoce.lazy_names import lazy_names

if TYPE_CHECKING:
    from sottovoce.data.batching import Batch, Batching, PaddedBatch
    from sottovoce.data.cohort import draw_cohort, poisson_cohort
    from sottovoce.data.corpora import AnyCorpus, CommonVoice, Lhotse, LibriSpeech, Synthetic, Table
    from sottovoce.data.joining import Joining
    from sottovoce.data.merging import merge
    from sottovoce.data.overlap import Overlap, overlap_of
    from sottovoce.data.population import Population
    from sottovoce.data.preparation import Request, prepare
    from sottovoce.data.selection import Selection, read_speakers
    from sottovoce.data.splits import split_by_column, split_by_count, split_by_fraction, split_by_list
    from sottovoce.data.statistics import SpeakerStatistics, paper_statistics, statistics_of
    from sottovoce.data.store import Store, StoreInfo
    from sottovoce.data.text import LANGUAGES, TokenSet, normalise
    from sottovoce.data.upgrading import upgrade

__all__ = [
    "LANGUAGES",
    "AnyCorpus",
    "Batch",
    "Batching",
    "CommonVoice",
    "Joining",
    "Lhotse",
    "LibriSpeech",
    "Overlap",
    "PaddedBatch",
    "Population",
    "Request",
    "Selection",
    "SpeakerStatistics",
    "Store",
    "StoreInfo",
    "Synthetic",
    "Table",
    "TokenSet",
    "draw_cohort",
    "merge",
    "normalise",
    "overlap_of",
    "paper_statistics",
    "poisson_cohort",
    "prepare",
    "read_speakers",
    "split_by_column",
    "split_by_count",
    "split_by_fraction",
    "split_by_list",
    "statistics_of",
    "upgrade",
]

__getattr__ = lazy_names(
    __name__,
    {
        "batching": "Batch Batching PaddedBatch",
        "cohort": "draw_cohort poisson_cohort",
        "corpora": "AnyCorpus CommonVoice Lhotse LibriSpeech Synthetic Table",
        "joining": "Joining",
        "merging": "merge",
        "overlap": "Overlap overlap_of",
        "population": "Population",
        "preparation": "Request prepare",
        "selection": "Selection read_speakers",
        "splits": "split_by_column split_by_count split_by_fraction split_by_list",
        "statistics": "SpeakerStatistics paper_statistics statistics_of",
        "store": "Store StoreInfo",
        "text": "LANGUAGES TokenSet normalise",
        "upgrading": "upgrade",
    },
)
