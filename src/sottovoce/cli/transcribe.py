"""sotto transcribe: the words spoken in audio files, as they are recognised."""

import contextlib
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.cli.arguments import ALL_CORES, Checkpoint, Workers
from sottovoce.cli.console import ProgressDisplay, counted, note, safe, stderr, stdout
from sottovoce.cli.decoding import takes_decoding
from sottovoce.errors import ConfigError, DataError
from sottovoce.evaluation.decoding import Decoding
from sottovoce.evaluation.transcript_formats import TranscriptFormat, TranscriptStream, as_document
from sottovoce.files import make_folder, written_whole

if TYPE_CHECKING:
    from sottovoce.evaluation.transcripts import Transcript

STANDARD_INPUT = "-"
# Files with these endings are taken from folders; a file that is named may have any.
AUDIO_ENDINGS = frozenset(
    (".wav", ".flac", ".mp3", ".ogg", ".oga", ".opus", ".aif", ".aiff", ".aifc", ".au", ".snd", ".caf", ".w64", ".sph")
)


@dataclass(frozen=True)
class _Source:
    """An audio file, how it is called, and where its transcript belongs in a folder, without an ending."""

    path: Path
    name: str
    place: Path


@takes_decoding
def transcribe(
    checkpoint: Checkpoint,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="wav, flac, mp3, ogg, ...; any length and rate. A folder; - is standard input."
        ),
    ],
    form: Annotated[
        TranscriptFormat,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="txt, json, jsonl or textgrid (all but txt with the time of every word), or subtitles: srt or vtt.",
        ),
    ] = TranscriptFormat.TXT,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="PATH", help="Write there: a file or, for a file each, a folder (ends in /)."),
    ] = None,
    workers: Workers = ALL_CORES,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    *,
    decoding: Decoding,
) -> None:
    """Print the words spoken in audio files as they are recognised; --json adds the time of every word.

    A file without recognised speech gives a line on stderr and an empty text. A file that cannot be read gives a line
    on stderr; the others are transcribed, and the exit code is 1.

    Example: sotto transcribe runs/digits recording.mp3
    """
    from sottovoce.evaluation.bandwidth_notes import files_note
    from sottovoce.evaluation.file_transcription import Unread, transcribe_files
    from sottovoce.evaluation.windows import missing_end

    form = _form(form, as_json=as_json)
    with contextlib.ExitStack() as closing:
        sources = _sources(files, closing)
        write = closing.enter_context(_output(form, out, sources))
        progress = closing.enter_context(ProgressDisplay())
        unread = 0
        paths = [source.path for source in sources]
        if line := files_note(checkpoint, paths):
            note(line)
        results = transcribe_files(checkpoint, paths, decoding=decoding, workers=workers, progress=progress)
        for source, result in zip(sources, results, strict=True):
            if isinstance(result, Unread):
                note(f"error: {result.error.replace(str(source.path), source.name)}")
                unread += 1
                continue
            if missing := missing_end(source.path):
                detail = missing.removeprefix(f"{source.path.name}: ")
                note(f"{source.name}: truncated audio: {detail}. The transcript ends where the file does.")
            if not result.words:
                note(f"{source.name}: (no speech recognised)")
            write(source, replace(result, file=source.name))
    if out is not None:
        note(f"{out} has {counted(len(sources) - unread, 'transcript')}. Only you can read what is new there.")
    if unread:
        raise typer.Exit(1)


def _form(form: TranscriptFormat, *, as_json: bool) -> TranscriptFormat:
    if as_json and form not in (TranscriptFormat.TXT, TranscriptFormat.JSON):
        raise ConfigError(f"--json and --format {form} contradict each other. Give one of them.")
    return TranscriptFormat.JSON if as_json else form


def _sources(files: Sequence[str], closing: contextlib.ExitStack) -> list[_Source]:
    """Return the files that were named, those of folders, and standard input."""
    found: list[_Source] = []
    if files.count(STANDARD_INPUT) > 1:
        raise ConfigError("Standard input (-) can be read once. Name it once.")
    for name in files:
        path = Path(name)
        if name == STANDARD_INPUT:
            found.append(_Source(_from_standard_input(closing), name, Path("stdin")))
        elif path.is_dir():
            inside = sorted(one for one in path.rglob("*") if one.suffix.lower() in AUDIO_ENDINGS and one.is_file())
            if not inside:
                raise DataError(f"{path} holds no audio files. Give a folder that does, or name files.")
            found += [_Source(one, str(one), one.relative_to(path).with_suffix("")) for one in inside]
        else:
            found.append(_Source(path, name, Path(path.stem)))
    return found


def _from_standard_input(closing: contextlib.ExitStack) -> Path:
    """Return a file with what comes from standard input; it ends with this process and, on Linux, never has a name."""
    unnamed = sys.platform == "linux"
    make = tempfile.TemporaryFile if unnamed else tempfile.NamedTemporaryFile
    file = closing.enter_context(make())
    shutil.copyfileobj(sys.stdin.buffer, file)
    file.flush()
    return Path(f"/proc/{os.getpid()}/fd/{file.fileno()}") if unnamed else Path(file.name)


Write = Callable[[_Source, "Transcript"], None]


@contextlib.contextmanager
def _output(form: TranscriptFormat, out: str | None, sources: Sequence[_Source]) -> Iterator[Write]:
    """Yield how to write a transcript: to standard output, into one file, or each into its own."""
    several = len(sources) > 1
    folder_name = several and form.holds_one and out is not None and Path(out).suffix != form.ending
    if out is not None and (out.endswith(os.sep) or Path(out).is_dir() or folder_name):
        yield _in_folder(Path(out), form, sources)
        return
    if form.holds_one and several:
        raise ConfigError(f"--format {form} is a document for each file. Give a folder with --out FOLDER/.")
    with _written(out, sources) as write:
        stream = TranscriptStream(write, form, named=several)
        try:
            yield lambda _, transcript: stream.add(transcript)
        except BaseException:
            if stream.begun:  # what was printed stays readable
                stream.close()
            raise
        stream.close()


def _in_folder(folder: Path, form: TranscriptFormat, sources: Sequence[_Source]) -> Write:
    """Return how to write every transcript into a file of its own."""
    places = [folder / source.place.with_name(source.place.name + form.ending) for source in sources]
    place, count = Counter(places).most_common(1)[0]
    if count > 1:
        raise ConfigError(f"{count} files would be written to {place}. Transcribe them into different folders.")
    place_of = dict(zip(sources, places, strict=True))
    make_folder(folder)

    def write(source: _Source, transcript: "Transcript") -> None:
        make_folder(place_of[source].parent)
        with written_whole(place_of[source], private=True) as file:
            file.write(as_document(transcript, form).encode())

    return write


@contextlib.contextmanager
def _written(out: str | None, sources: Sequence[_Source]) -> Iterator[Callable[[str], object]]:
    """Yield how to write text: into a file that appears whole, or to standard output at once."""
    if out is None:
        yield _print
        return
    path = Path(out)
    if any(path.exists() and source.path.exists() and path.samefile(source.path) for source in sources):
        raise ConfigError(f"--out {out} is one of the recordings. Name another file.")
    with written_whole(path, private=True) as file:
        yield lambda text: file.write(text.encode())


def _print(text: str) -> None:
    """Print text at once; where the progress bar is on the same terminal, above it."""
    if not sys.stdout.isatty():
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        (stderr if stderr.is_terminal else stdout).print(safe(text), soft_wrap=True, markup=False, end="")
