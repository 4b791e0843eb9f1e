"""The only socket of a deployment: TLS, with a gate before Flower's application.

Through the gate come `/v1/fleet/*`, which authenticates nodes by their enrolled keys, and two calls of our own, both
JSON by POST:

    /v1/sotto/hello   {"protocol": 2, "client": "0.1.0"}: is this client recent enough?
    /v1/sotto/enrol   tokens and public keys (`enrolment.py`)

Everything else is 404, whatever Flower would say. A body without a length, or with a large one, is not read, nor is
that of a fleet's call without an enrolled key.
"""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import uvicorn
from pydantic import ValidationError

from sottovoce.deploy.enrolment import EnrolmentRequest, RefusedEnrolmentError
from sottovoce.deploy.keys import SERVER_CERT, SERVER_KEY
from sottovoce.deploy.messages import PROTOCOL
from sottovoce.deploy.public_paths import ENROL, FLEET, HELLO
from sottovoce.errors import ConfigError, SottoError
from sottovoce.reading import BadDocument, parse_json
from sottovoce.version import VERSION

_CLOSED = (f"{FLEET}register-node", f"{FLEET}unregister-node")  # enrolment is by token only
_WELCOME, _FAREWELL = f"{FLEET}activate-node", f"{FLEET}deactivate-node"
LARGEST_BODY = 1 << 23  # Flower cuts arrays into pieces of 5 MB
_LARGEST_REQUEST = 1 << 20
_START_SECONDS = 60.0

Enrol = Callable[[EnrolmentRequest], list[str]]


class Callers(Protocol):
    """The clients of a fleet, by the headers of their calls."""

    def knows(self, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether a call names a key that is enrolled."""

    def seen(self, headers: Mapping[bytes, bytes]) -> None:
        """Note that whoever calls is there."""


class Gate:
    """An ASGI application before another one."""

    def __init__(self, inner: Any, enrol: Enrol, callers: Callers) -> None:
        """Let the fleet's calls through to `inner`, and give tokens to `enrol`.

        Callers are seen when `inner` has authenticated and accepted their call.
        """
        self._inner, self._enrol, self._callers = inner, enrol, callers

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request."""
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        path, method = scope["path"], scope["method"]
        own = path in (HELLO, ENROL)
        if method != "POST" or not (own or path.startswith(FLEET)) or path in _CLOSED or ".." in path:
            await _answer(send, 404, {"error": "There is nothing here."})
            return
        headers = dict(scope["headers"])
        if not own and not self._callers.knows(headers):
            await _answer(send, 403 if path == _WELCOME else 401, {"error": "The key is not enrolled."})
            return
        length = headers.get(b"content-length", b"")
        if not length.isdigit() or int(length) > (_LARGEST_REQUEST if own else LARGEST_BODY):
            await _answer(send, 413, {"error": "The request is too large, or does not say how large it is."})
            return
        if own:
            status, document = await asyncio.to_thread(self._own, path, await _body(receive))  # it may wait for a lock
            await _answer(send, status, document)
        else:
            await self._inner(scope, receive, self._watched(scope, send))

    def _watched(self, scope: Any, send: Any) -> Any:
        """Return `send` with a note of who was answered, unless that was a farewell."""

        async def watched(event: Any) -> None:
            if event["type"] == "http.response.start" and event["status"] == 200 and scope["path"] != _FAREWELL:
                self._callers.seen(dict(scope["headers"]))
            await send(event)

        return watched

    def _own(self, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        document = _parsed(body)
        if document.get("protocol") != PROTOCOL:
            return 426, {
                "error": f"This server ({VERSION}) speaks protocol {PROTOCOL}, the client protocol "
                f"{str(document.get('protocol'))[:20]}. Install the same version of sottovoce on both sides."
            }
        if path == HELLO:
            return 200, {"protocol": PROTOCOL, "server": VERSION}
        return self._enrolled(document)

    def _enrolled(self, document: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        try:
            return 200, {"users": self._enrol(EnrolmentRequest.model_validate(document))}
        except ValidationError:
            return 400, {"error": "The request cannot be read."}
        except RefusedEnrolmentError as error:
            return 403, {"error": str(error)}
        except (SottoError, OSError):
            return 503, {"error": "The server cannot enrol anybody now."}


def _parsed(body: bytes) -> dict[str, Any]:
    """Return the keys and values of a request; none where it cannot be read."""
    try:
        document = parse_json(body)
    except BadDocument:
        return {}
    return document if isinstance(document, dict) else {}


async def _body(receive: Any) -> bytes:
    body: bytes = b""
    while True:
        event = await receive()
        body += event.get("body", b"")
        if not event.get("more_body") or event["type"] == "http.disconnect" or len(body) > _LARGEST_REQUEST:
            return body


async def _answer(send: Any, status: int, document: dict[str, Any]) -> None:
    body = json.dumps(document).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class PublicSocket:
    """A thread that serves an application over TLS while the `with` block lasts."""

    def __init__(self, application: Any, host: str, port: int, certificates: Path) -> None:
        """Serve with the certificate in a server's folder; port 0 takes a free one."""
        self._listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._listening.bind((host, port))
        except OSError as error:
            raise ConfigError(f"Cannot listen on {host}:{port}: {error.strerror}. Give another --listen.") from None
        self.port: int = self._listening.getsockname()[1]
        config = uvicorn.Config(
            application,
            ssl_certfile=certificates / SERVER_CERT,
            ssl_keyfile=certificates / SERVER_KEY,
            log_level="critical",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=2,
            timeout_keep_alive=30,  # longer than clients keep a connection, so that none ends under a request
            lifespan="on",
            ws="none",
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._listening],), daemon=True)

    def __enter__(self) -> "PublicSocket":
        """Begin to serve."""
        self._thread.start()
        give_up = time.monotonic() + _START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > give_up:
                raise ConfigError("The server's socket did not open. Check its certificate and key.")
            time.sleep(0.02)
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop serving."""
        self._server.should_exit = True
        self._thread.join(timeout=10)
        self._listening.close()
