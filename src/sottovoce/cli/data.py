"""sotto data: check downloads, inspect, split, merge and upgrade stores, and export audio."""

import io
from pathlib import Path
from typing import Annotated

import pyarrow.compute as pc
import soundfile
import typer

from sottovoce.cli import checking, populations, prepare
from sottovoce.cli.arguments import AsJson, Seed, StorePath
from sottovoce.cli.console import ProgressDisplay, note, print_json, print_table
from sottovoce.cli.statistics import draw_speakers, print_statistics
from sottovoce.data.audio import BadAudio
from sottovoce.data.extract import load_audio
from sottovoce.data.population import Population
from sottovoce.data.selection import Selection, read_speakers
from sottovoce.data.statistics import statistics_of
from sottovoce.data.store import IndexRow, Store
from sottovoce.data.upgrading import upgrade as upgrade_store
from sottovoce.data.writer import read_rejected
from sottovoce.errors import ConfigError, DataError
from sottovoce.features.logmel import SAMPLE_RATE_HZ
from sottovoce.files import make_folder, require_target, written_whole

app = typer.Typer(no_args_is_help=True)
app.add_typer(prepare.app, name="prepare")
app.add_typer(checking.app, name="check")
app.command("split")(populations.split)
app.command("merge")(populations.merge_stores)

SpeakerList = Annotated[
    Path | None, typer.Option("--speakers", help="Only these speakers of all stores: a file with one name per line.")
]


