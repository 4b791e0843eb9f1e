"""Federated learning on real speech: a seed from 8 speakers, 40 users, 12 held-out speakers, with and without noise.

    python benchmarks/digits_federated.py AUDIOMNIST OUT [--workers N]

AUDIOMNIST is the folder with index.tsv (spoken digits of 60 speakers); everything is written below OUT, and what is
there already is not done again. It prints a table of error rates: about 20 minutes on two cores.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from sottovoce.runs import Run

HELD_OUT, SEED_SPEAKERS, USERS, COHORT = 12, 8, 40, 16
SEED_MODEL = (
    "central.steps=1500",
    "central.evaluate_every=1500",
    "central.schedule={lr: 0.002, warmup: 200, decay: exponential, begin: 500, rate: 0.5, every: 300}",
)
FEDERATED = (
    *(f"participation.population={USERS}", f"participation.cohort_size={COHORT}", "batching.seconds=20"),
    *("federated.local.steps=10", "federated.local.lr=0.5"),
    "federated.schedule={lr: 0.02, decay: exponential, begin: 35, rate: 0.5, every: 10}",
    *("federated.central_steps=60", "federated.evaluate_every=10"),
)
# Noise against what it hides: sigma_dp * sqrt(554,720 parameters) is 0.7; deltas have a norm of about 1.3.
NOISE = ("privacy.sigma_dp=0.00094", "privacy.clip_norm=0.5")
ROWS = {
    "no clipping, no noise": (),
    "global": (*NOISE, "privacy.clipping=global"),
    "uniform": (*NOISE, "privacy.clipping=uniform"),
    "dim": (*NOISE, "privacy.clipping=dim"),
    "weighted, beta 2": (*NOISE, "privacy.clipping=weighted", "privacy.layer_weights.mlp=2"),
}


def sotto(*words: str | Path, settings: tuple[str, ...] = ()) -> str:
    """Run a command of sotto and return what it printed."""
    sets = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "sottovoce", *map(str, words), *sets]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """Prepare, train every row, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("audiomnist", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--workers", default="2")
    arguments = parser.parse_args()
    out, workers = arguments.out, ("--workers", arguments.workers)
    store, splits = out / "digits", out / "splits"
    if not store.exists():
        index = arguments.audiomnist / "index.tsv"
        sotto("data", "prepare", "table", index, "--concatenate", "2:5", "--times", "8", "--out", store, *workers)
    if not splits.exists():
        sotto("data", "split", store, "--count", str(HELD_OUT), "--names", "heldout,train", "--out", splits)
    speakers = (splits / "train.txt").read_text().splitlines()
    (out / "seed.txt").write_text("\n".join(speakers[:SEED_SPEAKERS]) + "\n")
    (out / "users.txt").write_text("\n".join(speakers[SEED_SPEAKERS:]) + "\n")
    held_out = f"{store}@{splits / 'heldout.txt'}"
    seed = out / "seed"
    sotto(
        "train", "central", "tiny", "--train", f"{store}@{out}/seed.txt", "--run", seed, *workers, settings=SEED_MODEL
    )
    before = json.loads(sotto("eval", seed / "last", held_out, "--json", *workers))["wer"]
    print(f"| | WER on {HELD_OUT} held-out speakers | of the seed's | mean delta norm | share clipped |")
    print(f"|---|---|---|---|---|\n| seed model | {100 * before:.1f} % | | | |", flush=True)
    for name, settings in ROWS.items():
        run = out / name.split(",")[0].replace(" ", "-")
        words = ("train", "federated", "tiny", "--seed-model", seed / "last", "--train", f"{store}@{out}/users.txt")
        sotto(*words, "--dev", held_out, "--run", run, *workers, settings=(*FEDERATED, *settings))
        wer = json.loads((run / "result.json").read_text())["dev_wer"]
        inside = [line["not_private"] for line in Run(run).log.lines() if "not_private" in line]
        norm, clipped = (sum(line[key] for line in inside) / len(inside) for key in ("delta_norm", "share_clipped"))
        print(f"| {name} | {100 * wer:.1f} % | {wer / before:.2f} | {norm:.2f} | {clipped:.2f} |", flush=True)


if __name__ == "__main__":
    main()
