"""sotto estimate: what a federated run costs, before anyone rents a cluster."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sottovoce.cli.arguments import ALL_CORES, AsJson
from sottovoce.cli.config import Settings, configured
from sottovoce.cli.console import counted, note, print_json, print_table
from sottovoce.cli.train import Chosen, data_layers
from sottovoce.errors import ConfigError
from sottovoce.files import gigabytes

if TYPE_CHECKING:
    from sottovoce.config import Resolved
    from sottovoce.estimate.calibration import Calibration
    from sottovoce.estimate.devices import Device, Precision
    from sottovoce.estimate.run_cost import Estimate
    from sottovoce.estimate.user_audio import UserAudio


PresetOrBench = Annotated[
    str | None,
    typer.Argument(metavar="PRESET", help="A preset, a YAML file, or a benchmark of the paper.", show_default=False),
]
DeviceName = Annotated[
    Literal["a100", "h100", "custom", "here"],
    typer.Option(help="The device of each process. custom: with --tflops; here: this machine, measured now."),
]
Tflops = Annotated[
    float | None, typer.Option(help="The peak of --device custom in TFLOP/s; the paper's share of it is assumed.")
]
Processes = Annotated[
    int | None,
    typer.Option(min=1, max=1_000_000, help="Processes, one for each GPU or core.", show_default="8; here: all cores"),
]
PrecisionName = Annotated[
    Literal["float32", "tf32", "bfloat16"] | None,
    typer.Option(help="Of the matrix products. The paper's rows are assumed to be tf32.", show_default="the preset's"),
]
PaperCorpus = Annotated[
    str | None,
    typer.Option(metavar="CORPUS", help="Users with as much audio as in a corpus of the paper, such as LS-960."),
]
MeanSeconds = Annotated[float | None, typer.Option(help="Or: the mean over users of their seconds of audio.")]
StdSeconds = Annotated[float | None, typer.Option(help="... and its standard deviation.")]
UtteranceSeconds = Annotated[
    float | None, typer.Option(help="... and the length of a typical utterance.", show_default="10")
]
Train = Annotated[
    str | None, typer.Option("--train", metavar=Chosen, help="Or: a store, whose users' audio is counted.")
]
ShowCalibration = Annotated[
    bool, typer.Option("--calibration", help="Print the paper's own runs with the estimate beside each.")
]


def estimate(
    preset: PresetOrBench = None,
    settings: Settings = None,
    device: DeviceName = "a100",
    tflops: Tflops = None,
    processes: Processes = None,
    precision: PrecisionName = None,
    audio: PaperCorpus = None,
    audio_mean_seconds: MeanSeconds = None,
    audio_std_seconds: StdSeconds = None,
    utterance_seconds: UtteranceSeconds = None,
    train: Train = None,
    calibration: ShowCalibration = False,
    as_json: AsJson = False,
) -> None:
    """Estimate a federated run: parameters, FLOPs, memory, traffic, GPU-hours. Nothing is trained.

    GPU-hours rest on the 17 runs in the paper's table of compute; --calibration prints the error on each of them. An
    estimate is a range, never one number. How much audio users have comes from the preset's corpus, from a store
    (--train), or from --audio.

    Example: sotto estimate commonvoice-en --set federated.local.steps=10 --processes 32 --precision tf32

    Example: sotto estimate dp-results --processes 32 --precision tf32

    Example: sotto estimate wide --audio CV-en-train --set participation.cohort_size=256 --device h100
    """
    from sottovoce.bench.preset import is_bench
    from sottovoce.estimate.calibration import calibrate

    if calibration:
        _print_calibration(calibrate(), as_json)
        return
    if preset is None:
        raise ConfigError("Missing PRESET. See `sotto config list`; `sotto estimate --calibration` needs none.")
    if is_bench(preset):
        if settings or train or audio or audio_mean_seconds or device == "here":
            raise ConfigError(
                f"{preset} is a benchmark: its rows say what they are trained on, and with what. Give only --device, "
                "--tflops, --processes and --precision."
            )
        _print_bench(preset, _known_device(device, tflops), processes or 8, precision, as_json)
        return
    resolved = configured(preset, settings, *data_layers(train=train))
    users = _audio(resolved, audio, audio_mean_seconds, audio_std_seconds, utterance_seconds)
    count = processes or (ALL_CORES if device == "here" else 8)
    _print_run(resolved, users, _device(resolved, users, device, tflops), count, precision, as_json=as_json)


def _print_run(
    resolved: "Resolved",
    users: "UserAudio",
    device: "Device",
    processes: int,
    precision: "Precision | None",
    *,
    as_json: bool,
) -> None:
    from sottovoce.estimate.calibration import calibrate
    from sottovoce.estimate.run_cost import estimate as estimate_cost

    found = estimate_cost(resolved.config, users, device, processes, precision)
    if as_json:
        print_json({"preset": resolved.name, **found.document(), "error_on_the_paper": calibrate().summary()})
        return
    title = f"{resolved.name}: a federated run on {found.processes} x {found.device}, {found.precision}"
    print_table(title, ["", ""], _rows(found), text_columns=2)
    _print_notes(found)


def _audio(
    resolved: "Resolved", name: str | None, mean: float | None, std: float | None, utterance_seconds: float | None
) -> "UserAudio":
    from sottovoce.estimate.user_audio import DEFAULT_UTTERANCE_SECONDS, audio_of, iid, log_normal, paper_audio

    if (mean is None) != (std is None):
        raise ConfigError("--audio-mean-seconds and --audio-std-seconds go together. Give both.")
    if mean is None and utterance_seconds is not None:
        raise ConfigError("--utterance-seconds goes with --audio-mean-seconds. Give both.")
    if name is not None and mean is not None:
        raise ConfigError("Give --audio or --audio-mean-seconds, not both.")
    if (name is not None or mean is not None) and resolved.config.data.train is not None:
        raise ConfigError("A store tells how much audio users have. Leave out --audio, or the store.")
    if name is not None:
        found = paper_audio(name)
    elif mean is not None and std is not None:
        length = DEFAULT_UTTERANCE_SECONDS if utterance_seconds is None else utterance_seconds
        found = log_normal(f"log-normal, mean {mean:g} s, std {std:g} s", mean, std, utterance_seconds=length)
    else:
        found = audio_of(resolved)
    return iid(found) if resolved.config.users.iid else found


def _device(resolved: "Resolved", users: "UserAudio", name: str, tflops: float | None) -> "Device":
    from sottovoce.estimate.devices import here
    from sottovoce.estimate.work import local_work

    if name == "here" and tflops is None:
        work = local_work(resolved.config, users.seconds, users.utterance_seconds)
        steps, seconds = map(users.mean, work)
        step_seconds = seconds / steps if steps > 0 else resolved.config.batching.seconds
        return here(resolved.config, resolved.config.corpus.first_language, step_seconds, users.utterance_seconds)
    return _known_device(name, tflops)


def _known_device(name: str, tflops: float | None) -> "Device":
    from sottovoce.estimate.devices import KNOWN, custom

    if (tflops is not None) != (name == "custom"):
        raise ConfigError("--device custom and --tflops go together. Give both, or a device that is known.")
    return KNOWN[name] if tflops is None else custom(tflops)


def _print_bench(name: str, device: "Device", processes: int, precision: "Precision | None", as_json: bool) -> None:
    """Print what every run of a benchmark costs in the paper's size."""
    from sottovoce.bench.bench_costs import row_costs
    from sottovoce.bench.preset import load_bench
    from sottovoce.estimate.calibration import calibrate
    from sottovoce.estimate.run_cost import Estimate

    found = list(row_costs(load_bench(name), device, processes, precision))
    total = sum(one.cost.gpu_hours for one in found)
    if as_json:
        runs = [{"row": one.row.name, "kind": one.row.kind, **asdict(one.cost)} for one in found]
        error = calibrate().summary()
        print_json({"benchmark": name, "runs": runs, "gpu_hours": total, "error_on_the_paper": error})
        return
    rows = [
        [one.row.name, one.row.kind, _short(one.cost.flops_per_run), _hours(one.cost.gpu_hours, one.cost.factor)]
        for one in found
    ]
    title = f"{name}: {counted(len(found), 'run')}, each on {processes} x {device.name}"
    print_table(title, ["run", "", "FLOPs", "GPU-hours"], rows, text_columns=2)
    low, high = (sum(one.cost.gpu_hours * one.cost.factor**sign for one in found) for sign in (-1, 1))
    note(f"Together {_short(low)} to {_short(high)} GPU-hours; runs that other benchmarks share are trained once.")
    largest = [one.cost for one in found if isinstance(one.cost, Estimate)]
    if largest:
        memory = gigabytes(max(cost.memory_bytes["total"] for cost in largest))
        traffic = gigabytes(max(cost.traffic_bytes["sent_by_process"] for cost in largest))
        note(f"Federated runs: at most {memory} of memory in a process, {traffic} sent by it in a central step.")
    note(f"{_error(calibrate())} Central runs are estimated at the same pace. Our engine has not been timed on a GPU.")


