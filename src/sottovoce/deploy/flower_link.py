"""The one module that knows Flower: the server's side of the fleet, and a client's connection to it.

Flower 1.41 keeps what is needed here in modules without a promise of stability. So exactly this release is asked for,
and `tests/deploy/test_flower_link.py` sends messages both ways.

The server holds Flower's SuperLink in its own process. Only `/v1/fleet/*` of it is served, over TLS, to nodes whose key
is enrolled; the Control and Runtime APIs, which would let their caller register keys and start runs, are not on any
socket: this process calls the state behind them. A central step is one Flower run, which is removed with all its
messages when the step ends, so nothing is kept of late answers.
"""

import base64
import importlib.metadata
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

import httpx
from cryptography.hazmat.primitives.asymmetric import ec

from sottovoce.deploy.keys import connection_bytes
from sottovoce.deploy.link import Answer, Incoming, LinkDownError, RefusedConnectionError, UnknownKeyError, unreachable
from sottovoce.deploy.messages import Envelope
from sottovoce.errors import ConfigError

FLOWER = "1.41."
_found = importlib.metadata.version("flwr")
if not _found.startswith(FLOWER):
    raise ConfigError(f"Flower {_found} is installed, and this version needs {FLOWER}*. Install sottovoce[deploy].")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, Metadata, RecordDict
from flwr.app.message import make_message, remove_content_from_message
from flwr.common.constant import (
    ISOLATION_MODE_PROCESS,
    NOOP_ACCOUNT_NAME,
    NOOP_FLWR_AID,
    SUPERLINK_NODE_ID,
    TRANSPORT_TYPE_GRPC_RERE,
)
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.node_pb2 import Node
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID, NodeStatus, TaskType
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

logging.getLogger("flwr").setLevel(logging.CRITICAL)  # its lines name nodes and keys; ours say what matters

HEADER, PARTS, USERS = "header", "parts", "users"
_RAW = "sottovoce.bytes"  # how an array of ours is serialised: as it is
_POLL_SECONDS = 0.2
_HEARTBEAT_SECONDS = 20  # a client that is not heard for twice as long is gone
_TRAIN, _QUERY = "train", "query"
_GONE = (401, 502, 503, 504)


def node_key_text(key: ec.EllipticCurvePrivateKey) -> str:
    """Return the public key of a connection as enrolment keeps it."""
    return base64.b64encode(connection_bytes(key)).decode()


def to_records(envelope: Envelope) -> RecordDict:
    """Return a message as Flower carries it; a part is cut into pieces of 5 MB, and equal pieces are kept once."""
    arrays = {name: Array("uint8", (len(part),), _RAW, bytes(part)) for name, part in envelope.parts.items()}
    content: dict[str, Any] = {"header": envelope.header, "signature": envelope.signature}
    return RecordDict({HEADER: ConfigRecord(content), PARTS: ArrayRecord(arrays)})


def from_records(records: Any) -> Envelope:
    """Return the message that Flower carried; raise ValueError where it is none of ours."""
    try:
        header, parts = records[HEADER], records[PARTS]
        content, signature = header["header"], header["signature"]
        found = Envelope(content, {str(name): array.data for name, array in parts.items()}, signature)
    except (KeyError, TypeError, AttributeError):
        raise ValueError("not a message of this package") from None
    if not isinstance(content, bytes) or not isinstance(signature, bytes):
        raise TypeError("a header is bytes")
    return found


def open_superlink() -> tuple[Any, Any]:
    """Return Flower's SuperLink as an ASGI application that authenticates nodes, and the state behind it."""
    from flwr.superlink.cli.flower_superlink import SuperLinkLifespan  # noqa: PLC0415 - the server's alone
    from flwr.superlink.config_loader import SuperLinkLifespanConfig, load_control_authn_plugin  # noqa: PLC0415
    from flwr.superlink.main import create_app  # noqa: PLC0415

    config = SuperLinkLifespanConfig(
        control_address="",
        health_server_address=None,
        host="",
        port=0,
        insecure=False,
        certificates=None,  # whoever serves the application has them
        superexec_auth_secret=secrets.token_bytes(32),  # nobody knows it: no task can be acquired from outside
        authn_plugin=load_control_authn_plugin(),
        event_log_plugin=None,
        fleet_event_log_plugin=None,
        enable_event_log=False,
        artifact_provider=None,
        enable_supernode_auth=True,
        fleet_api_type=TRANSPORT_TYPE_GRPC_RERE,
        fleet_api_address=None,
        simulation=False,
        ssl_ca_certfile=None,
        ssl_certfile=None,
        ssl_keyfile=None,
        database=FLWR_IN_MEMORY_DB_NAME,
        isolation=ISOLATION_MODE_PROCESS,
        runtime_dependency_install=False,
    )
    application = create_app(config, SuperLinkLifespan)
    return application, application.state.linkstate_factory.state()


