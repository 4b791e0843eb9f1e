"""Messages as Flower carries them, for the modules that know Flower: the server's, the client's and the stock apps'.

Flower 1.41 keeps what a fleet and a connection need in modules without a promise of stability. So exactly this release
is asked for, here, before anything else of it is used.
"""

import importlib.metadata
import logging
import os
from typing import Any

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

from sottovoce.deploy.messages import Envelope
from sottovoce.errors import ConfigError

FLOWER = "1.41."
_found = importlib.metadata.version("flwr")
if not _found.startswith(FLOWER):
    raise ConfigError(f"Flower {_found} is installed, and this version needs {FLOWER}*. Install sottovoce[deploy].")

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

logging.getLogger("flwr").setLevel(logging.CRITICAL)  # its lines name nodes and keys; ours say what matters

TRAIN, QUERY = "train", "query"  # kinds of messages
_HEADER, _PARTS = "header", "parts"
_RAW = "sottovoce.bytes"  # how an array of ours is serialised: as it is


def to_records(envelope: Envelope) -> RecordDict:
    """Return a message as Flower carries it; a part is cut into pieces of 5 MB, and equal pieces are kept once."""
    arrays = {name: Array("uint8", (len(part),), _RAW, bytes(part)) for name, part in envelope.parts.items()}
    content: dict[str, Any] = {"header": envelope.header, "signature": envelope.signature}
    return RecordDict({_HEADER: ConfigRecord(content), _PARTS: ArrayRecord(arrays)})


def from_records(records: Any) -> Envelope:
    """Return the message that Flower carried; raise ValueError where it is none of ours."""
    try:
        header, parts = records[_HEADER], records[_PARTS]
        content, signature = header["header"], header["signature"]
        found = Envelope(content, {str(name): array.data for name, array in parts.items()}, signature)
    except (KeyError, TypeError, AttributeError):
        raise ValueError("not a message of this package") from None
    if not isinstance(content, bytes) or not isinstance(signature, bytes):
        raise ValueError("a header is bytes")  # noqa: TRY004 - one kind of error for every message of somebody else
    return found
