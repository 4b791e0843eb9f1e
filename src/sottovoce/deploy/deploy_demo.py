"""The demonstration of a deployment on one machine: a server, eight clients, a kill and a liar, and the proof.

Everything is a process of its own and talks over TLS with keys of its own, as it would between machines. One client
lies in every update, and one is killed after the first step. At the end the deployed model is compared with that of a
simulation that is told who contributed in each step: both must have the same bytes. For that the run's randomness is
seeded; a real deployment takes it from the operating system.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sottovoce.config import Layer, Resolved, parse_setting, resolve
from sottovoce.data.corpora.synthetic import Synthetic
from sottovoce.data.leaving_out import leave_out
from sottovoce.data.preparation import prepare
from sottovoce.data.selection import Selection
from sottovoce.data.store import Store
from sottovoce.deploy.contributions import Contributions, read_contributions, told_by
from sottovoce.deploy.enrolment import Enrolment
from sottovoce.deploy.keys import CA_CERT, make_certificates
from sottovoce.errors import SottoError, StoppedError
from sottovoce.files import make_folder, sha256_of, written_whole
from sottovoce.privacy.run_files import MODEL_FILE
from sottovoce.runs.folder import LAST

CLIENTS, STEPS = 8, 5
LIE = "oversized"
_SETTINGS = (
    f"participation.population={CLIENTS}",
    "participation.cohort_size=6",
    f"federated.central_steps={STEPS}",
    "federated.evaluate_every=100",
    "federated.checkpoint_every=1",
    "randomness.source=seeded",
)
_DEADLINE_SECONDS = 180  # busy machines are slow; whoever is killed is not waited for so long
_PATIENCE_SECONDS = 1800.0

Say = Callable[[str], None]


@dataclass(frozen=True)
class Demonstrated:
    """What the demonstration has shown."""

    deployed_sha256: str
    simulated_sha256: str
    clients: int
    killed: str
    liar: str
    steps: tuple[Contributions, ...]
    run: Path

    @property
    def equal(self) -> bool:
        """Whether the deployed model has the bytes of the simulated one."""
        return self.deployed_sha256 == self.simulated_sha256


def demonstrate(out: Path, say: Say) -> Demonstrated:
    """Deploy on this machine, below `out`, and compare with the simulation."""
    say(f"Making {CLIENTS} synthetic voices, each in a store of its own.")
    store = prepare(
        Synthetic(speakers=CLIENTS, domain="clean", vocabulary=12, mean_utterances=4, max_utterances=6), out / "voices"
    )
    users: list[str] = store.speaker_names().to_pylist()
    liar, killed = users[0], users[1]
    run = out / "run"
    with _asked_to_stop() as asked, ExitStack() as closing:
        server, clients = _start(closing, out, store, users, liar, asked, say)
        _wait(lambda: bool(read_contributions(run)), server, out, asked)
        clients[killed].send_signal(signal.SIGKILL)
        say(f"Killed the client of {killed} after the first step.")
        _wait(lambda: server.poll() is not None, server, out, asked)
        for client in clients.values():  # all at once; the end of the block waits for them
            client.terminate()
    if server.returncode != 0:
        raise SottoError(f"The server has failed. See {out / 'server.log'}.")
    if not any(answers.contributed for answers in read_contributions(run).values()):
        raise SottoError("No client was fast enough to contribute, so there is nothing to compare. Free the machine.")
    say("Simulating the same run, told who contributed in each step.")
    simulated = _simulate(out, store, run)
    return Demonstrated(
        deployed_sha256=sha256_of(run / LAST / MODEL_FILE),
        simulated_sha256=sha256_of(simulated / LAST / MODEL_FILE),
        clients=CLIENTS,
        killed=killed,
        liar=liar,
        steps=tuple(answers for _, answers in sorted(read_contributions(run).items())),
        run=run,
    )


def _start(
    closing: ExitStack,
    out: Path,
    store: Store,
    users: Sequence[str],
    liar: str,
    asked: threading.Event,
    say: Say,
) -> tuple["subprocess.Popen[bytes]", dict[str, "subprocess.Popen[bytes]"]]:
    """Start a server and a client for every user; they end with the demonstration, however it ends."""
    folder, port = out / "server", _free_port()
    make_certificates(folder, ["localhost", "127.0.0.1"])
    tokens = Enrolment(folder).issue(users)
    words = ["-m", "sottovoce", "deploy", "server", "quick", "--folder", str(folder), "--run", str(out / "run")]
    words += ["--listen", f"127.0.0.1:{port}", "--deadline", str(_DEADLINE_SECONDS), "--settle", "300"]
    words += [word for setting in _SETTINGS for word in ("--set", setting)]
    server = closing.enter_context(_process(words, out / "server.log"))
    _wait(lambda: _answers(port), server, out, asked)
    say(f"Started a server on 127.0.0.1:{port}, and {len(users)} clients; that of {liar} lies ({LIE} updates).")
    clients = {}
    for number, user in enumerate(users):
        _require_going(asked)
        own = out / "clients" / f"{number}"
        make_folder(own)
        mine = own / "store"
        if not mine.exists():
            leave_out(store, [other for other in users if other != user], mine)
        with written_whole(own / "token", private=True) as file:
            file.write(tokens[user].encode())
        kind = ["sottovoce.deploy.lying", LIE] if user == liar else ["sottovoce", "deploy", "client"]
        words = ["-m", *kind, "--store", str(mine), "--server", f"127.0.0.1:{port}", "--ca", str(folder / CA_CERT)]
        words += ["--keys", str(own / "keys"), "--token-file", str(own / "token"), "--poll", "0.5"]
        clients[user] = closing.enter_context(_process(words, own / "client.log"))
    return server, clients


@contextmanager
def _asked_to_stop() -> Iterator[threading.Event]:
    """Give an event that SIGTERM and Ctrl-C set, so that no process is left behind however the demonstration ends."""
    asked = threading.Event()
    before = {number: signal.signal(number, lambda *_: asked.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _require_going(asked: threading.Event) -> None:
    if asked.is_set():
        raise StoppedError("Stopped, with all processes of the demonstration. Begin again with a new folder: --out.")


@contextmanager
def _process(words: Sequence[str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run this Python with some words, one thread, and a log; it ends with the block."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, *words], stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(done: Callable[[], bool], server: "subprocess.Popen[bytes]", out: Path, asked: threading.Event) -> None:
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while not done():
        _require_going(asked)
        if server.poll() not in (None, 0) or time.monotonic() > give_up:
            raise SottoError(f"The server has failed, or takes too long. See {out / 'server.log'}.")
        time.sleep(0.2)


def _simulate(out: Path, store: Store, run: Path) -> Path:
    """Train the same run in this process, on one thread, with the cohorts that contributed; return its folder."""
    import torch  # noqa: PLC0415 - the processes above have started without waiting for it

    from sottovoce.distributed import Group  # noqa: PLC0415 - as torch
    from sottovoce.federated.federated_training import train_federated  # noqa: PLC0415 - as torch
    from sottovoce.runs.display import NoDisplay  # noqa: PLC0415 - as torch

    torch.set_num_threads(1)
    resolved = demo_settings().over(Layer({"data": {"train": Selection(store=store.path)}}, "the demonstration"))
    train_federated(Group(), resolved, out / "simulated", NoDisplay, make_aggregator=told_by(run))
    return out / "simulated"


def demo_settings() -> Resolved:
    """Return the configuration that server and simulation share."""
    return resolve("quick", *map(parse_setting, _SETTINGS))


def _answers(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
