"""sotto transcribe and sotto model: transcripts, and the size of models."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli.arguments import AsJson
from sottovoce.cli.config import Preset, Settings, configured
from sottovoce.cli.console import note, print_json, print_table, stdout
from sottovoce.errors import DataError
from sottovoce.files import gigabytes

Checkpoint = Annotated[
    Path,
    typer.Argument(
        metavar="CHECKPOINT", help="A model.safetensors, a checkpoint's folder or a run's folder (its best model)."
    ),
]


def transcribe(
    checkpoint: Checkpoint,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="wav, flac, mp3, ogg; any length and rate.")],
    as_json: AsJson = False,
) -> None:
    """Print the words spoken in audio files; --json adds the time of every word.

    A file without recognised speech gives a line on stderr and, with --json, an empty text.

    Example: sotto transcribe runs/digits recording.mp3
    """
    from sottovoce.evaluation.model import load

    loaded = load(checkpoint)
    transcripts, unread = [], 0
    for path in files:
        try:
            transcripts.append(transcript := loaded.transcribe(path))
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
