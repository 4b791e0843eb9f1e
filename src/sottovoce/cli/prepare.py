"""sotto data prepare KIND: from a corpus to a store."""

import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from pydantic import BaseModel, ValidationError

from sottovoce.cli.arguments import ALL_CORES, AsJson, DryRun, Out, Seed, Workers
from sottovoce.cli.config import Preset, Settings
from sottovoce.cli.console import ProgressDisplay, note, print_json, print_table, stdout
from sottovoce.config import resolve
from sottovoce.data.corpora import AnyCorpus, CommonVoice, Lhotse, LibriSpeech, Synthetic, Table
from sottovoce.data.joining import Joining
from sottovoce.data.preparation_cost import (
    estimate_preparation,
    estimate_synthetic_preparation,
    measure_extraction_speed,
)
from sottovoce.data.prepare import Request, prepare
from sottovoce.data.store import INFO, REJECTED, Store
from sottovoce.data.writer import read_rejected
from sottovoce.errors import ConfigError
from sottovoce.files import gigabytes, require_free

app = typer.Typer(
    help="Turn a corpus into a store of features. A killed preparation goes on when the same command is given again.",
    no_args_is_help=True,
)

Spec = TypeVar("Spec", bound=BaseModel)
MaxRejected = Annotated[
    float,
    typer.Option("--max-rejected", min=0, max=1, help="Stop when more than this share of utterances is unusable."),
]


def _help(spec: type[BaseModel], field: str) -> str:
    """Return the help text of an option, which is written once, at the field itself."""
    return (spec.model_fields[field].description or "").capitalize() + "."


def _default(spec: type[BaseModel], field: str) -> Any:
    return spec.model_fields[field].default


