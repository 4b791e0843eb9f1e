"""A deployed run with many clients on this machine: seconds per step, memory of the server, bytes per client.

    python benchmarks/deployment.py [--clients 200] [--steps 5] [--preset quick] [--secure-aggregation] [--json]

The server is a process of its own. A client is a thread with keys, a connection and a model of its own. Clients train
one at a time, because they share one interpreter: otherwise their heartbeats would starve. Eight synthetic voices are
shared out among them, so nothing here says how well anything is learnt.
"""

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from report import print_report
from sottovoce.data.corpora.synthetic import Synthetic
from sottovoce.data.leaving_out import leave_out
from sottovoce.data.preparation import prepare
from sottovoce.deploy.client_process import ClientOptions, run_client
from sottovoce.deploy.contributions import read_contributions
from sottovoce.deploy.enrolment import Enrolment
from sottovoce.deploy.keys import CA_CERT, make_certificates
from sottovoce.deploy.local_trainer import LocalTrainer
from sottovoce.deploy.messages import Envelope, Integers, TaskHeader

VOICES = 8


def stores(folder: Path) -> list[Path]:
    """Return stores of one voice each."""
    whole = prepare(Synthetic(speakers=VOICES, domain="clean", vocabulary=12, mean_utterances=3), folder / "voices")
    names: list[str] = whole.speaker_names().to_pylist()
    return [
        leave_out(whole, [other for other in names if other != name], folder / f"voice{number}").path
        for number, name in enumerate(names)
    ]


def peak_megabytes(process: int) -> float:
    """Return the largest resident memory of a process so far (Linux)."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def cpu_seconds(process: int) -> float:
    """Return the processor time of a process so far (Linux)."""
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def train_one_at_a_time() -> None:
    """Let the clients of this process wait for each other before they train."""
    train, alone = LocalTrainer.integers, threading.Lock()

    def integers(trainer: LocalTrainer, task: TaskHeader, envelope: Envelope) -> Integers:
        with alone:
            return train(trainer, task, envelope)

    LocalTrainer.integers = integers  # type: ignore[method-assign]


def start_server(folder: Path, options: argparse.Namespace, port: int) -> "subprocess.Popen[bytes]":
    """Start a server in which everybody takes part in every step."""
    words = ["deploy", "server", options.preset, "--folder", folder / "server", "--run", folder / "run"]
    words += ["--listen", f"127.0.0.1:{port}", "--settle", "600", "--deadline", "1800"]
    settings = [
        f"participation.population={options.clients}",
        "participation.sampling=everyone",
        f"federated.central_steps={options.steps}",
        "federated.local={steps: 1, lr: 0.2}",
        "privacy.clip_norm=0.5",
        "privacy.clipping=dim",
        "privacy.sigma_dp=0.01",
        "randomness.source=seeded",
    ]
    words += ["--secure-aggregation"] if options.secure_aggregation else []
    command = [sys.executable, "-m", "sottovoce", *map(str, words)]
    command += [word for setting in settings for word in ("--set", setting)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (folder / "server.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)


def measure(folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """Deploy, and return what it took."""
    voices, users = stores(folder), [f"user{number:05d}" for number in range(options.clients)]
    make_certificates(folder / "server", ["localhost", "127.0.0.1"])
    tokens = Enrolment(folder / "server").issue(users)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server, said, stopping = start_server(folder, options, port), list[str](), threading.Event()
    for number, user in enumerate(users):
        client = ClientOptions(
            store=voices[number % VOICES],
            server=f"127.0.0.1:{port}",
            ca=folder / "server" / CA_CERT,
            folder=folder / "keys" / user,
            tokens=[tokens[user]],
        )
        threading.Thread(target=run_client, args=(client, said.append, stopping), daemon=True).start()
    ends, peak, cpu = list[float](), 0.0, 0.0
    while server.poll() is None:
        peak, cpu = max(peak, peak_megabytes(server.pid)), cpu_seconds(server.pid) or cpu
        ends += [time.monotonic()] * (len(read_contributions(folder / "run")) - len(ends))
        time.sleep(0.1)
    stopping.set()
    if server.returncode != 0:
        raise SystemExit((folder / "server.log").read_text())
    sizes = [int(found[1].replace(",", "")) for line in said if (found := re.search(r"([\d,]+) bytes", line))]
    contributed = sum(len(answers.contributed) for answers in read_contributions(folder / "run").values())
    return {
        "clients": options.clients,
        "steps": len(ends),
        "contributions": contributed,
        "seconds_per_step": (ends[-1] - ends[0]) / (len(ends) - 1) if len(ends) > 1 else None,
        "server_cpu_seconds_per_step": cpu / len(ends) if ends else None,
        "server_peak_megabytes": peak,
        "bytes_up_per_update": sum(sizes) / len(sizes) if sizes else None,
        "clients_peak_megabytes_each": peak_megabytes(os.getpid()) / options.clients,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--secure-aggregation", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    train_one_at_a_time()
    with tempfile.TemporaryDirectory() as folder:
        print_report(measure(Path(folder), options), as_json=options.json)


if __name__ == "__main__":
    main()
