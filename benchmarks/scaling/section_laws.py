"""The section of the page about the measured cost laws, and about one complete step of the largest model."""

from collections.abc import Sequence

from content import Content
from documents import Measurements, Point
from fits import Law, law_of, memory_law, phase_points, time_law
from wording import digits, duration, line, percent, table

_BUSY = 1.1  # wall time over CPU time of one worker, from which the machine was not quiet
_GIBIBYTES = 24
_PHASES = {
    "users": "users, 2 x 1 local step of 5 s",
    "noise": "secure noise, CPU time",
    "release": "release without noise",
    "sum": "sum",
    "server": "server optimizer",
}


def laws(content: Content) -> str:
    """Return the table and the picture of all laws."""
    measured = content.measurements
    machine = (
        f"{measured.machine.processor}, {measured.machine.cores} cores, {measured.machine.gigabytes:.0f} GB, no GPU"
    )
    head = ["time or memory of a central step", "measured for", "law", "worst residual"]
    return f"""## Cost laws, measured

Machine: {machine}; one thread per worker. Every size runs in processes of its own. Laws are fitted by least squares on
relative errors. The last column is the largest distance of a measured point from its law. {_quiet(measured)}

{table(head, [*_step_rows(measured), *_population_rows(measured), *_model_rows(measured)])}

![cost laws](images/scaling-laws.png)

All rows but those of the models use `tiny` (0.55M parameters). A cohort is drawn from the gaps between its members,
so the time of a draw does not grow with the population. A simulation pays for the population in memory: every process
holds the names of all users. A deployment has no such list."""


def _quiet(measured: Measurements) -> str:
    """Say whether the machine was quiet: a worker alone should use one core all the time."""
    points = [point for name in ("cohort", "local-steps", "audio") for point in measured.points(name, "steps")]
    ratio = max(point.median / point.cpu_seconds for point in points if point.cpu_seconds)
    if ratio > _BUSY:
        return f"**The machine was not quiet**: steps took up to {ratio:.2f} times their CPU time."
    return f"The machine was quiet: no step took more than {ratio:.2f} times its CPU time."


def _step_rows(measured: Measurements) -> list[list[str]]:
    cohort, steps, audio = (measured.points(name, "steps") for name in ("cohort", "local-steps", "audio"))
    users, several, seconds = time_law(cohort), time_law(steps), time_law(audio)
    memory = memory_law(cohort)
    per_second = line(seconds.fixed / 32, seconds.per_unit / 32, "second of audio")
    return [
        _row("cohort", f"{_range(cohort)} users", line(users.fixed, users.per_unit, "user"), users),
        _row("cohort: peak memory", f"{_range(cohort)} users", _memory(memory, 1e3, "kB"), memory),
        _row(
            "local steps of 10 s, each user",
            f"{_range(steps)} local steps, 16 users",
            line(several.fixed / 16, several.per_unit / 16, "local step"),
            several,
        ),
        _row("audio in a local step", f"{_range(audio)} s, 16 users, 2 local steps", per_second, seconds),
    ]


def _population_rows(measured: Measurements) -> list[list[str]]:
    stores = measured.points("population", "steps")
    memory, steps = memory_law(stores), time_law(stores)
    sizes = f"{_range(stores)} users in a store"
    per_million = line(steps.fixed, 1e6 * steps.per_unit, "million users")
    return [
        *(_extremes(measured, name, "cohort of 64, ") for name in ("seeded cohort", "secure cohort")),
        *(_extremes(measured, name, "2,000 steps, ") for name in ("epsilon by RDP", "epsilon by PLD")),
        _row("population: step of 64 users", sizes, per_million, steps),
        _row("population: peak memory", sizes, _memory(memory, 1e6, "B"), memory),
    ]


def _model_rows(measured: Measurements) -> list[list[str]]:
    rows = []
    for phase, points in phase_points(measured).items():
        law = law_of(points)
        sizes = f"{points[0][0] / 1e6:.2f}M to {points[-1][0] / 1e6:.1f}M parameters"
        text = line(law.fixed, 1e6 * law.per_unit, "million parameters")
        rows.append(_row(f"model: {_PHASES[phase]}", sizes, text, law))
    return rows


def _row(about: str, sizes: str, text: str, law: Law) -> list[str]:
    return [about, sizes, text, percent(law.worst)]


def _range(points: Sequence[Point]) -> str:
    return f"{points[0].x:,.0f} to {points[-1].x:,.0f}"


def _memory(law: Law, scale: float, unit: str) -> str:
    return f"{law.fixed:.0f} MB + {digits(scale * law.per_unit)} {unit} per user"


def _extremes(measured: Measurements, name: str, about: str) -> list[str]:
    """Describe times that need not follow a line: the least and the largest."""
    points = measured.points("population", name)
    times = [point.median for point in points]
    return [
        f"population: {name}",
        f"{about}{_range(points)} users",
        f"{duration(min(times))} to {duration(max(times))}",
        "",
    ]


def largest_step(content: Content) -> str:
    """Return the table of one complete step of the largest model."""
    measured = content.measurements
    noisy, plain = (measured.points("model", name)[-1] for name in ("secure noise", "without noise"))
    rows = [
        [_PHASES[phase], duration(law_of(points).at(noisy.x) if phase == "noise" else points[-1][1])]
        for phase, points in phase_points(measured).items()
    ]
    held = (noisy.megabytes or 0.0) / 1024
    fits = "within" if held < _GIBIBYTES else "**above**"
    return f"""### One complete central step of the largest model

{noisy.x / 1e6:.1f}M parameters, 2 users, 1 worker, secure noise, a ledger and all diagnostics:
{duration(noisy.median)} and {held:.1f} GiB at the peak, {fits} {_GIBIBYTES} GiB. Without noise the step takes
{duration(plain.median)}. A large model takes its first step here, so the time to get memory from the system is
included.

{table(["phase", "time"], [*rows, ["whole step", duration(noisy.median)]])}"""
