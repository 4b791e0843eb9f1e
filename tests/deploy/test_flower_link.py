"""Messages both ways over Flower 1.41 and TLS, and everybody who must not get in."""

import base64
import errno
import ssl
import threading
import time
from contextlib import closing, suppress

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Message, Metadata
from flwr.app.message import make_message, remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER
from flwr.supercore.inflatable.inflatable_object import get_object_tree

from sottovoce.deploy import keys
from sottovoce.deploy.client_enrolment import ServerCalls
from sottovoce.deploy.enrolment import Enrolment, EnrolmentRequest, RefusedEnrolmentError
from sottovoce.deploy.flower_connection import FlowerConnection
from sottovoce.deploy.flower_fleet import FlowerFleet, open_superlink
from sottovoce.deploy.flower_records import to_records
from sottovoce.deploy.keys import (
    CA_CERT,
    SERVER_CERT,
    client_keys,
    connection_bytes,
    connection_text,
    make_certificates,
    public_text,
)
from sottovoce.deploy.link import LinkDownError, RefusedConnectionError, UnknownKeyError
from sottovoce.deploy.messages import PROTOCOL, Envelope
from sottovoce.deploy.public_paths import ENROL
from sottovoce.deploy.public_socket import Gate, PublicSocket
from sottovoce.errors import ConfigError, DataError


class Server:
    """A gate with Flower behind it, on a free port of this machine."""

    def __init__(self, folder):
        make_certificates(folder, [])
        self.folder, self.enrolment = folder, Enrolment(folder)
        application, self.state = open_superlink()
        self.fleet = FlowerFleet(self.state)
        self.socket = PublicSocket(Gate(application, self.enrol, self.fleet), "127.0.0.1", 0, folder)

    def enrol(self, request):
        users = self.enrolment.enrol(request)
        self.fleet.admit(base64.b64decode(request.node_key))
        return users

    @property
    def address(self):
        return f"127.0.0.1:{self.socket.port}"

    def post(self, path, **options):
        context = ssl.create_default_context(cafile=self.folder / CA_CERT)
        with httpx.Client(verify=context, trust_env=False) as client:
            return client.post(f"https://{self.address}{path}", **options)

    def greet(self, **changes):
        given = {"server": self.address, "ca": self.folder / CA_CERT} | changes
        ServerCalls(**given).greet()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("server"))
    with server.socket:
        yield server


def enrolled(server, folder, user):
    """Return the keys of a client that has used a token."""
    node, signing = client_keys(folder)
    (token,) = server.enrolment.issue([user]).values()
    keys = {"node_key": connection_text(node), "signing_key": public_text(signing)}
    body = {"protocol": PROTOCOL, "client": "test", "tokens": [token], **keys}
    for _ in range(2):  # whoever lost the first answer gets it again
        assert server.post(ENROL, json=body).json() == {"users": [user]}
    other = connection_text(ec.generate_private_key(ec.SECP384R1()))
    assert server.post(ENROL, json=body | {"node_key": other}).status_code == 403  # for others a token works once
    return node


def test_a_task_goes_down_and_its_answer_comes_back_to_the_bit(server, tmp_path):
    node = enrolled(server, tmp_path, "ann")
    large = bytes(range(256)) * 30_000  # more than one piece of 5 MB
    task = Envelope(b'{"task": 1}', {"theta": large, "frozen": b""})
    seen = []

    def client():
        with closing(FlowerConnection(server.address, server.folder / CA_CERT, node)) as connection:
            ready.set()
            while not seen:
                if (incoming := connection.receive()) is not None:
                    seen.append(incoming.envelope)
                    connection.reply(incoming, Envelope(b"{}", {"update": large[::-1]}, b"signed"))
            answered.wait(40)  # whoever leaves before the server has looked is gone

    ready, answered, key = threading.Event(), threading.Event(), connection_bytes(node)
    thread = threading.Thread(target=client)
    thread.start()
    assert ready.wait(20)
    tasks = {"ann": (key, task), "nobody": (b"no such key", task)}
    answers = list(server.fleet.ask(tasks, seconds=30))
    answered.set()
    thread.join(20)
    assert seen == [task]
    assert [(answer.user, answer.envelope) for answer in answers] == [
        ("ann", Envelope(b"{}", {"update": large[::-1]}, b"signed"))
    ]
    assert not server.state.object_store.store  # nothing is kept of a step
    assert not list(server.fleet.ask(tasks, seconds=30))  # offline clients are not waited for


def repeated_pieces(connection, incoming):
    connection.reply(incoming, Envelope(b"{}", {"update": bytes(12_000_000)}))  # equal pieces are sent once


