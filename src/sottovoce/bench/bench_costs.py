"""What the rows of a benchmark would cost in the paper's size, before anyone rents a cluster."""

from collections.abc import Iterator
from dataclasses import dataclass

from sottovoce.bench.plan import configure, with_models
from sottovoce.bench.preset import Bench, Row, Size
from sottovoce.errors import ConfigError
from sottovoce.estimate.devices import Device, Precision
from sottovoce.estimate.run_cost import CentralEstimate, Estimate, estimate, estimate_central
from sottovoce.estimate.user_audio import iid, paper_audio


@dataclass(frozen=True)
class RowCost:
    """One run that a benchmark trains: a row, or a seed model that rows start from."""

    row: Row
    cost: Estimate | CentralEstimate


def row_costs(bench: Bench, device: Device, processes: int, precision: Precision | None) -> Iterator[RowCost]:
    """Yield the cost of every row that is trained, and of the models that rows start from."""
    size = bench.size("paper")
    for row in with_models(size, size.rows):
        if row.same is None:
            yield RowCost(row, _cost(size, row, device, processes, precision))


def _cost(
    size: Size, row: Row, device: Device, processes: int, precision: Precision | None
) -> Estimate | CentralEstimate:
    part = size.part_of(row)["train"]
    if part is None:
        raise ConfigError(f"The row {row.name!r} does not say what it is trained on: give it `train`.")
    config = configure(size, row).config.model_copy(update={"corpus": size.corpora[size.parts[part].corpus]})
    audio = paper_audio(part)
    if row.kind == "central":
        return estimate_central(config, audio.utterance_seconds, device, processes, precision)
    return estimate(config, iid(audio) if config.users.iid else audio, device, processes, precision)
