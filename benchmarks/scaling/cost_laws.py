"""The cost laws: how the time and the memory of a central step grow with cohort, population, model and local work.

Every size is measured in processes of its own, so that peak memory belongs to one size alone. A part returns its series
by name; `fits.py` fits them.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from documents import Point
from setting import Setting, measured, measured_point, peak_megabytes, write_users

from sottovoce.distributed import Group
from sottovoce.estimate.model_size import describe
from sottovoce.privacy.accounting import pld, rdp
from sottovoce.privacy.mechanism import Mechanism, plain_mechanism
from sottovoce.randomness import SecureRandomness, stream

Series = dict[str, tuple[Point, ...]]
Report = Callable[[str], None]

_SHORT = 2.0  # seconds of audio of the users whose number is what matters
_UTTERANCE = 5.0
_DRAWS = 200  # of a cohort, for one time
_COHORT = 64  # of growing populations
_SIGMAS = (0.02, 0.021, 0.022, 0.023)
_TARGET_DELTA, _CENTRAL_STEPS = 1e-9, 2000


@dataclass(frozen=True)
class Model:
    """A model to measure: a preset with settings."""

    preset: str
    settings: tuple[str, ...] = ()

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return describe(Setting(Path(), self.preset, self.settings).config, "tensor", "en").parameters


MIDDLE = Model("small", ("model.blocks=8", "model.width=512", "model.mlp_width=2048"))
LARGE = 100_000_000  # parameters from which one step, the first, is timed


@dataclass(frozen=True)
class Sizes:
    """The sizes of all parts."""

    cohorts: tuple[int, ...]
    populations: tuple[int, ...]
    stores: tuple[int, ...]
    models: tuple[Model, ...]
    local_steps: tuple[int, ...]
    audio_seconds: tuple[int, ...]
    exchanged: tuple[int, ...]  # coordinates
    worker_cohorts: tuple[int, ...]
    steps: int  # timed central steps of a size
    quick: bool = False


_BASELINE = Model("baseline")
FULL = Sizes(
    cohorts=(8, 32, 128, 512, 2048, 4096),
    populations=tuple(10**power for power in range(2, 9)),
    stores=(10**2, 10**3, 10**4, 10**5, 10**6),
    models=(Model("tiny"), Model("small"), MIDDLE, Model("shallow"), _BASELINE),
    local_steps=(1, 2, 5, 10, 20),
    audio_seconds=(5, 10, 20, 40),
    exchanged=(1 << 20, 1 << 22, 1 << 24, 1 << 26),
    worker_cohorts=(4, 16, 64),
    steps=5,
)
QUICK = Sizes(
    cohorts=(8, 32, 128),
    populations=(10**2, 10**5, 10**8),
    stores=(10**2, 10**4),
    models=(Model("quick"), Model("tiny"), Model("small")),
    local_steps=(1, 2, 5),
    audio_seconds=(5, 10, 20),
    exchanged=(1 << 18, 1 << 20, 1 << 22),
    worker_cohorts=(4, 8),
    steps=2,
    quick=True,
)


def cohort(sizes: Sizes, folder: Path, report: Report) -> Series:
    """Measure cohorts of growing size: users with 2 s of audio and one local step."""
    users = max(sizes.cohorts)
    store = write_users(folder / f"users-{users}", [[_SHORT]] * users)
    points = []
    for size in sizes.cohorts:
        setting = Setting(store, "tiny", (*_fixed(users, size), "federated.local.steps=1", "batching.seconds=5"))
        steps = max(min(sizes.steps, 2 * sizes.cohorts[-2] // size), 1)
        points.append(measured_point(size, setting, folder, steps=steps, warm_up=int(size < users)))
        report(f"{size} users: {points[-1].median:.2f} s, {points[-1].megabytes:.0f} MB")
    return {"steps": tuple(points)}


def local_steps(sizes: Sizes, folder: Path, report: Report) -> Series:
    """Measure a growing number of local steps: 16 users, each step on 10 s of audio."""
    store = write_users(folder / "ten-seconds", [[_UTTERANCE] * 2] * 16)
    points = []
    for count in sizes.local_steps:
        setting = Setting(store, "tiny", (*_fixed(16, 16), f"federated.local.steps={count}", "batching.seconds=10"))
        points.append(measured_point(count, setting, folder, steps=sizes.steps))
        report(f"{count} local steps: {points[-1].median:.2f} s")
    return {"steps": tuple(points)}


def audio(sizes: Sizes, folder: Path, report: Report) -> Series:
    """Measure growing local batches: 16 users with two local steps each."""
    longest = max(sizes.audio_seconds)
    store = write_users(folder / f"{longest}-seconds", [[_UTTERANCE] * int(longest / _UTTERANCE)] * 16)
    points = []
    for seconds in sizes.audio_seconds:
        setting = Setting(store, "tiny", (*_fixed(16, 16), "federated.local.steps=2", f"batching.seconds={seconds}"))
        points.append(measured_point(seconds, setting, folder, steps=sizes.steps))
        report(f"{seconds} s in a batch: {points[-1].median:.2f} s")
    return {"steps": tuple(points)}


def model(sizes: Sizes, folder: Path, report: Report) -> Series:
    """Measure growing models: two users with one local step of 5 s, with secure noise and without noise."""
    store = write_users(folder / "two-users", [[_UTTERANCE]] * 2)
    series: dict[str, list[Point]] = {"without noise": [], "secure noise": []}
    for entry in sizes.models:
        large = entry.parameters >= LARGE
        steps, warm_up = (1, 0) if large else (sizes.steps, 1)
        for name, points in series.items():
            ledger = folder / f"ledger-{entry.parameters}-{len(name)}.jsonl"
            ledger.unlink(missing_ok=True)
            setting = Setting(store, entry.preset, (*entry.settings, *_two_users(), *_NOISE[name]), ledger)
            points.append(measured_point(entry.parameters, setting, folder, steps=steps, warm_up=warm_up))
            taken = f"{points[-1].median:.2f} s, {points[-1].megabytes:.0f} MB"
            report(f"{entry.parameters / 1e6:.1f}M parameters, {name}: {taken}")
    return {name: tuple(points) for name, points in series.items()}


def noise(sizes: Sizes, folder: Path, report: Report) -> Series:
    """Measure one model with one and two workers, with each kind of noise and without: the rest is the noise."""
    store = write_users(folder / "two-users", [[_UTTERANCE]] * 2)
    entry = sizes.models[-1] if sizes.quick else MIDDLE
    series = {}
    for name, settings in _NOISE.items():
        points = []
        for workers in (1, 2):
            work = (*_two_users(), "federated.local.steps=2")  # long enough to hide the noise behind it
            setting = Setting(store, entry.preset, (*entry.settings, *work, *settings))
            points.append(measured_point(workers, setting, folder, workers=workers, steps=2 if sizes.quick else 4))
            report(f"{name}, {workers} workers: {points[-1].median:.2f} s")
        series[name] = tuple(points)
    return series


_NOISE = {
    "without noise": ("privacy.sigma_dp=0",),
    "seeded noise": ("randomness.source=seeded",),
    "secure noise": ("randomness.source=secure",),
}


def population(sizes: Sizes, folder: Path, report: Report) -> Series:
    """Measure growing populations: drawing a cohort of 64, accounting for 2,000 steps, and steps on real stores."""
    series: dict[str, list[Point]] = {}
    for users in sizes.populations:
        for name, (seconds, megabytes) in measured(draw_and_account, (users,), 1, folder).items():
            series.setdefault(name, []).append(Point(x=users, seconds=tuple(seconds), megabytes=megabytes))
        report(
            f"{users:,} users: " + ", ".join(f"{name} {own[-1].median * 1e3:.2f} ms" for name, own in series.items())
        )
    points = []
    for users in sizes.stores:
        store = write_users(folder / f"population-{users}", [[_SHORT]] * users)
        settings = (f"participation.population={users}", f"participation.cohort_size={_COHORT}")
        setting = Setting(store, "tiny", (*settings, "federated.local.steps=1", "batching.seconds=5"))
        points.append(measured_point(users, setting, folder, steps=sizes.steps))
        report(f"a store of {users:,} users: {points[-1].median:.2f} s, {points[-1].megabytes:.0f} MB")
    return {**{name: tuple(own) for name, own in series.items()}, "steps": tuple(points)}


def draw_and_account(_group: Group, users: int, out: Path) -> None:
    """Draw cohorts and compute epsilon for a population; write the times and the memory.

    Epsilons are remembered once they are known, so every repetition has other noise. The first is not timed.
    """
    times: dict[str, list[float]] = {}
    for sigma_dp in _SIGMAS:
        for name, (work, count) in _pieces(plain_mechanism(sigma_dp, _COHORT, users), users).items():
            began = time.perf_counter()
            for _ in range(count):
                work()
            times.setdefault(name, []).append((time.perf_counter() - began) / count)
    out.write_text(json.dumps({name: (own[1:], peak_megabytes()) for name, own in times.items()}))


def _pieces(mechanism: Mechanism, users: int) -> dict[str, tuple[Callable[[], object], int]]:
    """Return everything that depends on the population, and how often to repeat it."""
    spent = mechanism.spent(_CENTRAL_STEPS)
    return {
        "seeded cohort": (lambda: mechanism.draw_cohort(users, stream(0, "cohort")), _DRAWS),
        "secure cohort": (lambda: mechanism.draw_cohort(users, SecureRandomness()), _DRAWS),
        "epsilon by RDP": (lambda: rdp(spent, _TARGET_DELTA), 1),
        "epsilon by PLD": (lambda: pld(spent, _TARGET_DELTA), 1),
    }


def _fixed(users: int, size: int) -> tuple[str, ...]:
    return (
        f"participation.population={users}",
        f"participation.cohort_size={size}",
        "participation.sampling=fixed",
    )


def _two_users() -> tuple[str, ...]:
    everyone = ("participation.population=2", "participation.cohort_size=2", "participation.sampling=everyone")
    return (*everyone, "federated.local.steps=1", "batching.seconds=5")
