"""sotto eval, sotto transcribe and sotto model: error rates, transcripts and the size of models."""

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.arguments import ALL_CORES, AsJson, Workers
from sottovoce.cli.config import Preset, Settings, configured
from sottovoce.cli.console import ProgressDisplay, counted, note, print_json, print_table, stdout
from sottovoce.cli.decoding import takes_decoding
from sottovoce.errors import DataError
from sottovoce.evaluation.decoding import GREEDY, Decoding
from sottovoce.files import gigabytes

if TYPE_CHECKING:
    from sottovoce.data.selection import Selection
    from sottovoce.distributed import Group
    from sottovoce.evaluation.scores import Breakdown, Scores

Checkpoint = Annotated[
    Path,
    typer.Argument(
        metavar="CHECKPOINT", help="A model.safetensors, a checkpoint's folder or a run's folder (its best model)."
    ),
]


@takes_decoding
def evaluate(
    checkpoint: Checkpoint,
    store: Annotated[str, typer.Argument(metavar="STORE[@SPEAKERS]", help="The speech to evaluate on.")],
    by: Annotated[list[str] | None, typer.Option("--by", help="Also by this column. Default: sex, age, ...")] = None,
    batch_seconds: Annotated[float, typer.Option(min=1, help="Audio in one batch.")] = 120.0,
    workers: Workers = ALL_CORES,
    as_json: AsJson = False,
    *,
    decoding: Decoding,
) -> None:
    """Print loss, WER and CER of a model on a store, per speaker and by group. Every utterance counts.

    Example: sotto eval runs/digits stores/digits@splits/digits/heldout.txt
    """
    from sottovoce.data.selection import Selection
    from sottovoce.evaluation.scores import Breakdown
    from sottovoce.workers import run_workers

    selection = Selection.parse(store)
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        run_workers(_evaluate_worker, (checkpoint, selection, by, batch_seconds, decoding, result), workers, 1)
        breakdown = Breakdown.model_validate_json(result.read_bytes()) if result.exists() else None
    if breakdown is None:  # under torchrun, only rank 0 has it
        return
    unwritable = selection.open().unwritable()
    if as_json:
        document = {"store": str(selection.store), **_decoded(decoding), **breakdown.model_dump()}
        print_json(document | {"unwritable": unwritable})
        return
    _print_evaluation(selection, breakdown)
    if unwritable:
        note(f"{counted(unwritable, 'utterance')} with characters that the model cannot write: errors in their words.")


def _decoded(decoding: Decoding) -> dict[str, Any]:
    """Return how texts were found, for --json; nothing for greedy decoding, which is the rule."""
    return {} if decoding == GREEDY else {"decoding": decoding.model_dump(mode="json")}


def _evaluate_worker(
    group: "Group",
    checkpoint: Path,
    selection: "Selection",
    by: list[str] | None,
    batch_seconds: float,
    decoding: Decoding,
    result: Path,
) -> None:
    from sottovoce.evaluation.breakdown import group_columns
    from sottovoce.evaluation.model import evaluate_population
    from sottovoce.model.hardware import Hardware
    from sottovoce.model.recogniser import load_recogniser

    population = selection.open()
    columns = group_columns(population, by)
    recogniser = load_recogniser(checkpoint, Hardware().open())
    with ProgressDisplay(hidden=not group.leads) as progress:
        breakdown = evaluate_population(
            recogniser,
            population,
            columns,
            batch_seconds=batch_seconds,
            decoding=decoding,
            group=group,
            progress=progress,
        )
    if group.leads:
        result.write_text(breakdown.model_dump_json(), encoding="utf-8")


def _print_evaluation(selection: "Selection", breakdown: "Breakdown") -> None:
    def line(name: str, scores: "Scores") -> list[str]:
        rates = [f"{100 * scores.wer:.2f}", f"{100 * scores.cer:.2f}", f"{scores.loss:.3f}"]
        return [name, f"{scores.utterances:,}", f"{scores.words:,}", *rates]

    rows = [line("all", breakdown)]
    for column, groups in breakdown.groups.items():
        rows += [line(f"{column}={value}", scores) for value, scores in sorted(groups.items())]
    speakers = breakdown.speakers
    rows += [line(f"worst: {scores.speaker}", scores) for scores in speakers.worst]
    print_table(str(selection.store), ["", "utterances", "words", "WER %", "CER %", "loss"], rows)
    quantiles = "  ".join(f"{float(name):.0%}: {100 * wer:.1f}" for name, wer in speakers.wer_quantiles.items())
    stdout.print(f"WER % over {speakers.count} speakers, quantiles: {quantiles}", soft_wrap=True)


@takes_decoding
def transcribe(
    checkpoint: Checkpoint,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="wav, flac, mp3, ogg; any length and rate.")],
    as_json: AsJson = False,
    *,
    decoding: Decoding,
) -> None:
    """Print the words spoken in audio files; --json adds the time of every word.

    A file without recognised speech gives a line on stderr and, with --json, an empty text.

    Example: sotto transcribe runs/digits recording.mp3
    """
    from sottovoce.evaluation import transcription
    from sottovoce.evaluation.model import load

    recogniser = load(checkpoint).recogniser
    decoder = decoding.open(recogniser.token_set)
    transcripts, unread = [], 0
    for path in files:
        try:
            transcripts.append(transcript := transcription.transcribe(recogniser, path, decoder))
        except DataError as error:
            note(f"error: {error}")
            unread += 1
            continue
        if not transcript.words:
            note(f"{path}: (no speech recognised)")
        elif not as_json:
            text = transcript.text if len(files) == 1 else f"{transcript.file}: {transcript.text}"
            stdout.print(text, soft_wrap=True, markup=False)
    if as_json:
        print_json([asdict(transcript) | {"text": transcript.text} for transcript in transcripts])
    if unread:
        raise typer.Exit(1)


def model(
    preset: Preset,
    settings: Settings = None,
    partition: Annotated[str, typer.Option(help="The layers: tensor, block or kind.")] = "tensor",
    language: Annotated[str, typer.Option(help="The language, which decides the number of tokens.")] = "en",
    as_json: AsJson = False,
) -> None:
    """Print the size of a preset's model, its layers, and the memory that training it needs.

    Example: sotto model baseline --partition kind
    """
    from sottovoce.estimate.model_size import describe

    config = configured(preset, settings).config
    size = describe(config, partition, language)
    if as_json:
        print_json(size.document())
        return
    layers, memory = size.partition, size.memory_bytes
    rows = [[name, f"{count:,}", f"{100 * count / size.parameters:.3f}"] for name, count in layers.items()]
    print_table(f"{preset}: layers by {partition}", ["layer", "parameters", "%"], rows)
    frozen = "" if size.trainable == size.parameters else f", of which {size.trainable:,} train (federated.trainable),"
    note(
        f"{size.parameters:,} parameters{frozen} in {size.layers} layers. A training process needs about "
        f"{gigabytes(memory['total'])}: parameters {gigabytes(memory['parameters'])}, gradients "
        f"{gigabytes(memory['gradients'])}, optimizer {gigabytes(memory['optimizer'])}, activations of a micro-batch "
        f"of {config.central.micro_batch_seconds:g} s {gigabytes(memory['activations'])}."
    )
