"""The server of a deployment: it waits for users to enrol, then trains the run as any other, on real clients.

    SERVER/   certificates, enrolment, and the ledger that all runs on these users share
    RUN/      a run like every other (`runs/folder.py`), with users/ (names only), contributions.jsonl, deployment.json

A run begins with the users who are enrolled then; the number K stays the public one of the configuration. Whoever
enrols later takes part in the next run. Killed and started again, the server goes on from its last
checkpoint and ledger.
"""

import base64
import resource
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from sottovoce.config import Layer, Resolved
from sottovoce.data.selection import Selection
from sottovoce.deploy.enrolment import EnrolledUser, Enrolment, EnrolmentRequest, RefusedEnrolmentError
from sottovoce.deploy.fleet_aggregator import FleetAggregator, require_deployable
from sottovoce.deploy.flower_fleet import FlowerFleet, open_superlink
from sottovoce.deploy.keys import CA_CERT, SERVER_CERT
from sottovoce.deploy.link import Fleet
from sottovoce.deploy.masked_collection import require_maskable
from sottovoce.deploy.public_socket import Gate, PublicSocket
from sottovoce.deploy.roster import ROSTER, open_roster
from sottovoce.distributed import Group
from sottovoce.errors import ConfigError, DataError
from sottovoce.federated.aggregator import AggregatorContext
from sottovoce.federated.federated_training import train_federated
from sottovoce.files import make_folder, write_json
from sottovoce.reading import BadDocument, parse_json, read_bounded
from sottovoce.runs.display import MakeDisplay
from sottovoce.runs.folder import Run
from sottovoce.runs.stop import Stop

DEPLOYMENT_FILE = "deployment.json"
LEDGER = "ledger"  # below the server's folder
_POLL_SECONDS = 0.5
_RECONNECT_SECONDS = 60.0  # clients try again every 30 s at least; a step without them would be wasted

Say = Callable[[str], None]


class _Deployment(BaseModel):
    """What a deployed run remembers besides what every run does."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str  # of the run, for clients: updates are for this run only


@dataclass(frozen=True)
class ServerOptions:
    """Everything that a server process needs."""

    folder: Path
    run: Path
    host: str = "0.0.0.0"  # noqa: S104 - clients are elsewhere; the gate lets only theirs calls through
    port: int = 9443
    users: int | None = None  # begin when so many are enrolled; None: when every token that was issued is used
    deadline_seconds: float = 600.0
    languages: tuple[str, ...] = ("en",)
    settle_seconds: float = _RECONNECT_SECONDS  # how long to wait at most for all clients to connect
    secure_aggregation: bool = False  # the server learns sums only


def run_server(resolved: Resolved, options: ServerOptions, make_display: MakeDisplay, say: Say) -> Run:
    """Serve and train until the run ends, is stopped, or has spent its budget."""
    if not (options.folder / SERVER_CERT).exists():
        raise ConfigError(f"{options.folder} has no certificates. Make them with `sotto deploy keys {options.folder}`.")
    require_deployable(resolved.config, 0)
    _allow_many_connections()
    torch.set_num_threads(resolved.config.hardware.threads_per_worker)
    enrolment = Enrolment(options.folder)
    application, state = open_superlink()
    fleet = FlowerFleet(state)
    for record in enrolment.users.values():
        fleet.admit(record.node_bytes)

    def enrol(request: EnrolmentRequest) -> list[str]:
        if fleet.knew(base64.b64decode(request.node_key)):
            raise RefusedEnrolmentError("This key was revoked. Remove the client's keys, and enrol with new ones.")
        users = enrolment.enrol(request)
        fleet.admit(base64.b64decode(request.node_key))
        say(f"Enrolled: {', '.join(users)}.")
        return users

    stop = Stop()
    with ExitStack() as closing:
        closing.callback(stop.release)
        stop.listen()
        gate = Gate(application, enrol, fleet)
        socket = closing.enter_context(PublicSocket(gate, options.host, options.port, options.folder))
        say(f"Listening on {options.host}:{socket.port}. Clients need {options.folder / CA_CERT}.")
        if not _wait_for_users(enrolment, fleet, options, stop, say):
            return Run(options.run)
        train_on(fleet, resolved, options, lambda: _current(enrolment, fleet), make_display, stop, say)
    return Run(options.run)


def _allow_many_connections() -> None:
    """Let this process open as many files as the system allows: a connection is one, and 1024 is a usual default."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _wait_for_users(enrolment: Enrolment, fleet: FlowerFleet, options: ServerOptions, stop: Stop, say: Say) -> bool:
    """Wait until enough users are enrolled and their clients connected; return False where asked to stop meanwhile."""
    if not (options.run / ROSTER).exists():
        told = False
        while not stop.asked and not _enough(enrolment, options):
            if not told:
                say("Waiting for users to enrol. Issue tokens with `sotto deploy keys`.")
                told = True
            time.sleep(_POLL_SECONDS)
    give_up = time.monotonic() + options.settle_seconds
    while not stop.asked and time.monotonic() < give_up and not _all_online(enrolment, fleet):
        time.sleep(_POLL_SECONDS)
    return not stop.asked