def _hours(hours: float, factor: float) -> str:
    return f"{_short(hours / factor)} to {_short(hours * factor)}"


def _rows(found: "Estimate") -> list[list[str]]:
    from sottovoce.estimate.work import FROZEN

    memory, traffic, seconds = found.memory_bytes, found.traffic_bytes, found.step_seconds
    parts = ", ".join(
        f"{name.replace('_', ' ')} {gigabytes(size)}" for name, size in memory.items() if name != "total" and size
    )
    waiting = ", ".join(f"{name.replace('_', ' ')} {_short(seconds[name])} s" for name in seconds if name != "total")
    frozen = "" if found.trainable == found.parameters else f", of which {found.trainable:,} train,"
    flops = found.flops_per_second
    attention = 100 * flops.get("attention", 0.0) / (flops["total"] - flops.get(FROZEN, 0.0))
    return [
        ["time of the run", _ranged(found, found.wall_hours)],
        ["parameters", f"{found.parameters:,}{frozen} in {found.layers} layers"],
        ["audio of a user", f"{_short(found.seconds_per_user)} s on average ({found.audio})"],
        [
            "local work of a user",
            f"{found.local_steps:.3g} steps on {_short(found.local_seconds)} s of audio in a central step",
        ],
        ["FLOPs of a second of audio", f"{_short(flops['total'])} (attention {attention:.1f} %)"],
        ["FLOPs of a user", f"{_short(found.flops_per_user)} in a central step"],
        ["FLOPs of a central step", f"{_short(found.flops_per_central_step)} for {found.cohort_size:g} users"],
        ["FLOPs of the run", f"{_short(found.flops_per_run)} in {found.central_steps} central steps"],
        ["memory of a process", f"{gigabytes(memory['total'])} at most: {parts}"],
        [
            "traffic of a process",
            f"{gigabytes(traffic['sent_by_process'])} sent in a central step (integers to the leading process, the "
            "average back)",
        ],
        [
            "traffic of a user, deployed",
            f"down {gigabytes(traffic['user_down'])}, up {gigabytes(traffic['user_up'])} "
            f"({gigabytes(traffic['user_up_masked'])} with secure aggregation)",
        ],
        ["time of a central step", f"{_short(seconds['total'])} s: {waiting}"],
        ["busiest process", f"{found.imbalance:.2f} times the mean local work"],
        ["GPU time" if found.device != "this machine" else "time of all processes", _ranged(found, found.gpu_hours)],
    ]


