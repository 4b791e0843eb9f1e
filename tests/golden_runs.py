"""Short runs whose results a redesign must not change by a bit: one for every clipping, sampling, weight and optimizer.

    python tests/golden_runs.py          compare with tests/golden/runs.json
    python tests/golden_runs.py --write  replace those of this machine; a changed digest needs a line in CHANGELOG.md

The file belongs to one `ALGORITHM` (sottovoce/version.py): models that differ need a higher one, and a higher one drops
the digests of all other machines. So both are changed together, and a test holds that.

Three digests are kept of every run: the SHA-256 of `last/model.safetensors`, without what it says of its training data
(the bits of a model do not depend on that); of the ledger's header, releases and end,
without hashes that differ between runs or describe the file itself; and of the metrics without times. The bits depend
on the type of CPU and on the build of torch, so digests are kept for each machine.
"""

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save

from conftest import hash_of, write_audio
from sottovoce.central.central_training import train_central
from sottovoce.config import parse_setting, resolve
from sottovoce.data.corpora import Table
from sottovoce.data.preparation import prepare
from sottovoce.federated.federated_training import train_federated
from sottovoce.processes import no_progress
from sottovoce.runs.display import NoDisplay
from sottovoce.runs.machine import this_machine
from sottovoce.runs.metrics_log import MetricsLog
from sottovoce.runs.own_corpus import with_own_corpus
from sottovoce.version import ALGORITHM
from sottovoce.workers import run_workers
from trainings import SMALL_MODEL

DIGESTS = Path(__file__).parent / "golden" / "runs.json"
USERS = {"a": 6, "b": 3, "c": 2, "d": 5, "e": 1, "f": 4, "g": 3, "h": 2}
PARTS = {"train": "abcdef", "dev": "g", "test": "h"}
# Some recordings of these speakers are equal: their digests are older than the comparison of audio.
_MODEL = (*SMALL_MODEL, "batching.seconds=3", "privacy.accept=[same_audio]")
_FEDERATED = (
    *_MODEL,
    *("participation.population=6", "participation.cohort_size=4"),
    *("privacy.clip_norm=0.1", "privacy.clipping=dim", "privacy.sigma_dp=0.001"),
    *("federated.local.steps=2", "federated.central_steps=3", "federated.evaluate_every=3"),
    "federated.schedule.lr=0.01",
)
_CENTRAL = (*_MODEL, "central.steps=4", "central.micro_batch_seconds=4", "central.evaluate_every=4")
_SECONDS = ("participation.weight=seconds", "participation.weight_bound=5", "participation.weight_total=20")

FEDERATED: Mapping[str, tuple[str, ...]] = {
    "dim": (),
    "unclipped": ("privacy.clipping=none", "privacy.sigma_dp=0", "privacy.clip_norm=null"),
    "global": ("privacy.clipping=global",),
    "uniform": ("privacy.clipping=uniform",),
    "weighted": ("privacy.clipping=weighted", "privacy.layer_weights.mlp=2"),
    "normalize": ("privacy.rule=normalize",),
    "fixed": ("participation.sampling=fixed",),
    "everyone": ("participation.sampling=everyone",),
    "utterances": ("participation.weight=utterances", "participation.weight_bound=4", "participation.weight_total=20"),
    "seconds": _SECONDS,
    "q_min": (*_SECONDS, "participation.q_min=0.1"),
    "lars": ("federated.optimizer={name: lars}",),
    "adam": ("federated.optimizer={name: adam}",),
    "adagrad": ("federated.optimizer={name: adagrad}",),
    "sgd": ("federated.optimizer={name: sgd, momentum: 0.5}",),
    "block": ("federated.partition=block",),
    "kind": ("federated.partition=kind",),
    "fedprox": ("federated.local.rule={name: fedprox, mu: 0.3}",),
    "local-lars": ("federated.local.optimizer={name: lars}",),
    "local-lamb": ("federated.local.optimizer={name: lamb}", "federated.local.lr=0.01"),
    "epochs": ("federated.local.steps=null", "federated.local.epochs=2"),
    "noise-analysis": ("privacy.noise_analysis={group: mlp, inside: 1, outside: 0.5}",),
    "iid": ("users.iid=true",),
    "post-norm": ("model.norm=post",),
    "relative": ("model.positions=relative", "model.max_distance=20"),
}
CENTRAL: Mapping[str, tuple[str, ...]] = {
    "central-lars": ("central.optimizer={name: lars}",),
    "central-adam": (),
}


def machine() -> dict[str, str]:
    """Return what the bits depend on besides the code."""
    return this_machine().model_dump(exclude_none=True)


def run_all(folder: Path) -> dict[str, dict[str, str]]:
    """Run everything below a folder that must be the current one, and return the digests of every run."""
    data = _prepare(folder)
    found = {}
    for train, settings, variants in ((train_federated, _FEDERATED, FEDERATED), (train_central, _CENTRAL, CENTRAL)):
        for name, more in variants.items():
            resolved = resolve("tiny", *map(parse_setting, (*settings, *more)), {"data": data})
            run_workers(train, (resolved, Path(name), NoDisplay), 1, 1)
            found[name] = digests(folder / name)
    quick = with_own_corpus(resolve("quick"), Path("quick"), 1, no_progress)
    run_workers(train_federated, (quick, Path("quick"), NoDisplay), 1, 1)
    return found | {"quick": digests(folder / "quick")}