def _all_online(enrolment: Enrolment, fleet: FlowerFleet) -> bool:
    return {record.node_bytes for record in enrolment.users.values()} <= fleet.online()


def _current(enrolment: Enrolment, fleet: FlowerFleet) -> dict[str, EnrolledUser]:
    """Return everybody who is enrolled now; whoever was revoked meanwhile can no longer connect."""
    online = fleet.online()  # first: whoever is connected now and not enrolled afterwards was revoked
    users = enrolment.users
    for key in online - {record.node_bytes for record in users.values()}:
        fleet.expel(key)
    return users


def _enough(enrolment: Enrolment, options: ServerOptions) -> bool:
    users = len(enrolment.users)
    return users >= options.users if options.users is not None else users > 0 and not enrolment.waiting


def train_on(
    fleet: Fleet,
    resolved: Resolved,
    options: ServerOptions,
    enrolled: Callable[[], Mapping[str, EnrolledUser]],
    make_display: MakeDisplay,
    stop: Stop | None,
    say: Say,
) -> None:
    """Train the run on the users it has, or begins with now, through any fleet that reaches them."""
    users = enrolled()
    if not (options.run / ROSTER).exists():
        require_deployable(resolved.config, len(users))
    if options.secure_aggregation:
        require_maskable(users)
    make_folder(options.run)
    roster = open_roster(options.run, list(users), options.languages)
    if not users.keys() & set(roster.speaker_names().to_pylist()):
        raise DataError(f"No user of {options.run} is enrolled in {options.folder}. Is that another server's folder?")
    settings: dict[str, object] = {"data": {"train": Selection(store=roster.path)}}
    if resolved.config.privacy.ledger is None:
        settings["privacy"] = {"ledger": options.folder / LEDGER}
    if options.secure_aggregation:
        settings["participation"] = {"all_or_nothing": True}
    resolved = resolved.over(Layer(settings, "the deployment"))
    name = _name_of(options.run)

    def make_aggregator(context: AggregatorContext) -> FleetAggregator:
        return FleetAggregator(
            context=context,
            fleet=fleet,
            enrolled=enrolled,
            config=resolved.config,
            run=options.run,
            name=name,
            deadline_seconds=options.deadline_seconds,
            say=say,
            masked=options.secure_aggregation,
        )

    train_federated(Group(), resolved, options.run, make_display, stop, make_aggregator)


def _name_of(run: Path) -> str:
    """Return the name by which clients know a run: random, and kept with it."""
    path = run / DEPLOYMENT_FILE
    if not path.exists():
        write_json(path, {"name": secrets.token_hex(16)}, private=True)
    try:
        return _Deployment.model_validate(parse_json(read_bounded(path))).name
    except (BadDocument, ValidationError):
        raise DataError(f"{path} is damaged. Restore it from a copy.") from None
