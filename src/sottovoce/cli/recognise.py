"""sotto model: the size of models."""

from typing import Annotated

import typer

from sottovoce.cli.arguments import AsJson
from sottovoce.cli.config import Preset, Settings, configured
from sottovoce.cli.console import note, print_json, print_table
from sottovoce.files import gigabytes
from sottovoce.model.partition import PartitionName


def model(
    preset: Preset,
    settings: Settings = None,
    partition: Annotated[PartitionName, typer.Option(help="What counts as a layer.")] = "tensor",
    language: Annotated[
        str, typer.Option(help="The language (en, fr or de), which decides the number of tokens.")
    ] = "en",
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
    by = "federated.adapters and federated.trainable" if config.federated.adapters.rank else "federated.trainable"
    frozen = "" if size.trainable == size.parameters else f", of which {size.trainable:,} train ({by}),"
    note(
        f"{size.parameters:,} parameters{frozen} in {size.layers} layers. A training process needs about "
        f"{gigabytes(memory['total'])}: parameters {gigabytes(memory['parameters'])}, gradients "
        f"{gigabytes(memory['gradients'])}, optimizer {gigabytes(memory['optimizer'])}, activations of a micro-batch "
        f"of {config.central.micro_batch_seconds:g} s {gigabytes(memory['activations'])}."
    )