def _prepare(folder: Path) -> dict[str, dict[str, str]]:
    lines = ["path\tspeaker\ttext"]
    for speaker, count in USERS.items():
        for number in range(count):
            path = f"{speaker}/{speaker}{number:03d}.flac"
            write_audio(folder / "corpus" / path, 1 + 0.1 * (hash_of(path) % 7), hash_of(path))
            lines.append(f"{path}\t{speaker}\thello number{' again' * (number % 3)} {'abcdefghij'[number % 10]}")
    table = folder / "corpus" / "index.tsv"
    table.write_text("\n".join(lines) + "\n")
    prepare(Table(file=table), folder / "store", workers=1)
    for part, speakers in PARTS.items():
        (folder / f"{part}.txt").write_text("\n".join(speakers))
    return {part: {"store": "store", "speakers": f"{part}.txt"} for part in PARTS}


def digests(run: Path) -> dict[str, str]:
    """Return the digests of a finished run."""
    found = {"model": hashlib.sha256(_model(run / "last" / "model.safetensors")).hexdigest()}
    ledger = run / "ledger.jsonl"
    lines = {"metrics": list(MetricsLog(run).lines())}
    if ledger.exists():
        lines["ledger"] = [json.loads(line) for line in ledger.read_text().splitlines() if '"saved"' not in line]
    for name, content in lines.items():
        compared = [_without(line) for line in content]
        found[name] = hashlib.sha256(json.dumps(compared, sort_keys=True).encode()).hexdigest()
    return found


def _model(path: Path) -> bytes:
    """Return the bytes of a model file without the bandwidth of its training data."""
    with safe_open(path, "pt") as file:
        description = json.loads(file.metadata()["sottovoce"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary
    description.pop("training", None)
    return save(tensors, {"sottovoce": json.dumps(description, sort_keys=True)})


_NOT_COMPARED = {
    *("config", "accepted", "previous", "ledger", "parameters", "population_ledger"),
    *("seconds", "elapsed_seconds", "audio_seconds_per_second"),
}


def _without(line: Any) -> Any:
    if isinstance(line, dict):
        return {key: _without(value) for key, value in line.items() if key not in _NOT_COMPARED}
    return line


Digests = dict[str, dict[str, str]]  # by run and by what they are of


def stored() -> dict[str, Any]:
    """Return the file of digests."""
    content: dict[str, Any] = json.loads(DIGESTS.read_text())
    return content


def expected_here() -> Digests | None:
    """Return the digests of this machine; None where there are none."""
    return next((one["runs"] for one in stored()["machines"] if one["machine"] == machine()), None)


def seal(algorithm: int, machines: list[dict[str, Any]]) -> str:
    """Return a hash that binds the digests of all models to the version of the algorithm."""
    models = [{name: run["model"] for name, run in one["runs"].items()} for one in machines]
    return hashlib.sha256(json.dumps([algorithm, models], sort_keys=True).encode()).hexdigest()


def refreshed(file: dict[str, Any], found: Digests, here: dict[str, str], algorithm: int) -> dict[str, Any]:
    """Return the file with the digests of this machine; raise ValueError where models differ but not the algorithm."""
    others = [one for one in file["machines"] if one["machine"] != here]
    if file["algorithm"] == algorithm:
        before = next((one["runs"] for one in file["machines"] if one["machine"] == here), {})
        changed = [name for name in before if name in found and before[name]["model"] != found[name]["model"]]
        if changed:
            raise ValueError(f"The bits of {', '.join(changed)} have changed: raise ALGORITHM in sottovoce/version.py.")
    else:
        others = []  # of another algorithm: nobody can compare with them any more
    machines = [*others, {"machine": here, "runs": found}]
    return {"algorithm": algorithm, "seal": seal(algorithm, machines), "machines": machines}


def fault_of(file: dict[str, Any], algorithm: int) -> str | None:
    """Return what is wrong between the version of the algorithm and the digests; None where they belong together."""
    if file["algorithm"] != algorithm:
        return (
            f"ALGORITHM is {algorithm}, but the digests in tests/golden/runs.json belong to {file['algorithm']}: "
            "refresh them by `python tests/golden_runs.py --write`, or leave ALGORITHM as it was."
        )
    if file["seal"] != seal(algorithm, file["machines"]):
        return (
            f"Digests of models have changed, but ALGORITHM is still {algorithm}: raise it in sottovoce/version.py and "
            "refresh them by `python tests/golden_runs.py --write`."
        )
    return None


def main() -> None:
    """Compare, or write."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        found = run_all(Path(folder))
    if "--write" in sys.argv:
        try:
            DIGESTS.write_text(json.dumps(refreshed(stored(), found, machine(), ALGORITHM), indent=2) + "\n")
        except ValueError as error:
            sys.exit(str(error))
        return
    expected = expected_here()
    if expected is None:
        sys.exit(f"there are no digests of {machine()}: bits cannot be compared")
    changed = [
        f"{name}: {what}"
        for name, one in found.items()
        for what, digest in expected.get(name, {}).items()
        if one.get(what) != digest
    ]
    sys.exit("\n".join(changed) if changed else 0)


if __name__ == "__main__":
    main()