class _WithdrawnError(Exception):
    """The server no longer wants what was asked for or sent."""


_FAILURES = (LinkDownError, RefusedConnectionError, _WithdrawnError)


class FlowerFleet:
    """All clients, as the server sees them through Flower's state."""

    def __init__(self, state: Any) -> None:
        """Use the state of a SuperLink in this process."""
        self._state = state
        self._expelled: set[bytes] = set()

    def admit(self, node_key: bytes) -> None:
        """Let the owner of a key connect."""
        if self._state.get_node_id_by_public_key(node_key) is None:
            self._state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, node_key, 0)

    def knew(self, node_key: bytes) -> bool:
        """Return whether a key was expelled; Flower never takes it again."""
        return node_key in self._expelled

    def expel(self, node_key: bytes) -> None:
        """Let the owner of a key connect no more."""
        node = self._state.get_node_id_by_public_key(node_key)
        if node is not None:
            self._expelled.add(node_key)
            with suppress(ValueError, TypeError):  # one that never connected has no times to change
                self._state.delete_node(NOOP_FLWR_AID, node)

    def online(self) -> set[bytes]:
        """Return the keys of the clients that are connected."""
        return {bytes(node.public_key) for node in self._state.get_node_info(statuses=[NodeStatus.ONLINE])}

    def ask(self, tasks: Mapping[str, tuple[bytes, Envelope]], seconds: float) -> Iterator[Answer]:
        """Send every user's client its task; yield answers as they arrive until time is up (see `Fleet.ask`)."""
        run = self._state.create_run("", "", "", {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP)
        task = self._state.get_run_info(run_ids=[run])[0].primary_task_id
        self._state.claim_task(task)
        self._state.activate_task(task)
        try:
            give_up = time.monotonic() + seconds
            waiting = {}
            for user, (key, envelope) in tasks.items():
                sent = self._send(run, key, envelope, seconds)
                if sent is not None:
                    waiting[sent] = user
            while waiting and time.monotonic() < give_up:
                self._state.acknowledge_task_heartbeat(task)
                for number in sorted(waiting):
                    reply = self._reply_to(number, run)
                    if reply is None:
                        continue
                    user = waiting.pop(number)
                    if not reply.has_error():  # an error means that the client is gone
                        yield Answer(user, self._content(run, reply))
                time.sleep(_POLL_SECONDS)
        finally:
            self._state.stop_run(run)

    def _send(self, run: int, key: bytes, envelope: Envelope, seconds: float) -> str | None:
        """Put a task where its client will fetch it; return its id, or None where the client is not connected."""
        node = self._state.get_node_id_by_public_key(key)
        found = [] if node is None else self._state.get_node_info(node_ids=[node], statuses=[NodeStatus.ONLINE])
        if not found:
            return None
        metadata = Metadata(
            run_id=run,
            message_id="",
            src_node_id=SUPERLINK_NODE_ID,
            dst_node_id=node,
            message_type=_TRAIN,
            group_id="",
            ttl=seconds + 60.0,
            reply_to_message_id="",
            created_at=time.time(),
        )
        message = make_message(metadata=metadata, content=to_records(envelope))
        with no_object_id_recompute():
            message.metadata.__dict__["_message_id"] = message.object_id
            objects, tree = get_all_nested_objects(message), get_object_tree(message)
            session = self._state.start_session(run)
            stored, missing = self._state.store_message_and_object_tree(
                remove_content_from_message(message), tree, session
            )
            if not stored:
                return None
            for name in missing:
                self._state.store_object(run, session, name, objects[name].deflate())
        return str(message.metadata.message_id)

    def _reply_to(self, number: str, run: int) -> Message | None:
        """Return the answer to a task once all of it is here, or Flower's error where none will come; None before."""
        try:
            replies: list[Message] = self._state.get_message_res({number}, run)
        except KeyError:  # Flower has removed the task, because the upload of its answer has stopped
            return None
        for reply in replies:
            if reply.has_error() or self._complete(run, reply):
                return reply
            reply.metadata.delivered_at = ""  # parts are still on their way: ask again
        return None

    def _objects(self, reply: Message) -> list[str]:
        tree = self._state.object_store.get_object_tree(reply.metadata.message_id)
        return [node.object_id for node in iterate_object_tree(tree)]

    def _complete(self, run: int, reply: Message) -> bool:
        try:
            return all(self._state.get_object(run, name) for name in self._objects(reply))
        except Exception:
            return False

    def _content(self, run: int, reply: Message) -> Envelope | None:
        """Return what a client sent. It may be anything, and what Flower raises about it, too."""
        try:
            contents = {name: self._state.get_object(run, name) for name in self._objects(reply)}
            message: Any = inflate_object_from_contents(reply.metadata.message_id, contents)
            return from_records(message.content)
        except Exception:
            return None


class GridFleet:
    """All clients, as a ServerApp of a stock SuperLink sees them; nodes say themselves whose clients they are.

    A node that claims another's user gains nothing: updates are signed by the users' own keys.
    """

    def __init__(self, grid: Any) -> None:
        """Use the grid that Flower gives to a ServerApp."""
        self._grid = grid
        self._known: dict[int, list[str]] = {}  # the users of every node that has answered

    def ask(self, tasks: Mapping[str, tuple[bytes, Envelope]], seconds: float) -> Iterator[Answer]:
        """Send every user's client its task; yield answers as they arrive until time is up (see `Fleet.ask`)."""
        give_up = time.monotonic() + seconds
        online = set(self._grid.get_node_ids())
        questions = {node: Message(RecordDict(), node, _QUERY, ttl=seconds) for node in online - self._known.keys()}
        for node, reply in self._replies(questions, give_up):
            with suppress(Exception):  # whatever a hostile node answers, it then has no users
                content: Any = reply.content
                self._known[node] = [str(user) for user in content[USERS][USERS]]
        nodes = {user: node for node in online & self._known.keys() for user in self._known[node]}
        messages = {
            user: Message(to_records(envelope), nodes[user], _TRAIN, ttl=seconds)
            for user, (_, envelope) in tasks.items()
            if user in nodes
        }
        for user, reply in self._replies(messages, give_up):
            try:
                yield Answer(user, from_records(reply.content))
            except Exception:
                yield Answer(user, None)

    def _replies(self, messages: Mapping[Any, Message], give_up: float) -> Iterator[tuple[Any, Message]]:
        """Send messages; yield the replies that are no errors, by the keys of the messages, until time is up."""
        numbers = self._grid.push_messages(list(messages.values())) if messages else []
        waiting = {number: key for number, key in zip(numbers, messages, strict=True) if number}
        while waiting and time.monotonic() < give_up:
            for number in list(waiting):
                for reply in self._grid.pull_messages([number]):
                    key = waiting.pop(number, None)
                    if key is not None and not reply.has_error():
                        yield key, reply
            time.sleep(_POLL_SECONDS)


def make_server_app(serve: Callable[[GridFleet, Mapping[str, Any]], None]) -> Any:
    """Return Flower's ServerApp around a function of the fleet and the run's configuration."""
    from flwr.serverapp import ServerApp  # noqa: PLC0415 - apps alone need it

    app = ServerApp()

    @app.main()
    def main(grid: Any, context: Any) -> None:
        serve(GridFleet(grid), context.run_config)

    return app


def make_client_app(
    users: Callable[[Mapping[str, Any]], list[str]], answer: Callable[[Mapping[str, Any], Envelope], Envelope]
) -> Any:
    """Return Flower's ClientApp around two functions of a node's configuration: its users, and its answer to a task."""
    from flwr.clientapp import ClientApp  # noqa: PLC0415 - apps alone need it

    app = ClientApp()

    @app.query()
    def query(message: Message, context: Any) -> Message:
        return Message(RecordDict({USERS: ConfigRecord({USERS: users(context.node_config)})}), reply_to=message)

    @app.train()
    def train(message: Message, context: Any) -> Message:
        return Message(to_records(answer(context.node_config, from_records(message.content))), reply_to=message)

    return app


class FlowerConnection:
    """A client's connection, with a thread that tells the server that the client is there."""

    def __init__(self, server: str, ca: Path, key: ec.EllipticCurvePrivateKey) -> None:
        """Connect; raise LinkDownError or RefusedConnectionError where that fails."""
        interceptors: list[Any] = [
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(key, key.public_key()),
        ]
        try:
            self._client = FleetHttpClient.from_server_address(server, False, ca.read_bytes(), interceptors)
        except (ValueError, OSError) as error:
            raise RefusedConnectionError(f"{ca} is no certificate ({error}). Use the server's ca.crt.") from None
        self._server, self._closing = server, threading.Event()
        try:
            self._node = self._activate(public_key_to_bytes(key.public_key()))
        except BaseException:
            self._client.close()
            raise
        self._kept: dict[str, bytes] = {}  # objects of the last task: what did not change is not fetched again
        self._beating = threading.Thread(target=self._beat, daemon=True)
        self._beating.start()

    def _activate(self, public: bytes) -> Node:
        """Connect as the owner of a key."""
        request = ActivateNodeRequest(public_key=public, heartbeat_interval=_HEARTBEAT_SECONDS)
        try:
            return Node(node_id=self._call(self._client.ActivateNode, request).node_id)
        except _WithdrawnError:
            raise UnknownKeyError(
                f"{self._server} refuses this client: its key is not enrolled, was revoked, or is in use by another "
                "process. Enrol with a token, or stop the other process."
            ) from None

    def _call(self, method: Any, request: Any) -> Any:
        """Call the server; raise an error of ours where it fails."""
        try:
            return method(request)
        except httpx.HTTPStatusError as error:
            if error.response.status_code in _GONE:  # also where the server has started again and knows no connection
                raise LinkDownError(f"{self._server} has closed the connection.") from None
            raise _WithdrawnError from None
        except (httpx.TransportError, ValueError) as error:
            raise unreachable(self._server, error) from None

    def _beat(self) -> None:
        request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=_HEARTBEAT_SECONDS)
        while not self._closing.wait(_HEARTBEAT_SECONDS / 2):
            with suppress(*_FAILURES):  # the next request of the main thread will tell
                self._call(self._client.SendNodeHeartbeat, request)

    def receive(self) -> Incoming | None:
        """Return the next task; None where there is none now, or it was withdrawn meanwhile."""
        with suppress(_WithdrawnError):
            return self._receive()
        return None

    def _receive(self) -> Incoming | None:
        found = self._call(self._client.PullMessages, PullMessagesRequest(node=self._node))
        if not found.messages_list:
            return None
        message, tree = message_from_proto(found.messages_list[0]), found.message_object_trees[0]
        run = message.metadata.run_id
        contents: dict[str, bytes] = {}
        for name in (node.object_id for node in iterate_object_tree(tree)):
            if name not in self._kept:
                request = PullObjectRequest(node=self._node, run_id=run, object_id=name)
                pulled = self._call(self._client.PullObject, request)
                if not pulled.object_available:
                    return None
                self._kept[name] = pulled.object_content
            contents[name] = self._kept[name]
        self._kept = dict(contents)
        request = ConfirmMessageReceivedRequest(
            node=self._node, run_id=run, message_object_id=message.metadata.message_id
        )
        self._call(self._client.ConfirmMessageReceived, request)
        whole: Any = inflate_object_from_contents(message.metadata.message_id, contents)
        whole.metadata.__dict__["_message_id"] = message.metadata.message_id
        try:
            return Incoming(from_records(whole.content), whole)
        except (ValueError, TypeError):
            return None

    def reply(self, incoming: Incoming, envelope: Envelope) -> bool:
        """Send the answer to a task; return False where the task was withdrawn meanwhile."""
        with suppress(_WithdrawnError):
            self._push(Message(to_records(envelope), reply_to=incoming.ticket))
            return True
        return False

    def _push(self, message: Message) -> None:
        run = message.metadata.run_id
        with no_object_id_recompute():
            message.metadata.__dict__["_message_id"] = message.object_id
            objects, tree = get_all_nested_objects(message), get_object_tree(message)
            request = PushMessagesRequest(
                node=self._node,
                messages_list=[message_to_proto(remove_content_from_message(message))],
                message_object_trees=[tree],
                clientapp_runtime_list=[0.0],  # how long local work takes stays here
            )
            pushed = self._call(self._client.PushMessages, request)
            for name in pushed.objects_to_push:
                request = PushObjectRequest(
                    node=self._node,
                    run_id=run,
                    object_id=name,
                    object_content=objects[name].deflate(),
                    session_id=pushed.session_id,
                )
                self._call(self._client.PushObject, request)

    def close(self) -> None:
        """Say goodbye."""
        self._closing.set()
        with suppress(*_FAILURES):
            self._call(self._client.DeactivateNode, DeactivateNodeRequest(node_id=self._node.node_id))
        self._client.close()
