"""sotto data prepare KIND: turn a corpus into a store."""

from typing import Annotated

import typer

from sottovoce.cli.arguments import ALL_CORES, AsJson, DryRun, MaxRejected, Out, Seed, Workers
from sottovoce.cli.config import Preset, Settings, configured
from sottovoce.cli.corpus_options import takes_corpus
from sottovoce.cli.preparation import run_preparation
from sottovoce.data.corpora import (
    CommonVoice,
    HuggingFace,
    Kaldi,
    Lhotse,
    LhotseCuts,
    LibriSpeech,
    NeMo,
    Synthetic,
    Table,
)
from sottovoce.data.joining import Joining
from sottovoce.data.preparation import MAX_REJECTED
from sottovoce.data.spelling import UnknownLetters

app = typer.Typer(
    help="Turn a corpus into a store of features. To resume an interrupted preparation, run the same command again.",
    no_args_is_help=True,
)

Letters = Annotated[
    UnknownLetters,
    typer.Option(
        "--unknown-letters",
        help="Texts with digits, signs or foreign letters: reject them or, for test sets, keep them, spelt out as "
        "far as possible.",
    ),
]
Bandwidth = Annotated[
    int | None,
    typer.Option(
        "--bandwidth-hz",
        help="Limit the audio to this bandwidth, as if it had been recorded at twice that rate, for example 4000.",
    ),
]