def _ranged(found: "Estimate", hours: float) -> str:
    low, high = found.around(hours)
    return (
        f"{_duration(low)} to {_duration(high)} (estimate {_duration(hours)}, times or divided by {found.factor:.2g})"
    )


def _duration(hours: float) -> str:
    """Return a time in the unit that people would use: seconds, minutes or hours."""
    if hours < 1 / 60:
        return f"{_short(3600 * hours)} s"
    return f"{_short(60 * hours)} min" if hours < 2 else f"{_short(hours)} h"


def _short(value: float) -> str:
    """Return three digits of a number as people read them."""
    for unit, name in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _print_notes(found: "Estimate") -> None:
    from sottovoce.estimate.calibration import calibrate

    note(f"The time rests on {found.basis}.")
    if found.device != "this machine":
        note(f"{_error(calibrate())} Our own engine has not been timed on a GPU.")
    if not found.fits and found.device_memory_bytes is not None:
        note(
            f"A process needs more than the {gigabytes(found.device_memory_bytes)} of the device. Lower "
            "batching.seconds, or take a smaller model."
        )
    if found.step_seconds["noise"] > found.step_seconds["local_work"]:
        note("A step waits longer for noise than for the users' training.")


def _error(calibration: "Calibration") -> str:
    summary = calibration.summary()
    fit, alone = summary["ratio"], summary["ratio_left_out"]
    return (
        f"Error on the paper's {len(calibration.rows)} runs: median {100 * fit['median_error']:.0f} %, worst a factor "
        f"of {fit['worst_factor']:.2f}; of runs left out of the fit: {100 * alone['median_error']:.0f} %, "
        f"{alone['worst_factor']:.2f}."
    )


def _print_calibration(calibration: "Calibration", as_json: bool) -> None:
    if as_json:
        print_json(_calibration_document(calibration))
        return
    rows = [
        [
            str(one.row.line),
            one.row.data,
            f"{one.row.local_count} {one.row.local_kind}{', DP' if one.row.dp else ''}",
            f"{one.row.cohort_size:,}",
            str(one.row.gpus),
            f"{one.row.gpu_hours:,.0f}",
            f"{one.estimated:,.0f}",
            f"{one.ratio:.2f}",
            f"{one.ratio_left_out:.2f}",
            f"{one.ratio_group_left_out:.2f}",
        ]
        for one in calibration.rows
    ]
    header = ["line", "data", "local", "S", "GPUs", "GPU-hours", "estimated", "ratio", "row out", "group out"]
    print_table("the paper's runs: printed GPU-hours, estimated, and estimated / printed", header, rows, text_columns=3)
    fit = calibration.fit
    note(
        f"On one A100: {fit.per_central_step:.1f} s for a central step, {1000 * fit.per_local_step:.0f} ms for a local "
        f"step and 1 s for {1e-12 / fit.per_flop:.0f} TFLOPs, with users dealt to GPUs in equal numbers."
    )
    note(_error(calibration))
    note('"row out" and "group out": the ratio where the row, or its whole group, was left out of the fit.')


def _calibration_document(calibration: "Calibration") -> dict[str, Any]:
    return {
        "fit": asdict(calibration.fit),
        "error": calibration.summary(),
        "factor": calibration.factor,
        "rows": [
            {
                **asdict(one.row),
                "estimated_gpu_hours": one.estimated,
                "ratio": one.ratio,
                "ratio_left_out": one.ratio_left_out,
                "ratio_group_left_out": one.ratio_group_left_out,
            }
            for one in calibration.rows
        ],
    }