def _make(spec: type[Spec], **values: Any) -> Spec:
    """Validate options, with one line for what is wrong."""
    try:
        return spec(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = "-".join(str(part) for part in first["loc"][:1]).replace("_", "-")
        raise ConfigError(f"--{name} {first['input']!r} is not valid: {first['msg']}.") from None


def _run(request: Request, out: Path, workers: int, dry_run: bool, as_json: bool) -> None:
    if dry_run:
        say_what_would_be_done(request, out, workers, as_json)
        return
    started = time.monotonic()
    was_there = (out / INFO).exists()
    with ProgressDisplay() as progress:
        store = prepare(request, out, workers, progress)
    if was_there:
        note(f"{out} was there already, made from the same corpus with the same options: nothing was done.")
    _summarise(store, time.monotonic() - started, as_json)


def _summarise(store: Store, elapsed: float, as_json: bool) -> None:
    info = store.info
    reasons = Counter(str(one.reason) for one in read_rejected(store.path))
    if as_json:
        print_json(
            {
                "store": str(store.path),
                "label": info.label,
                "utterances": info.utterances,
                "speakers": info.speakers,
                "hours": info.seconds / 3600,
                "rejected": info.rejected,
                "reasons": dict(reasons),
                "hash": info.hash,
                "elapsed_seconds": elapsed,
            }
        )
        return
    rows = [
        ["utterances", f"{info.utterances:,}"],
        ["speakers", f"{info.speakers:,}"],
        ["hours", f"{info.seconds / 3600:.2f}"],
        ["rejected", f"{info.rejected:,}"],
        *([f"  {reason}", f"{count:,}"] for reason, count in reasons.most_common()),
        ["seconds taken", f"{elapsed:.1f}"],
        ["real time x", f"{info.seconds / elapsed:.0f}"],
    ]
    print_table(f"{store.path} ({info.label})", ["", ""], rows)
    if info.rejected:
        note(f"What was rejected, and why: {store.path / REJECTED}")


def say_what_would_be_done(request: Request, out: Path, workers: int, as_json: bool) -> None:
    """Estimate size and time from a sample; the disk is checked as for a real preparation."""
    corpus = request.corpus
    corpus.check()
    if isinstance(corpus, Synthetic):
        expected, rate = estimate_synthetic_preparation(corpus), corpus.expected_speed()
        label, speakers, rejected = corpus.label, corpus.speakers, 0
    else:
        with ProgressDisplay() as progress:
            manifest = request.manifest(out, workers, progress)
        expected, rate = estimate_preparation(manifest), measure_extraction_speed(manifest)
        label, speakers, rejected = manifest.label, len(manifest.table["speaker"].unique()), len(manifest.rejected)
    seconds = expected.seconds / max(rate * workers, 1e-9)
    require_free(out, expected.bytes)
    if as_json:
        print_json(
            {
                "dry_run": True,
                "store": str(out),
                "label": label,
                "utterances": expected.utterances,
                "speakers": speakers,
                "rejected_so_far": rejected,
                "hours": expected.seconds / 3600,
                "bytes": round(expected.bytes),
                "seconds": seconds,
            }
        )
        return
    if rejected > request.max_rejected * (expected.utterances + rejected):
        note(f"It would stop: {rejected:,} utterances are already more than --max-rejected {request.max_rejected:g}.")
    if (out / INFO).exists():
        note(f"{out} is there already and would not be overwritten.")
    stdout.print(
        f"Would make {out} from {label}: {expected.utterances:,} utterances of {speakers:,} speakers, about "
        f"{expected.seconds / 3600:.1f} h of audio, {gigabytes(expected.bytes)}, in about {seconds:.0f} s with "
        f"{workers} workers. {rejected:,} utterances are already known to be unusable.",
        soft_wrap=True,
        markup=False,
    )


@app.command()
def librispeech(
    root: Annotated[Path, typer.Argument(metavar="ROOT", help=_help(LibriSpeech, "root"))],
    subset: Annotated[list[str], typer.Option("--subset", help=_help(LibriSpeech, "subset") + " Repeat for several.")],
    out: Out,
    max_rejected: MaxRejected = 0.05,
    workers: Workers = ALL_CORES,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Prepare LibriSpeech from its own layout.

    Example: sotto data prepare librispeech corpora/LibriSpeech --subset LS-100 --out stores/ls-100
    """
    corpus = _make(LibriSpeech, root=root, subset=tuple(subset))
    _run(Request(corpus, max_rejected=max_rejected), out, workers, dry_run, as_json)


@app.command()
def commonvoice(
    root: Annotated[Path, typer.Argument(metavar="ROOT", help=_help(CommonVoice, "root"))],
    language: Annotated[str, typer.Option("--language", help=_help(CommonVoice, "language") + " en, fr or de.")],
    out: Out,
    split: Annotated[
        str, typer.Option("--split", help=_help(CommonVoice, "split") + " train, dev, test, validated.")
    ] = "train",
    max_rejected: MaxRejected = 0.05,
    workers: Workers = ALL_CORES,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Prepare one split of Common Voice in one language.

    Example: sotto data prepare commonvoice corpora/cv-corpus-13.0-2023-03-09 --language fr --out stores/cv-fr
    """
    corpus = _make(CommonVoice, root=root, language=language, split=split)
    _run(Request(corpus, max_rejected=max_rejected), out, workers, dry_run, as_json)


@app.command()
def table(
    file: Annotated[Path, typer.Argument(metavar="FILE", help=_help(Table, "file"))],
    out: Out,
    language: Annotated[
        list[str] | None, typer.Option("--language", help=_help(Table, "language"), show_default="en")
    ] = None,
    path_column: Annotated[str, typer.Option(help=_help(Table, "path_column"))] = "path",
    speaker_column: Annotated[str, typer.Option(help=_help(Table, "speaker_column"))] = "speaker",
    text_column: Annotated[str, typer.Option(help=_help(Table, "text_column"))] = "text",
    utterance_column: Annotated[str | None, typer.Option(help=_help(Table, "utterance_column"))] = None,
    language_column: Annotated[str | None, typer.Option(help=_help(Table, "language_column"))] = None,
    speaker_table: Annotated[Path | None, typer.Option(help=_help(Table, "speaker_table"))] = None,
    label: Annotated[str | None, typer.Option(help=_help(Table, "label"))] = None,
    concatenate: Annotated[
        str | None, typer.Option(metavar="LEAST:MOST", help="Join so many utterances of a speaker into one, e.g. 2:5.")
    ] = None,
    times: Annotated[
        int, typer.Option(min=1, help="Use every utterance so many times in --concatenate, in other company.")
    ] = 1,
    seed: Seed = 0,
    max_rejected: MaxRejected = 0.05,
    workers: Workers = ALL_CORES,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Prepare any table of recordings: TSV, CSV, JSONL or Parquet.

    It needs columns for the audio's path (relative to the table), the speaker and the text; further columns are kept.

    Example: sotto data prepare table audiomnist/index.tsv --concatenate 2:5 --out stores/digits
    """
    corpus = _make(
        Table,
        file=file,
        language=tuple(language or ["en"]),
        path_column=path_column,
        speaker_column=speaker_column,
        text_column=text_column,
        utterance_column=utterance_column,
        language_column=language_column,
        speaker_table=speaker_table,
        label=label,
    )
    joining = Joining.parse(concatenate, times, seed) if concatenate else None
    _run(Request(corpus, joining, max_rejected), out, workers, dry_run, as_json)


@app.command()
def lhotse(
    recordings: Annotated[Path, typer.Argument(metavar="RECORDINGS", help=_help(Lhotse, "recordings"))],
    supervisions: Annotated[Path, typer.Argument(metavar="SUPERVISIONS", help=_help(Lhotse, "supervisions"))],
    out: Out,
    language: Annotated[str, typer.Option(help=_help(Lhotse, "language") + " en, fr or de.")] = "en",
    audio_root: Annotated[Path | None, typer.Option(help=_help(Lhotse, "audio_root"))] = None,
    label: Annotated[str | None, typer.Option(help=_help(Lhotse, "label"))] = None,
    max_rejected: MaxRejected = 0.05,
    workers: Workers = ALL_CORES,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Prepare a corpus from its Lhotse manifests, so that every corpus with a Lhotse recipe works.

    Example: sotto data prepare lhotse recordings.jsonl.gz supervisions.jsonl.gz --out stores/mine
    """
    corpus = _make(
        Lhotse, recordings=recordings, supervisions=supervisions, language=language, audio_root=audio_root, label=label
    )
    _run(Request(corpus, max_rejected=max_rejected), out, workers, dry_run, as_json)


@app.command()
def synthetic(
    out: Out,
    speakers: Annotated[int, typer.Option(help=_help(Synthetic, "speakers"))] = _default(Synthetic, "speakers"),
    language: Annotated[
        list[str] | None,
        typer.Option("--language", help=_help(Synthetic, "languages") + " Repeat for several.", show_default="en"),
    ] = None,
    domain: Annotated[str, typer.Option(help=_help(Synthetic, "domain"))] = _default(Synthetic, "domain"),
    vocabulary: Annotated[int, typer.Option(help=_help(Synthetic, "vocabulary"))] = _default(Synthetic, "vocabulary"),
    mean_utterances: Annotated[float, typer.Option(help=_help(Synthetic, "mean_utterances"))] = _default(
        Synthetic, "mean_utterances"
    ),
    max_utterances: Annotated[int, typer.Option(help=_help(Synthetic, "max_utterances"))] = _default(
        Synthetic, "max_utterances"
    ),
    tail: Annotated[float, typer.Option(help=_help(Synthetic, "tail"))] = _default(Synthetic, "tail"),
    voices: Annotated[int | None, typer.Option(help=_help(Synthetic, "voices"))] = None,
    clean_snr_db: Annotated[float | None, typer.Option(help=_help(Synthetic, "clean_snr_db"))] = None,
    least_snr_db: Annotated[float, typer.Option(help=_help(Synthetic, "least_snr_db"))] = _default(
        Synthetic, "least_snr_db"
    ),
    band_share: Annotated[float, typer.Option(help=_help(Synthetic, "band_share"))] = _default(Synthetic, "band_share"),
    reverb_share: Annotated[float, typer.Option(help=_help(Synthetic, "reverb_share"))] = _default(
        Synthetic, "reverb_share"
    ),
    seed: Seed = 0,
    max_rejected: MaxRejected = 0.05,
    workers: Workers = ALL_CORES,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make speech with eSpeak NG and prepare it: many voices, two domains, three languages, no download.

    Needs the extra: pip install 'sottovoce[synthetic]' (eSpeak NG is under the GPL; it only ever generates audio). The
    audio stays in OUT/audio. The same options give the same bytes.

    Example: sotto data prepare synthetic --speakers 200 --language en --language fr --language de --out stores/voices
    """
    corpus = _make(
        Synthetic,
        speakers=speakers,
        languages=tuple(language or ["en"]),
        domain=domain,
        vocabulary=vocabulary,
        mean_utterances=mean_utterances,
        max_utterances=max_utterances,
        tail=tail,
        voices=voices,
        clean_snr_db=clean_snr_db,
        least_snr_db=least_snr_db,
        band_share=band_share,
        reverb_share=reverb_share,
        seed=seed,
    )
    _run(Request(corpus, max_rejected=max_rejected), out, workers, dry_run, as_json)


@app.command()
def preset(
    preset: Preset,
    out: Out,
    settings: Settings = None,
    max_rejected: MaxRejected = 0.05,
    workers: Workers = ALL_CORES,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Prepare the corpus that a preset names.

    Example: sotto data prepare preset librispeech --set corpus.root=/data/LibriSpeech --out stores/ls-960
    """
    config = resolve(preset, settings or []).config
    corpus: AnyCorpus = config.corpus
    _run(Request(corpus, config.joining, max_rejected), out, workers, dry_run, as_json)
