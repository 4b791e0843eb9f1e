"""The same training as an app of stock Flower: SuperLink, SuperNodes and `flwr run` on the folder `flower_app`.

The server's part reads `--run-config`: preset, folder (with the enrolled users' keys), run, settings (as in --set,
separated by semicolons), deadline and languages. A client's part reads `--node-config`: store, keys and user. All
checks and signatures are the same; who gets in is up to the SuperLink and its options.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from sottovoce.config import Layer, parse_setting, resolve
from sottovoce.data.store import Store
from sottovoce.deploy.client_process import speakers_of
from sottovoce.deploy.enrolment import Enrolment
from sottovoce.deploy.flower_apps import GridFleet, make_client_app, make_server_app
from sottovoce.deploy.keys import client_keys
from sottovoce.deploy.local_trainer import LocalTrainer
from sottovoce.deploy.messages import Envelope
from sottovoce.deploy.server_process import ServerOptions, train_on
from sottovoce.errors import ConfigError
from sottovoce.runs.display import NoDisplay


def serve(fleet: GridFleet, given: Mapping[str, Any]) -> None:
    """Train a run on the enrolled users whose nodes are connected."""
    settings = [parse_setting(text.strip()) for text in str(given["settings"]).split(";") if text.strip()]
    resolved = resolve(str(given["preset"]), Layer({"randomness": {"source": "secure"}}, "the deployment"), *settings)
    torch.set_num_threads(resolved.config.hardware.threads_per_worker)
    options = ServerOptions(
        folder=Path(str(given["folder"])),
        run=Path(str(given["run"])),
        deadline_seconds=float(given["deadline"]),
        languages=tuple(str(given["languages"]).split(",")),
    )
    enrolment = Enrolment(options.folder)
    if not enrolment.users:
        raise ConfigError(f"Nobody is enrolled in {options.folder}. Use `sotto deploy keys FOLDER --admit USER=FILE`.")
    train_on(fleet, resolved, options, lambda: enrolment.users, NoDisplay, None, print)


def users_of(node: Mapping[str, Any]) -> list[str]:
    """Return the users of a node."""
    return [user.strip() for user in str(node["user"]).split(",")]


def answer(node: Mapping[str, Any], envelope: Envelope) -> Envelope:
    """Return a node's signed answer to a task."""
    torch.set_num_threads(1)
    store = Store.open(Path(str(node["store"])))
    speakers: list[str] = store.speaker_names().to_pylist()
    _, signing = client_keys(Path(str(node["keys"])))
    return LocalTrainer(store, speakers_of(users_of(node), speakers), signing).answer(envelope)[1]


server_app = make_server_app(serve)
client_app = make_client_app(users_of, answer)
