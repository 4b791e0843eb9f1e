"""The server's side of Flower: a SuperLink inside this process, and all clients as its state knows them.

Only `/v1/fleet/*` of the SuperLink is served (`public_socket.py`), over TLS, to nodes whose key is enrolled. The
Control and Runtime APIs, which would let their caller register keys and start runs, are not on any socket: this process
calls the state behind them. A central step is one Flower run, which is removed with all its messages when the step
ends, so nothing is kept of late answers.

A client may be hostile, and Flower takes whatever an enrolled one sends: tasks for others, trees of objects without
end, arrays that name one piece a million times. So nothing is taken but one answer to a task, of about as many objects
as the task has, and it is put together only where that gives no more bytes than have arrived.
"""

import base64
import json
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from sottovoce.deploy.flower_records import TRAIN, from_records, to_records  # first: it checks Flower's version
from sottovoce.deploy.link import HEARTBEAT_SECONDS, Answer
from sottovoce.deploy.messages import Envelope

# isort: split
from flwr.app import Array, Message, Metadata
from flwr.app.message import make_message, remove_content_from_message
from flwr.common.constant import (
    ISOLATION_MODE_PROCESS,
    NOOP_ACCOUNT_NAME,
    NOOP_FLWR_AID,
    SUPERLINK_NODE_ID,
    TRANSPORT_TYPE_GRPC_RERE,
)
from flwr.supercore.constant import (
    FLEET_HTTP_PUBLIC_KEY_HEADER,
    FLWR_IN_MEMORY_DB_NAME,
    NOOP_FEDERATION_ID,
    NodeStatus,
    TaskType,
)
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_body,
    get_object_head_values_from_object_content,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.superlink.cli.flower_superlink import SuperLinkLifespan
from flwr.superlink.config_loader import SuperLinkLifespanConfig, load_control_authn_plugin
from flwr.superlink.main import create_app

_POLL_SECONDS = 0.2
_PIECE_BYTES = 5_000_000  # Flower cuts arrays into pieces of about this size
_FEW_OBJECTS = 16  # a message with one small array has 6
_KEY_HEADER = FLEET_HTTP_PUBLIC_KEY_HEADER.lower().encode()


def open_superlink() -> tuple[Any, Any]:
    """Return Flower's SuperLink as an ASGI application that authenticates nodes, and the state behind it."""
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


class FlowerFleet:
    """All clients, as the server sees them through Flower's state."""

    def __init__(self, state: Any) -> None:
        """Use the state of a SuperLink in this process."""
        self._state = state
        self._expelled: set[bytes] = set()
        self._most_objects = 0  # of an answer
        self._store_any = state.store_message_and_object_tree
        state.store_message_and_object_tree = self._store_answer  # what Flower calls for a client

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

    def knows(self, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether a call names a key that may connect; Flower checks later that the caller owns it."""
        return self._node_of(headers) is not None

    def seen(self, headers: Mapping[bytes, bytes]) -> None:
        """Take a call that was authenticated for a heartbeat: under load, heartbeats alone may come too late."""
        node = self._node_of(headers)
        if node is not None:
            self._state.acknowledge_node_heartbeat(node, HEARTBEAT_SECONDS)

    def _node_of(self, headers: Mapping[bytes, bytes]) -> int | None:
        """Return Flower's number of the client whose key a call names."""
        try:
            key = base64.b64decode(headers.get(_KEY_HEADER, b""))
        except ValueError:
            return None
        node: int | None = self._state.get_node_id_by_public_key(key)
        return node

    def online(self) -> set[bytes]:
        """Return the keys of the clients that are connected."""
        return {bytes(node.public_key) for node in self._state.get_node_info(statuses=[NodeStatus.ONLINE])}

    def ask(self, tasks: Mapping[str, tuple[bytes, Envelope]], seconds: float) -> Iterator[Answer]:
        """Send every user's client its task; yield answers as they arrive until time is up (see `Fleet.ask`)."""
        run = self._state.create_run("", "", "", {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP)
        task = self._state.get_run_info(run_ids=[run])[0].primary_task_id
        self._state.claim_task(task)
        self._state.activate_task(task)
        largest = max((sum(map(len, envelope.parts.values())) for _, envelope in tasks.values()), default=0)
        self._most_objects = _FEW_OBJECTS + 2 * largest // _PIECE_BYTES
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
            self._forget(run)

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
            message_type=TRAIN,
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
            stored, missing = self._store_any(remove_content_from_message(message), tree, session)
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

    def _forget(self, run: int) -> None:
        """Remove a run, with all that clients have sent for it."""
        try:
            self._state.stop_run(run)
        except RecursionError:  # somebody's objects lie too deep inside one another
            self._state.object_store.clear()  # it holds nothing but objects of this run

    def _store_answer(self, message: Message, tree: Any, session: str) -> tuple[bool, list[str]]:
        """Store the answer to a task, and refuse everything else that a client may send.

        An answer that is sent again, after a cut, has the objects that it had.
        """
        number, names, waiting = message.metadata.message_id, set[str](), [tree]
        while waiting and len(names) + len(waiting) <= self._most_objects:
            node = waiting.pop()
            names.add(node.object_id)
            waiting += node.children
        again = number in self._state.message_res_store
        if (
            waiting
            or not message.metadata.reply_to_message_id
            or tree.object_id != number
            or (again and not names <= self._state.object_store.store.keys())
        ):
            return False, []
        stored: tuple[bool, list[str]] = self._store_any(message, tree, session)
        return stored

    def _objects(self, reply: Message) -> set[str]:
        """Return the objects of an answer; Flower would count one again for every way that leads to it."""
        store, found, waiting = self._state.object_store.store, set[str](), [str(reply.metadata.message_id)]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += store[name].child_object_ids
        return found

    def _complete(self, run: int, reply: Message) -> bool:
        try:
            return all(self._state.get_object(run, name) for name in self._objects(reply))
        except Exception:
            return False

    def _content(self, run: int, reply: Message) -> Envelope | None:
        """Return what a client sent. It may be anything, and what Flower raises about it, too."""
        try:
            contents = {name: self._state.get_object(run, name) for name in self._objects(reply)}
            if _bytes_in_arrays(contents) > sum(map(len, contents.values())):
                return None
            message: Any = inflate_object_from_contents(reply.metadata.message_id, contents)
            return from_records(message.content)
        except Exception:
            return None


def _bytes_in_arrays(contents: Mapping[str, bytes]) -> int:
    """Return the size of all arrays once they are put together: each may name a piece as often as it likes."""
    total = 0
    for content in contents.values():
        kind, pieces, _ = get_object_head_values_from_object_content(content)
        if kind == Array.__qualname__:
            numbers = json.loads(get_object_body(content, Array))["arraychunk_ids"]
            total += sum(len(contents[pieces[number]]) for number in numbers)
    return total