@app.command()
@takes_corpus(LibriSpeech, arguments=["root"])
def librispeech(
    corpus: LibriSpeech,
    out: Out,
    unknown_letters: Letters = "reject",
    bandwidth_hz: Bandwidth = None,
    max_rejected: MaxRejected = MAX_REJECTED,
    workers: Workers = ALL_CORES,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Prepare LibriSpeech from the folders it is distributed in.

    Example: sotto data prepare librispeech corpora/LibriSpeech --subset LS-100 --out stores/ls-100
    """
    run_preparation(
        corpus,
        out,
        unknown_letters=unknown_letters,
        bandwidth_hz=bandwidth_hz,
        max_rejected=max_rejected,
        workers=workers,
        dry_run=dry_run,
        as_json=as_json,
    )


@app.command()
@takes_corpus(CommonVoice, arguments=["root"])
def commonvoice(
    corpus: CommonVoice,
    out: Out,
    unknown_letters: Letters = "reject",
    bandwidth_hz: Bandwidth = None,
    max_rejected: MaxRejected = MAX_REJECTED,
    workers: Workers = ALL_CORES,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Prepare one split of Common Voice in one language.

    Example: sotto data prepare commonvoice corpora/cv-corpus-13.0-2023-03-09 --language fr --out stores/cv-fr
    """
    run_preparation(
        corpus,
        out,
        unknown_letters=unknown_letters,
        bandwidth_hz=bandwidth_hz,
        max_rejected=max_rejected,
        workers=workers,
        dry_run=dry_run,
        as_json=as_json,
    )


@app.command()
@takes_corpus(Table, arguments=["file"])
def table(
    out: Out,
    corpus: Table,
    concatenate: Annotated[
        str | None,
        typer.Option(metavar="LEAST:MOST", help="Join this many utterances of a speaker into one, for example 2:5."),
    ] = None,
    times: Annotated[
        int,
        typer.Option(
            min=1, max=1000, help="With --concatenate: use every utterance this many times, with other neighbours."
        ),
    ] = 1,
    seed: Seed = 0,
    unknown_letters: Letters = "reject",
    bandwidth_hz: Bandwidth = None,
    max_rejected: MaxRejected = MAX_REJECTED,
    workers: Workers = ALL_CORES,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Prepare any table of recordings: TSV, CSV, JSONL or Parquet.

    The table needs columns for the path of the audio (relative to the table), the speaker and the text. The index of
    the store keeps all other columns.

    Example: sotto data prepare table audiomnist/index.tsv --concatenate 2:5 --out stores/digits
    """
    joining = Joining.parse(concatenate, times, seed) if concatenate else None
    run_preparation(
        corpus,
        out,
        joining=joining,
        unknown_letters=unknown_letters,
        bandwidth_hz=bandwidth_hz,
        max_rejected=max_rejected,
        workers=workers,
        dry_run=dry_run,
        as_json=as_json,
    )


@app.command()
@takes_corpus(Lhotse, arguments=["recordings", "supervisions"])
def lhotse(
    out: Out,
    corpus: Lhotse,
    unknown_letters: Letters = "reject",
    bandwidth_hz: Bandwidth = None,
    max_rejected: MaxRejected = MAX_REJECTED,
    workers: Workers = ALL_CORES,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Prepare a corpus from its Lhotse manifests; this covers every corpus with a Lhotse recipe.

    Example: sotto data prepare lhotse recordings.jsonl.gz supervisions.jsonl.gz --out stores/corpus
    """
    run_preparation(
        corpus,
        out,
        unknown_letters=unknown_letters,
        bandwidth_hz=bandwidth_hz,
        max_rejected=max_rejected,
        workers=workers,
        dry_run=dry_run,
        as_json=as_json,
    )


@app.command("lhotse-cuts")
@takes_corpus(LhotseCuts, arguments=["cuts"])
def lhotse_cuts(
    out: Out,
    corpus: LhotseCuts,
    unknown_letters: Letters = "reject",
    bandwidth_hz: Bandwidth = None,
    max_rejected: MaxRejected = MAX_REJECTED,
    workers: Workers = ALL_CORES,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Prepare a corpus from a Lhotse manifest of cuts; every supervision of a cut is an utterance.

    Example: sotto data prepare lhotse-cuts cuts.jsonl.gz --out stores/corpus
    """
    run_preparation(
        corpus,
        out,
        unknown_letters=unknown_letters,
        bandwidth_hz=bandwidth_hz,
        max_rejected=max_rejected,
        workers=workers,
        dry_run=dry_run,
        as_json=as_json,
    )


@app.command()
@takes_corpus(Kaldi, arguments=["folder"])
def kaldi(
    out: Out,
    corpus: Kaldi,
    unknown_letters: Letters = "reject",
    bandwidth_hz: Bandwidth = None,
    max_rejected: MaxRejected = MAX_REJECTED,
    workers: Workers = ALL_CORES,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Prepare a Kaldi data directory: wav.scp, text, utt2spk and, where they exist, segments and spk2gender.

    wav.scp must name plain files: a command in it is refused and never run.

    Example: sotto data prepare kaldi data/train --out stores/train
    """
    run_preparation(
        corpus,
        out,
        unknown_letters=unknown_letters,
        bandwidth_hz=bandwidth_hz,
        max_rejected=max_rejected,
        workers=workers,
        dry_run=dry_run,
        as_json=as_json,
    )


@app.command()
@takes_corpus(HuggingFace, arguments=["place"])
def huggingface(
    out: Out,
    corpus: HuggingFace,
    unknown_letters: Letters = "reject",
    bandwidth_hz: Bandwidth = None,
    max_rejected: MaxRejected = MAX_REJECTED,
    workers: Workers = ALL_CORES,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Prepare a Hugging Face dataset on disk: a folder made by save_to_disk, or Parquet files. Nothing is downloaded.

    Example: sotto data prepare huggingface datasets/digits --speaker-column speaker_id --out stores/digits
    """
    run_preparation(
        corpus,
        out,
        unknown_letters=unknown_letters,
        bandwidth_hz=bandwidth_hz,
        max_rejected=max_rejected,
        workers=workers,
        dry_run=dry_run,
        as_json=as_json,
    )


@app.command()
@takes_corpus(NeMo, arguments=["manifest"])
def nemo(
    out: Out,
    corpus: NeMo,
    unknown_letters: Letters = "reject",
    bandwidth_hz: Bandwidth = None,
    max_rejected: MaxRejected = MAX_REJECTED,
    workers: Workers = ALL_CORES,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Prepare a NeMo manifest: lines with audio_filepath, text, speaker and, for a part of a file, offset and duration.

    Example: sotto data prepare nemo train_manifest.json --out stores/train
    """
    run_preparation(
        corpus,
        out,
        unknown_letters=unknown_letters,
        bandwidth_hz=bandwidth_hz,
        max_rejected=max_rejected,
        workers=workers,
        dry_run=dry_run,
        as_json=as_json,
    )


@app.command()
@takes_corpus(Synthetic)
def synthetic(
    out: Out,
    corpus: Synthetic,
    unknown_letters: Letters = "reject",
    bandwidth_hz: Bandwidth = None,
    max_rejected: MaxRejected = MAX_REJECTED,
    workers: Workers = ALL_CORES,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Generate speech with eSpeak NG and prepare it: many voices, two domains, three languages, no download.

    The extra `synthetic` installs eSpeak NG, which is under the GPL and only ever generates audio. The audio stays in
    OUT/audio. The same options give the same bytes.

    Example: sotto data prepare synthetic --speakers 200 --language en --language fr --language de --out stores/voices
    """
    run_preparation(
        corpus,
        out,
        unknown_letters=unknown_letters,
        bandwidth_hz=bandwidth_hz,
        max_rejected=max_rejected,
        workers=workers,
        dry_run=dry_run,
        as_json=as_json,
    )


@app.command()
def preset(
    preset: Preset,
    out: Out,
    settings: Settings = None,
    unknown_letters: Letters = "reject",
    bandwidth_hz: Bandwidth = None,
    max_rejected: MaxRejected = MAX_REJECTED,
    workers: Workers = ALL_CORES,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Prepare the corpus that a preset names.

    Example: sotto data prepare preset librispeech --set corpus.root=/data/LibriSpeech --out stores/ls-960
    """
    config = configured(preset, settings).config
    run_preparation(
        config.corpus,
        out,
        joining=config.joining,
        unknown_letters=unknown_letters,
        bandwidth_hz=config.features.bandwidth_hz if bandwidth_hz is None else bandwidth_hz,
        max_rejected=max_rejected,
        workers=workers,
        dry_run=dry_run,
        as_json=as_json,
    )