def objects_without_end(connection, incoming):
    answer = Message(to_records(Envelope(b"{}", {"update": b"1"})), reply_to=incoming.ticket)
    answer.metadata.__dict__["_message_id"] = answer.object_id
    tree = get_object_tree(answer)
    for level in range(40):  # 2^40 ways lead to the innermost
        name = f"{level:064x}"
        tree = ObjectTree(object_id=name, children=[tree, ObjectTree(object_id=tree.object_id)])
    whole = ObjectTree(object_id=answer.object_id, children=[tree])
    push(connection, answer, whole)


def task_for_another(connection, incoming):
    metadata = incoming.ticket.metadata
    numbers = {"run_id": metadata.run_id, "src_node_id": 1, "dst_node_id": metadata.dst_node_id, "message_id": ""}
    words = {"group_id": "", "ttl": 9.0, "message_type": "train", "reply_to_message_id": "", "created_at": time.time()}
    task = make_message(metadata=Metadata(**numbers, **words), content=to_records(Envelope(b"{}")))
    task.metadata.__dict__["_message_id"] = task.object_id
    push(connection, task, get_object_tree(task))
    assert connection.receive() is None


def push(connection, message, tree):
    request = PushMessagesRequest(
        node=connection._node,
        messages_list=[message_to_proto(remove_content_from_message(message))],
        message_object_trees=[tree],
    )
    assert not connection._client.PushMessages(request).objects_to_push


@pytest.mark.parametrize("hostile", [repeated_pieces, objects_without_end, task_for_another])
def test_nothing_that_a_hostile_client_sends_grows_or_hangs_in_the_server(server, tmp_path, hostile):
    node = enrolled(server, tmp_path, hostile.__name__)
    with closing(FlowerConnection(server.address, server.folder / CA_CERT, node)) as connection:
        answers, task = [], {hostile.__name__: (connection_bytes(node), Envelope(b"{}", {"theta": b"1" * 12_000_000}))}
        asking = threading.Thread(target=lambda: answers.extend(server.fleet.ask(task, seconds=4)))
        asking.start()
        while (incoming := connection.receive()) is None:
            time.sleep(0.05)
        hostile(connection, incoming)
        asking.join(20)
    assert not asking.is_alive()
    assert not [answer for answer in answers if answer.envelope is not None]
    assert not server.state.object_store.store


def test_unknown_keys_other_authorities_and_plaintext_are_refused(server, tmp_path):
    stranger = ec.generate_private_key(ec.SECP384R1())
    with pytest.raises(UnknownKeyError, match="not enrolled"):
        FlowerConnection(server.address, server.folder / CA_CERT, stranger)
    make_certificates(tmp_path / "other", ["127.0.0.1"])
    with pytest.raises(RefusedConnectionError, match="vouch"):
        FlowerConnection(server.address, tmp_path / "other" / CA_CERT, stranger)
    with pytest.raises(RefusedConnectionError, match="vouch"):
        server.greet(ca=tmp_path / "other" / CA_CERT)
    with pytest.raises(httpx.TransportError):
        httpx.post(f"http://{server.address}/v1/sotto/hello", json={"protocol": PROTOCOL}, trust_env=False)
    with pytest.raises(LinkDownError):
        server.greet(server="127.0.0.1:1")


def test_a_certificate_is_for_the_names_it_was_made_for(tmp_path):
    with pytest.raises(ConfigError, match="no host"):
        make_certificates(tmp_path, ["a host"])
    make_certificates(tmp_path, ["asr.example.org"])
    other = Server(tmp_path)
    with other.socket, pytest.raises(RefusedConnectionError, match="for another name"):
        other.greet()
    assert not make_certificates(tmp_path, ["asr.example.org"])
    with pytest.raises(DataError, match="is not for"):
        make_certificates(tmp_path, ["localhost"])


@pytest.mark.parametrize("certificate", [CA_CERT, SERVER_CERT])
def test_a_certificate_that_could_not_be_written_is_made_later(tmp_path, monkeypatch, certificate):
    write = keys._write

    def on_a_full_disk(path, content, **options):
        if path.name == certificate:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, content, **options)

    with monkeypatch.context() as patched:
        patched.setattr(keys, "_write", on_a_full_disk)
        with pytest.raises(OSError, match="No space"):
            make_certificates(tmp_path, [])
    assert make_certificates(tmp_path, [])
    assert (tmp_path / certificate).exists()