@app.command()
def stats(
    stores: Annotated[
        list[str], typer.Argument(metavar="STORE[@SPEAKERS]...", help="One or more stores, or parts of them.")
    ],
    speakers: SpeakerList = None,
    iid: Annotated[
        bool, typer.Option("--iid", help="The IID control: every utterance belongs to a random user.")
    ] = False,
    seed: Seed = 0,
    figure: Annotated[
        Path | None, typer.Option("--figure", help="The PNG file for the figure.", show_default="speakers.png")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print speaker statistics as in the paper's table, and draw their distribution.

    The figure shows how many speakers have how many minutes and utterances. It is written to speakers.png in the
    working folder, unless --figure names another file.

    Example: sotto data stats stores/digits --figure digits.png
    """
    picture = figure or Path("speakers.png")
    require_target(picture, ending=".png")
    names = read_speakers(speakers) if speakers else None
    shown: dict[str, Population] = {}
    for place in stores:
        selection = Selection.parse(place)
        part = selection.speakers
        population = Population.of(Store.open(selection.store), names) if part is None else selection.open()
        label = population.store.info.label if part is None else f"{population.store.info.label} {part.stem}"
        label = label if label not in shown else f"{label} ({place})"
        if iid:
            label, population = f"{label} (IID)", population.iid(seed)
        shown[label] = population
    print_statistics([statistics_of(label, population) for label, population in shown.items()], picture, as_json)
    draw_speakers(shown, picture)


@app.command()
def inspect(
    store: StorePath,
    speaker: Annotated[str | None, typer.Option("--speaker", help="Only the utterances of this speaker.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Number of rows to show.")] = 20,
    rejected: Annotated[
        bool, typer.Option("--rejected", help="Show the rejected utterances and the reasons instead.")
    ] = False,
    verify: Annotated[bool, typer.Option("--verify", help="First read every file and check its hash.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the utterances of a store, or of one speaker.

    Example: sotto data inspect stores/digits --rejected
    """
    opened = Store.open(store)
    if verify:
        _verify(opened)
    if rejected:
        _show_rejected(opened, limit, as_json)
        return
    rows = slice(0, len(opened))
    if speaker is not None:
        number = int(opened.speaker_numbers([speaker])[0])
        rows = slice(int(opened.speaker_offsets[number]), int(opened.speaker_offsets[number + 1]))
    total = rows.stop - rows.start
    table = opened.index(rows=slice(rows.start, min(rows.start + limit, rows.stop)))
    if as_json:
        print_json({"store": str(store), "hash": opened.info.hash, "total": total, "utterances": table.to_pylist()})
        return
    shown = [
        [row["utterance"], row["speaker"], row["text"], f"{row['seconds']:.2f}", str(row["frames"])]
        for row in table.to_pylist()
    ]
    print_table(f"{store} ({opened.info.label})", ["utterance", "speaker", "text", "seconds", "frames"], shown, 3)
    if total > limit:
        note(f"{limit} of {total:,} utterances; --limit shows more, --json all columns.")


def _verify(store: Store) -> None:
    damaged = store.damaged_files()
    if damaged:
        raise DataError(f"{store.path} is damaged: {', '.join(damaged)} changed since it was made. Prepare it again.")
    note(f"{store.path}: all files are unchanged.")


def _show_rejected(store: Store, limit: int, as_json: bool) -> None:
    rejected = read_rejected(store.path)
    rows = [[item.utterance, item.speaker, str(item.reason), item.detail] for item in rejected[:limit]]
    header = ["utterance", "speaker", "reason", "detail"]
    if as_json:
        print_json({"total": len(rejected), "rejected": [dict(zip(header, row, strict=True)) for row in rows]})
        return
    print_table(f"{store.path}: {len(rejected):,} rejected", header, rows, 4)


@app.command()
def export(
    store: StorePath,
    utterance: Annotated[str, typer.Argument(metavar="UTTERANCE", help="An id from `sotto data inspect`.")],
    speaker: Annotated[
        str | None, typer.Option("--speaker", help="Whose utterance, where several have the id.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="A .wav or .flac file (default: ID.wav).")] = None,
    as_json: AsJson = False,
) -> None:
    """Write the audio of one utterance, from which its features were made (16 kHz, mono).

    The audio is read from the corpus, which must still exist.

    Example: sotto data export stores/an4 fash/an251-fash-b --out yes.wav
    """
    opened = Store.open(store)
    row = _find(opened, utterance, speaker)
    target = out or Path(utterance.replace("/", "_") + ".wav")
    if target.suffix.lower() not in (".wav", ".flac"):
        raise ConfigError(f"{target} should end in .wav or .flac.")
    try:
        samples = load_audio(row, opened.root_of(row["root"]), row.get("bandwidth_limit_hz"))
    except BadAudio as fault:
        raise DataError(f"The audio of {utterance} can no longer be read: {fault}. Restore the corpus.") from None
    if len(samples) != round(row["seconds"] * SAMPLE_RATE_HZ):
        raise DataError(f"The length of {utterance} has changed since the store was made. Prepare the store again.")
    make_folder(target.absolute().parent)
    encoded = io.BytesIO()  # libsndfile would swallow an error of the disk
    soundfile.write(encoded, samples, SAMPLE_RATE_HZ, format=target.suffix[1:].upper())
    with written_whole(target, private=True) as file:  # the voice of a user
        file.write(encoded.getvalue())
    seconds = len(samples) / SAMPLE_RATE_HZ
    if as_json:
        print_json({"utterance": utterance, "text": row["text"], "seconds": seconds, "file": str(target)})
    else:
        note(f"{target}: {seconds:.2f} s, {row['text']!r}")


def _find(store: Store, utterance: str, speaker: str | None) -> IndexRow:
    """Return the row of an utterance; an id is unique within a speaker only."""
    names = store.index(["utterance", "speaker"])
    wanted = pc.equal(names["utterance"], utterance)
    places = pc.indices_nonzero(wanted if speaker is None else pc.and_(wanted, pc.equal(names["speaker"], speaker)))
    if not len(places):
        of = "" if speaker is None else f" of {speaker!r}"
        raise DataError(f"{store.path} has no utterance {utterance!r}{of}. See `sotto data inspect {store.path}`.")
    if len(places) > 1:
        owners = ", ".join(map(repr, names["speaker"].take(places[:3]).to_pylist()))
        raise DataError(f"{len(places)} speakers have an utterance {utterance!r}: {owners}. Choose one with --speaker.")
    place = places[0].as_py()
    row: IndexRow = store.index(rows=slice(place, place + 1)).to_pylist()[0]
    return row


@app.command()
def upgrade(store: StorePath, as_json: AsJson = False) -> None:
    """Complete a store of an older version; the corpus is not read again.

    Example: sotto data upgrade stores/an4
    """
    with ProgressDisplay() as progress:
        info = upgrade_store(store, progress).info
    if as_json:
        print_json({"store": str(store), "format": info.format, "hash": info.hash})
    else:
        note(f"{store} is a store of this version ({info.format}).")
