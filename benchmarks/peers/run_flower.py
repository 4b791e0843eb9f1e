"""The item under Flower's simulation engine (Ray), one actor per core: python run_flower.py FOLDER OUT.

Every virtual node is one user of the cohort. Clipping and noise are Flower's own on the server; it clips whole updates.
"""

import sys
import time
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.simulation import run_simulation
from items import CLIP_NORM, GRADIENT_CLIP, LOCAL_LR, NOISE, Item
from measuring import Measured, Stopwatch
from network import make_network
from speech import Speech

FOLDER, OUT = Path(sys.argv[1]), Path(sys.argv[2])
_loaded: dict[str, Any] = {}  # of one actor: it keeps its network and its view of the speech

client = ClientApp()
server = ServerApp()


def _setting(folder: Path) -> tuple[Speech, torch.nn.Module]:
    if not _loaded:
        torch.set_num_threads(1)
        speech = Speech(folder)
        _loaded["setting"] = speech, make_network(Item.read(folder), speech.tokens)
    return _loaded["setting"]


@client.train()
def train(message: Message, context: Context) -> Message:
    """Train one user and return its parameters."""
    speech, network = _setting(FOLDER)
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    round_number = int(message.content["config"]["server-round"])
    _, batches = speech.schedule[round_number - 1][int(context.node_config["partition-id"])]
    optimizer = torch.optim.SGD(network.parameters(), lr=LOCAL_LR)
    learning, frames = 0.0, 0
    for utterances in batches:
        batch = speech.padded(utterances)
        began = time.perf_counter()
        optimizer.zero_grad()
        network.loss(*batch).backward()
        learning += time.perf_counter() - began
        frames += int(batch[1][: len(batch[3])].sum())
        torch.nn.utils.clip_grad_norm_(network.parameters(), GRADIENT_CLIP)
        optimizer.step()
    figures = MetricRecord({"num-examples": 1, "learning": learning, "frames": frames})
    content = RecordDict({"arrays": ArrayRecord(network.state_dict()), "metrics": figures})
    return Message(content=content, reply_to=message)


class Watched(DifferentialPrivacyServerSideFixedClipping):
    """The strategy, with a stopwatch."""

    watch: Stopwatch

    def aggregate_train(self, server_round: int, replies: Any) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate, and note the end of the round."""
        replies = list(replies)
        result = super().aggregate_train(server_round, replies)
        figures = [reply.content["metrics"] for reply in replies]
        self.watch.measured.learning += sum(float(figure["learning"]) for figure in figures)
        self.watch.measured.frames += sum(int(figure["frames"]) for figure in figures)
        self.watch.measured.users += len(figures)
        self.watch.step_ended()
        return result


@server.main()
def main(grid: Grid, _context: Context) -> None:
    """Take the steps of an item."""
    item, speech = Item.read(FOLDER), Speech(FOLDER)
    network = make_network(item, speech.tokens)
    measured = Measured(parameters=sum(parameter.numel() for parameter in network.parameters()))
    average = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=item.cohort)
    strategy = Watched(average, NOISE * item.cohort, CLIP_NORM, item.cohort)
    strategy.watch = Stopwatch(measured)
    strategy.start(grid, ArrayRecord(network.state_dict()), num_rounds=item.steps + 1)
    measured.write(OUT)


if __name__ == "__main__":
    run_simulation(
        server,
        client,
        num_supernodes=Item.read(FOLDER).cohort,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