def test_a_revoked_key_is_refused(server, tmp_path):
    node = enrolled(server, tmp_path, "bob")
    FlowerConnection(server.address, server.folder / CA_CERT, node).close()
    server.fleet.expel(connection_bytes(node))
    with pytest.raises(UnknownKeyError):
        FlowerConnection(server.address, server.folder / CA_CERT, node)


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/control/start-run", "/v1/control/register-node", "/v1/runtime/acquire-task", "/docs", "/health", "/"),
        *("/openapi.json", "/v1/fleet/../control/start-run", "/v1/fleet/register-node", "/v1/fleet/unregister-node"),
    ],
)
def test_nothing_but_the_fleet_is_on_the_public_socket(server, path):
    assert server.post(path, content=b"").status_code == 404


def test_a_fleet_call_without_a_key_is_refused(server):
    for key in ({}, {FLEET_HTTP_PUBLIC_KEY_HEADER: "none"}, {FLEET_HTTP_PUBLIC_KEY_HEADER: "****"}):
        headers = {"content-type": "application/protobuf", **key}
        assert server.post("/v1/fleet/pull-messages", content=b"", headers=headers).status_code == 401


def test_large_or_endless_bodies_are_not_read(server, tmp_path):
    assert server.post("/v1/sotto/hello", content=bytes((1 << 20) + 1)).status_code == 413
    key = base64.b64encode(connection_bytes(enrolled(server, tmp_path, "dan"))).decode()
    headers = {FLEET_HTTP_PUBLIC_KEY_HEADER: key}
    assert server.post("/v1/fleet/push-object", content=bytes((1 << 23) + 1), headers=headers).status_code == 413
    with suppress(httpx.TransportError):
        assert server.post(ENROL, content=iter([b"{}"])).status_code == 413


def test_bad_tokens_and_old_versions_get_a_clear_line(server, tmp_path):
    node, signing = client_keys(tmp_path)
    keys = {"node_key": connection_text(node), "signing_key": public_text(signing)}
    answer = server.post(ENROL, json={"protocol": PROTOCOL, "client": "", "tokens": ["guessed"], **keys})
    assert (answer.status_code, "unknown, or was used" in answer.json()["error"]) == (403, True)
    with pytest.raises(RefusedConnectionError, match="Install the same version"):
        server.greet(protocol=0)
    assert server.post(ENROL, json={"protocol": PROTOCOL}).status_code == 400


def test_asking_again_changes_nothing_and_nobody_enrols_with_a_key_of_another(tmp_path):
    enrolment = Enrolment(tmp_path)
    clients = {user: client_keys(tmp_path / user) for user in ("ann", "bob")}
    tokens = enrolment.issue(["ann", "bob"])
    sent = {"protocol": PROTOCOL, "client": "", "tokens": ["", *map(str, range(99_999))]}

    def request(user, **changes):
        node, signing = clients[user]
        keys = {"node_key": connection_text(node), "signing_key": public_text(signing)}
        return EnrolmentRequest(**sent | keys | {"tokens": [tokens[user]]} | changes)

    assert enrolment.enrol(request("ann")) == ["ann"]
    before, renewed = enrolment.users["ann"], enrolment.issue(["ann"])["ann"]
    assert enrolment.enrol(request("ann")) == ["ann"]
    assert enrolment.users["ann"] == before
    assert enrolment.waiting == ["ann", "bob"]  # the new token for ann still works
    with pytest.raises(RefusedEnrolmentError, match="belongs to another"):
        enrolment.enrol(request("bob", signing_key=public_text(clients["ann"][1])))
    assert enrolment.enrol(request("bob")) == ["bob"]
    clients["ann"] = client_keys(tmp_path / "new")
    assert enrolment.enrol(request("ann", tokens=[renewed, renewed])) == ["ann"]
    assert not enrolment.users["ann"].has_keys_of(before)
    with pytest.raises(RefusedEnrolmentError, match="unknown"):  # at once, however many are guessed
        enrolment.enrol(request("bob", tokens=sent["tokens"]))


def test_keys_and_tokens_are_for_their_owner_only(server, tmp_path):
    client_keys(tmp_path / "client")
    (token,) = server.enrolment.issue(["eve"]).values()
    private = [*(tmp_path / "client").glob("*.key"), *server.folder.glob("*.key"), server.folder / "enrolment.json"]
    assert {path.stat().st_mode & 0o777 for path in private} == {0o600}
    assert token not in (server.folder / "enrolment.json").read_text()


def test_a_request_of_enrolment_says_nothing_about_audio():
    assert set(EnrolmentRequest.model_fields) == {"protocol", "client", "tokens", "node_key", "signing_key"}
