"""What secure aggregation costs a client and the server: bytes and CPU seconds, for cohorts of several sizes.

    python benchmarks/secure_aggregation.py --clients 8 64 200 --coordinates 500000

All clients are objects in one process, and nothing is sent. A tenth of them drops out after they shared their secrets,
the most expensive moment for the server. The masked sum is compared with the plain one.
"""

import argparse
import time
from collections import Counter, defaultdict

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sottovoce.deploy.masking.directory import IdentityDirectory
from sottovoce.deploy.masking.masking_client import MaskingClient
from sottovoce.deploy.masking.masking_server import MaskingServer
from sottovoce.deploy.masking.masking_session import MaskingSession, SparseGraph, sparse_graph

LARGEST = 2**38
PHASES = ("advertise", "share", "mask", "agree", "reveal")


def measure(clients: int, coordinates: int, graph: SparseGraph | None) -> dict[str, float]:
    """Run one session and return what it cost one client and the server."""
    identities = {f"client{number:04}": Ed25519PrivateKey.generate() for number in range(clients)}
    verify = IdentityDirectory({name: key.public_key().public_bytes_raw() for name, key in identities.items()}).verify
    session = MaskingSession.of("benchmark", 0, identities, length=coordinates, largest=LARGEST, graph=graph)
    server = MaskingServer(session, verify)
    members = {name: MaskingClient(session, name, identities[name].sign, verify) for name in session.names}
    update = np.random.default_rng(1).integers(-(2**30), 2**30, coordinates)
    dropping = set(session.names[: -(-clients // 10)])
    seconds, sent, received = defaultdict[str, float](float), Counter[str](), Counter[str]()
    answers = dict.fromkeys(session.names, b"")
    for phase in PHASES:
        calls = {name: answer for name, answer in answers.items() if phase != "mask" or name not in dropping}
        for name, answer in calls.items():
            given = [] if phase == "advertise" else [answer, *([update] if phase == "mask" else [])]
            begin = time.process_time()
            message = getattr(members[name], phase)(*given)
            seconds[f"client {phase}"] += (time.process_time() - begin) / len(calls)
            sent[phase] += len(message)
            received[phase] += len(answer)
            begin = time.process_time()
            server.receive(name, message)
            seconds["server receives"] += time.process_time() - begin
        begin = time.process_time()
        answers = dict(server.advance())
        seconds["server answers"] += time.process_time() - begin
        sent[phase] //= len(calls)
        received[phase] //= len(calls)
    begin = time.process_time()
    total, contributors = server.result()
    seconds["server unmasks"] = time.process_time() - begin
    assert np.array_equal(total, update * len(contributors))
    return {
        "masked kB": sent["mask"] / 1e3,
        "other kB up": (sent.total() - sent["mask"]) / 1e3,
        "kB down": (received.total() + len(session.to_bytes())) / 1e3,
        "client s": sum(value for name, value in seconds.items() if name.startswith("client")),
        "of it masks": seconds["client mask"],
        "server s": seconds["server receives"] + seconds["server answers"],
        "unmasking s": seconds["server unmasks"],
        "dropped": clients - len(contributors),
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[8, 64, 200])
    parser.add_argument("--coordinates", type=int, default=500_000)
    arguments = parser.parse_args()
    heads: list[str] = []
    for clients in arguments.clients:
        sparse = sparse_graph(clients) if clients > 64 else None
        for graph in (None, sparse) if sparse else (None,):
            figures = measure(clients, arguments.coordinates, graph)
            if not heads:
                heads = list(figures)
                print(f"| clients | neighbours | {' | '.join(heads)} |\n|{'---|' * (len(heads) + 2)}")
            degree = graph.degree if graph else clients - 1
            print(
                f"| {clients} | {degree} |", " | ".join(f"{value:.3g}" for value in figures.values()), "|", flush=True
            )


if __name__ == "__main__":
    main()
