"""A client's side of Flower: its connection to the server, over TLS, as the owner of an enrolled key.

A connection outlives cuts of the link: after a `LinkDownError` the same call may be made again, and goes on where it
was. A task that was half fetched is fetched to its end, and an answer that was half sent is completed, never doubled.
"""

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec

from sottovoce.deploy.flower_records import from_records, to_records  # first: it checks Flower's version
from sottovoce.deploy.keys import connection_bytes
from sottovoce.deploy.link import (
    HEARTBEAT_SECONDS,
    ConnectionLostError,
    Incoming,
    LinkDownError,
    RefusedConnectionError,
    UnknownKeyError,
    unreachable,
)
from sottovoce.deploy.messages import Envelope
from sottovoce.deploy.public_paths import FLEET
from sottovoce.reading import read_bounded

# isort: split
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest, SendNodeHeartbeatResponse
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

_GONE = (401, 502, 503, 504)


class _WithdrawnError(Exception):
    """The server no longer wants what was asked for or sent."""


_FAILURES = (LinkDownError, RefusedConnectionError, _WithdrawnError)


class FlowerConnection:
    """A client's connection, with a thread that tells the server that the client is there."""

    def __init__(self, server: str, ca: Path, key: ec.EllipticCurvePrivateKey) -> None:
        """Connect; raise LinkDownError or RefusedConnectionError where that fails."""
        interceptors: list[Any] = [
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(key, key.public_key()),
        ]
        try:
            self._client = FleetHttpClient.from_server_address(server, False, read_bounded(ca), interceptors)
        except (ValueError, OSError) as error:
            raise RefusedConnectionError(f"{ca} is no certificate ({error}). Use the server's ca.crt.") from None
        self._server, self._closing = server, threading.Event()
        try:
            self._node = self._activate(connection_bytes(key))
        except BaseException:
            self._client.close()
            raise
        self._kept: dict[str, bytes] = {}  # objects of the last task: what did not change is not fetched again
        self._fetching: Any = None  # a task that has begun to arrive: the server hands it out once
        self._sending: Message | None = None  # an answer that has begun to leave
        self._beating = threading.Thread(target=self._beat, daemon=True)
        self._beating.start()

    def _activate(self, public: bytes) -> Node:
        """Connect as the owner of a key."""
        request = ActivateNodeRequest(public_key=public, heartbeat_interval=HEARTBEAT_SECONDS)
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
                raise ConnectionLostError(f"{self._server} has closed the connection.") from None
            raise _WithdrawnError from None
        except (httpx.TransportError, ValueError) as error:
            raise unreachable(self._server, error) from None

    def _beat(self) -> None:
        request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=HEARTBEAT_SECONDS)
        while not self._closing.wait(HEARTBEAT_SECONDS / 2):
            with suppress(*_FAILURES):  # the next request of the main thread will tell
                self._call(self._send_heartbeat, request)

    def _send_heartbeat(self, request: SendNodeHeartbeatRequest) -> None:
        """Send a heartbeat as Flower does, but wait longer than 5 s for a busy server."""
        self._client._unary_unary(
            path=f"{FLEET}send-node-heartbeat",
            rpc_method="/flwr.proto.Fleet/SendNodeHeartbeat",
            request=request,
            response_type=SendNodeHeartbeatResponse,
            timeout=HEARTBEAT_SECONDS,
        )

    def receive(self) -> Incoming | None:
        """Return the next task; None where there is none now, or it was withdrawn meanwhile."""
        try:
            found = self._receive()
        except _WithdrawnError:
            found = None
        self._fetching = self._sending = None
        return found

    def _receive(self) -> Incoming | None:
        if self._fetching is None:
            found = self._call(self._client.PullMessages, PullMessagesRequest(node=self._node))
            if not found.messages_list:
                return None
            self._fetching = message_from_proto(found.messages_list[0]), found.message_object_trees[0]
        message, tree = self._fetching
        number, run = message.metadata.message_id, message.metadata.run_id
        contents = self._contents(run, [node.object_id for node in iterate_object_tree(tree)])
        if contents is None:
            return None
        request = ConfirmMessageReceivedRequest(node=self._node, run_id=run, message_object_id=number)
        self._call(self._client.ConfirmMessageReceived, request)
        whole: Any = inflate_object_from_contents(number, contents)
        whole.metadata.__dict__["_message_id"] = number
        try:
            return Incoming(from_records(whole.content), whole)
        except ValueError:
            return None

    def _contents(self, run: int, names: list[str]) -> dict[str, bytes] | None:
        """Return the objects of a task, fetched unless they are here; None where the server has them no more."""
        for name in names:
            if name not in self._kept:
                request = PullObjectRequest(node=self._node, run_id=run, object_id=name)
                pulled = self._call(self._client.PullObject, request)
                if not pulled.object_available:
                    return None
                self._kept[name] = pulled.object_content
        self._kept = {name: self._kept[name] for name in names}
        return dict(self._kept)

    def reply(self, incoming: Incoming, envelope: Envelope) -> bool:
        """Send the answer to a task; return False where the task was withdrawn meanwhile."""
        begun = self._sending is not None
        if self._sending is None:
            self._sending = Message(to_records(envelope), reply_to=incoming.ticket)
        try:
            taken = self._push(self._sending) > 0 or begun
        except _WithdrawnError:
            taken = False
        self._sending = None
        return taken

    def _push(self, message: Message) -> int:
        """Send what the server does not have of a message; return how many objects that were."""
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
        return len(pushed.objects_to_push)

    def close(self) -> None:
        """Say goodbye."""
        self._closing.set()
        with suppress(*_FAILURES):
            self._call(self._client.DeactivateNode, DeactivateNodeRequest(node_id=self._node.node_id))
        self._client.close()
