"""sotto estimate: FLOPs counted twice, local work as the client does it, and the fit to the paper's table."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from own_noise import Cancelling
from sottovoce.config import parse_setting, resolve
from sottovoce.data.batching import Batching
from sottovoce.data.statistics import paper_statistics
from sottovoce.errors import ConfigError
from sottovoce.estimate import devices
from sottovoce.estimate.calibration import calibrate, compute_rows
from sottovoce.estimate.devices import A100, H100, Device, custom, here, seconds_per_flop
from sottovoce.estimate.model_size import describe
from sottovoce.estimate.run_cost import estimate, estimate_central, memory, traffic
from sottovoce.estimate.user_audio import audio_of, iid, log_normal, of_users, paper_audio, utterances_of_the_paper
from sottovoce.estimate.work import FROZEN, _longest_first, batch_audio, flops_per_second, loads, local_work
from sottovoce.federated.client import planned_batches
from sottovoce.federated.federated_options import Local
from sottovoce.federated.process_aggregator import share_out
from sottovoce.model.adapter_options import Adapters
from sottovoce.model.adapters import adapt_
from sottovoce.model.flat import trainable_roles
from sottovoce.model.stack import KEPT
from sottovoce.model.transformer import Transformer
from sottovoce.model.transformer_options import TransformerOptions
from sottovoce.randomness import stream


def config(*settings, preset="baseline"):
    return resolve(preset, *map(parse_setting, settings)).config


# FLOPs


def test_flops_by_hand():
    options = TransformerOptions(blocks=1, width=8, heads=2, mlp_width=16, layer_drop=0.0)
    # 3 s are 100 outputs; a second has 100 / 3. Two for every multiplication with its addition.
    third = 100 / 3
    assert flops_per_second(options, 5, 3.0) == pytest.approx(
        {
            "conv": third * (2 * 7 * 81 * 16) * 2,  # forward, and backward for the kernel only
            "projections": third * (2 * 8 * 24 + 2 * 8 * 8) * 3,
            "attention": third * (2 * 100 * 8 + 2 * 100 * 8) * 3,
            "mlp": third * (2 * 8 * 16 + 2 * 16 * 8) * 3,
            "output": third * (2 * 8 * 5) * 3,
        }
    )


@pytest.mark.parametrize(
    ("width", "mlp_width", "blocks", "positions"),
    [(64, 256, 2, "cape"), (96, 128, 3, "cape"), (64, 256, 2, "relative")],
)
def test_flops_are_those_of_the_encoder(width, mlp_width, blocks, positions):
    options = TransformerOptions(blocks=blocks, width=width, mlp_width=mlp_width, layer_drop=0.0, positions=positions)
    encoder, frames = Transformer(options, 30).train(), torch.full((4,), 600)
    kept = [number > 0 for number in range(blocks)]
    for used in (None, {KEPT: np.array(kept)}):
        with FlopCounterMode(display=False) as counter:
            scores, _ = encoder(torch.randn(4, 600, 80), frames, used)
            scores.sum().backward()
        drop = 0.0 if used is None else 1 / blocks
        ours = 4 * 6.0 * sum(flops_per_second(options.model_copy(update={"layer_drop": drop}), 30, 6.0).values())
        assert ours == pytest.approx(counter.get_total_flops(), rel=0.01)


@pytest.mark.parametrize(
    "trainable", [("output",), ("ln", "output"), ("blocks.2",), ("mlp",), ("attention", "blocks.1"), ("blocks.0",)]
)
def test_frozen_parameters_save_a_part_of_the_backward_pass(trainable):
    options = TransformerOptions(blocks=3, width=96, mlp_width=384, layer_drop=0.0)
    encoder = Transformer(options, 30).train()
    trained = trainable_roles(encoder, trainable)
    for name, parameter in encoder.named_parameters():  # not a FlatModel: the counter misses products into given memory
        parameter.requires_grad_(name in trained)
    with FlopCounterMode(display=False) as counter:
        scores, _ = encoder(torch.randn(4, 600, 80), torch.full((4,), 600), None)
        scores.sum().backward()
    flops = flops_per_second(options, 30, 6.0, trainable=trainable)
    assert 4 * 6.0 * sum(flops.values()) == pytest.approx(counter.get_total_flops(), rel=0.1)
    whole = flops_per_second(options, 30, 6.0)
    assert sum(whole.values()) / 3 < sum(flops.values()) < sum(whole.values())
    assert FROZEN not in whole
    assert {part: value for part, value in flops.items() if part != FROZEN} == whole


@pytest.mark.parametrize("train", ["b", "both"])
def test_adapters_need_thin_products_instead_of_the_gradients_of_their_matrices(train):
    options = TransformerOptions(blocks=3, width=96, mlp_width=384, layer_drop=0.0)
    encoder, adapters = Transformer(options, 30).train(), Adapters(rank=16, train=train)
    adapt_(encoder, adapters, 0)
    trained = trainable_roles(encoder, ())
    for name, parameter in encoder.named_parameters():
        parameter.requires_grad_(name in trained)
    with FlopCounterMode(display=False) as counter:
        scores, _ = encoder(torch.randn(4, 600, 80), torch.full((4,), 600), None)
        scores.sum().backward()
    flops = flops_per_second(options, 30, 6.0, trainable=(), adapters=adapters)
    assert 4 * 6.0 * sum(flops.values()) == pytest.approx(counter.get_total_flops(), rel=0.1)
    assert sum(flops.values()) < 0.9 * sum(flops_per_second(options, 30, 6.0).values())


def test_an_estimate_counts_only_the_parameters_that_train():
    audio = paper_audio("CV-en-train")
    found, whole = (
        estimate(config(*PAPER, f"federated.trainable={trainable}"), audio, A100, 1, "tf32")
        for trainable in ("[output]", "all")
    )
    assert found.flops_per_run < 0.4 * whole.flops_per_run
    assert found.flops_per_second["total"] == pytest.approx(sum(found.flops_per_second.values()) / 2)


def test_most_flops_are_six_for_every_parameter_and_output():
    model = config().model.model_copy(update={"layer_drop": 0.0})
    flops = flops_per_second(model, 30, 5.5)
    linear = sum(flops.values()) - flops["attention"]
    assert linear == pytest.approx(6 * 255_800_864 * 100 / 3, rel=0.01)


# Audio of users and their local work


def test_local_work_is_what_the_client_plans():
    rng, users = stream(0, "test"), np.array([0, 7, 20, 50, 130])
    for local in ("epochs=3", "steps=42"):  # 42 steps go round 1, 3 and 7 batches a whole number of times
        wanted = config("batching.seconds=20", f"federated.local.{local}")
        steps, seconds = local_work(wanted, users.astype(np.float64), None)
        for place, user in enumerate(users):
            frames = np.full(user, 100)  # utterances of one second
            options = Local(**{local.split("=")[0]: int(local.split("=")[1])})
            planned = planned_batches(np.arange(user), frames, Batching(seconds=20), options, rng)
            assert steps[place] == len(planned)
            assert seconds[place] == pytest.approx(sum(len(batch.rows) for batch in planned))


def test_what_fits_into_one_batch_is_one():
    wanted = config("batching.seconds=120", "federated.local.epochs=1")
    steps, seconds = local_work(wanted, np.array([0.0, 60.0, 119.5, 120.0, 121.0]), 5.6)
    assert steps.tolist() == [0, 1, 1, 1, 2]  # a full batch has 117 s on average
    assert seconds.tolist() == [0, 60, 119.5, 120, 121]


@pytest.mark.parametrize("local", ["epochs=3", "steps=40"])
def test_local_work_of_utterances_of_different_lengths(local):
    rng, key, count = stream(0, "test"), *local.split("=")
    wanted = config("batching.seconds=60", f"federated.local.{local}")
    planned_steps, planned_seconds, users = [], [], []
    for utterances in rng.integers(1, 200, size=60):
        frames = np.clip(rng.gamma(9.7, 58, size=utterances), 100, 1500).astype(np.int64)
        rows, options = np.arange(utterances), Local(**{key: int(count)})
        planned = planned_batches(rows, frames, Batching(seconds=60), options, rng)
        users.append(frames.sum() / 100)
        planned_steps.append(len(planned))
        planned_seconds.append(sum(frames[batch.rows].sum() for batch in planned) / 100)
    steps, seconds = local_work(wanted, np.array(users), 5.6)
    assert steps.sum() == pytest.approx(sum(planned_steps), rel=0.05)
    assert seconds.sum() == pytest.approx(sum(planned_seconds), rel=0.05)


def test_a_full_batch_of_shuffled_utterances():
    assert batch_audio(120, 5.6) == pytest.approx(117, rel=0.01)  # the next utterance does not fit
    assert batch_audio(5, 50) == pytest.approx(50, rel=0.02)  # each is longer than the limit: a batch of its own
    assert batch_audio(120, 0.1) == pytest.approx(120, rel=0.01)


def test_a_cap_on_audio_is_kept():
    capped = config("batching.seconds=20", "batching.max_seconds_per_user=30", "federated.local.epochs=2")
    steps, seconds = local_work(capped, np.array([10.0, 500.0]), None)
    assert steps.tolist() == [2, 4]
    assert seconds.tolist() == [20, 60]


@pytest.mark.parametrize("name", ["CV-en-train", "LS-960", "CV-fr-train-90"])
def test_log_normal_expectations_against_sampling(name):
    row, audio, rng = paper_statistics([name])[name], paper_audio(name), np.random.default_rng(0)
    minutes = (row.minutes_mean, row.minutes_std, row.minutes_min, row.minutes_max)
    mean, std, least, most = (60 * value for value in minutes)
    sigma = math.sqrt(math.log(1 + (std / mean) ** 2))
    drawn = np.clip(np.exp(rng.normal(math.log(mean) - sigma**2 / 2, sigma, 1_000_000)), least, most)
    drawn *= mean / drawn.mean()  # as ours is moved to the table's mean
    assert audio.mean() == pytest.approx(mean, rel=1e-9)
    assert audio.seconds.min() >= least
    assert audio.seconds.max() <= most
    for wanted in (config("federated.local.steps=10"), config("federated.local.epochs=10")):
        length = audio.utterance_seconds
        works = local_work(wanted, audio.seconds, length), local_work(wanted, drawn, length)
        for ours, sampled in zip(*works, strict=True):
            assert audio.mean(ours) == pytest.approx(sampled.mean(), rel=0.02)


def test_log_normal_without_limits():
    audio = log_normal("x", 100.0, 150.0)
    assert (audio.mean(), audio.std) == (pytest.approx(100), pytest.approx(150, rel=1e-3))
    # E[min(X, c)] in closed form.
    sigma = math.sqrt(math.log(1 + 1.5**2))
    mu, phi = math.log(100) - sigma**2 / 2, torch.distributions.Normal(0.0, 1.0).cdf
    z = torch.tensor((math.log(120) - mu) / sigma)
    expected = 100 * float(phi(z - sigma)) + 120 * (1 - float(phi(z)))
    assert audio.mean(np.minimum(audio.seconds, 120)) == pytest.approx(expected, rel=1e-3)
    assert log_normal("x", 5.0, 0.0).std == pytest.approx(0, abs=1e-6)


def test_the_iid_control_has_the_same_mean_and_little_spread():
    audio = paper_audio("CV-en-train")
    assert iid(audio).mean() == pytest.approx(audio.mean())
    assert iid(audio).std == pytest.approx(math.sqrt(168 * 5.5), rel=1e-3)


def test_what_presets_say_about_audio(make_store):
    assert audio_of(resolve("commonvoice-en")).name == "CV-en-train-90"
    assert audio_of(resolve("commonvoice-de", {"users": {"seed_fraction": None}})).name == "CV-de-train"
    assert audio_of(resolve("librispeech")).name == "LS-960"
    quick = audio_of(resolve("quick"))
    assert len(quick.seconds) == 24
    assert 1 < quick.utterance_seconds < 10
    with pytest.raises(ConfigError, match="Give --audio"):
        audio_of(resolve("baseline"))
    store = make_store({"ann": 2, "bob": 5})
    real = audio_of(resolve("baseline", {"data": {"train": {"store": store.path}}}))
    assert (real.seconds * real.shares).sum() == pytest.approx(store.index(["seconds"])["seconds"].to_numpy().sum() / 2)


def test_corpora_are_those_of_the_paper():
    names = utterances_of_the_paper()
    assert len(names) == 16
    assert set(paper_statistics(names)) == set(names)


# Processes


def test_sharing_of_equal_users_by_hand():
    audio = of_users("equal", np.full(10, 60.0), 100)
    for sharing in ("longest first", "dealt"):
        shared = loads(config("participation.cohort_size=5", "federated.local.epochs=1"), audio, 2, sharing)
        assert shared.steps.sum(axis=1).tolist() == pytest.approx([5] * len(shared.steps))
        assert shared.busiest(1.0, 0.5) == pytest.approx(3 * (1 + 0.5 * 60))  # three users and two
        assert shared.mean(1.0, 0.5) == pytest.approx(2.5 * (1 + 0.5 * 60))


def test_long_users_make_processes_wait():
    audio, wanted = paper_audio("CV-en-train"), config("participation.cohort_size=16", "federated.local.epochs=10")
    ours, dealt = (loads(wanted, audio, 2, sharing) for sharing in ("longest first", "dealt"))
    for shared in (ours, dealt):
        assert shared.mean(0, 1) == pytest.approx(16 * 10 * audio.mean() / 2)
    assert 1.2 < ours.busiest(0, 1) / ours.mean(0, 1) < dealt.busiest(0, 1) / dealt.mean(0, 1) < 2
    one = loads(wanted, audio, 1, "longest first")
    assert one.busiest(0, 1) == pytest.approx(one.mean(0, 1))


@pytest.mark.parametrize("processes", [1, 2, 7])
def test_cohorts_are_shared_out_as_the_engine_does(processes):
    costs = stream(3, "costs").integers(1, 40, size=(50, 30)).astype(float)  # with many equal ones
    for own, found in zip(costs, _longest_first(costs, processes), strict=True):
        for process, mine in enumerate(share_out(own.astype(int).tolist(), processes)):
            assert sorted(mine.tolist()) == np.flatnonzero(found == process).tolist()


def test_large_cohorts_are_scaled():
    audio = of_users("equal", np.full(10, 60.0), 100)
    shared = loads(config("participation.cohort_size=1000000", "federated.local.steps=1"), audio, 100, "dealt")
    assert shared.mean(1, 0) == pytest.approx(10_000)


# The paper's table


def test_the_table_of_compute():
    rows = compute_rows()
    assert [row.line for row in rows] == [*range(2617, 2621), *range(2622, 2627), 2628, 2629, 2630, 2632, 2633,
                                          2635, 2636, 2637]  # fmt: skip
    assert all(row.gpus * row.runtime_hours == row.gpu_hours for row in rows)
    assert sum(row.gpu_hours for row in rows) == 11_476
    assert {row.data for row in rows} <= set(utterances_of_the_paper())
    wanted = rows[-1].config
    assert (wanted.participation.cohort_size, wanted.federated.local.steps, wanted.batching.seconds) == (1024, 10, 120)


def test_the_fit_reproduces_its_figures():
    calibration = calibrate()
    fit = calibration.fit
    assert fit.per_central_step == pytest.approx(6.9, rel=0.03)
    assert fit.per_local_step == pytest.approx(0.103, rel=0.03)
    assert 1e-12 / fit.per_flop == pytest.approx(31.5, rel=0.03)
    assert calibration.summary() == {
        "ratio": {"median_error": pytest.approx(0.088, abs=0.005), "worst_factor": pytest.approx(1.303, abs=0.01)},
        "ratio_left_out": {
            "median_error": pytest.approx(0.113, abs=0.005),
            "worst_factor": pytest.approx(1.376, abs=0.01),
        },
        "ratio_group_left_out": {
            "median_error": pytest.approx(0.125, abs=0.005),
            "worst_factor": pytest.approx(1.345, abs=0.01),
        },
    }
    assert calibration.factor == pytest.approx(1.376, abs=0.01)


def test_the_fit_is_the_best_nearby():
    calibration = calibrate()

    def error(ratios):
        return sum(math.log(ratio) ** 2 for ratio in ratios)

    best = error([one.ratio for one in calibration.rows])
    assert best < error([one.ratio_left_out for one in calibration.rows])
    # With all times 3 % longer or shorter, all hours are.
    assert best <= min(error([one.ratio * scale for one in calibration.rows]) for scale in (0.97, 1.03))


# Estimates


PAPER = ("federated.local.steps=10", "participation.cohort_size=1024")


def test_an_estimate_of_a_run_of_the_paper():
    found = estimate(config(*PAPER), paper_audio("CV-en-train"), A100, 32, "tf32")
    assert (found.parameters, found.layers) == (255_800_864, 296)
    assert found.gpu_hours == 32 * found.wall_hours
    assert found.wall_hours == pytest.approx(2000 * found.step_seconds["total"] / 3600)
    low, high = found.around(found.gpu_hours)
    assert low < 1088 < high
    assert found.factor == calibrate().factor
    assert found.flops_per_run == pytest.approx(2000 * 1024 * found.local_seconds * found.flops_per_second["total"])
    assert found.document()["ranges"]["gpu_hours"] == [low, high]
    assert found.fits


@pytest.mark.parametrize("place", [0, 4, 8, 9, 16])
def test_an_estimate_of_a_row_is_that_of_the_calibration(place):
    checked = calibrate().rows[place]
    row = checked.row
    found = estimate(row.config, paper_audio(row.data), A100, row.gpus, "tf32", "dealt")
    ours_alone = row.central_steps * row.gpus * found.step_seconds["ledger"] / 3600
    assert found.gpu_hours - ours_alone == pytest.approx(checked.estimated, rel=1e-3)


def test_other_devices_precisions_and_models_are_extrapolated():
    audio, wanted = paper_audio("CV-en-train"), config(*PAPER)
    for device, precision, model in (
        (A100, "float32", wanted),
        (H100, "tf32", wanted),
        (A100, "tf32", config(*PAPER, preset="wide")),
    ):
        found = estimate(model, audio, device, 8, precision)
        assert found.factor == 2
        assert "extrapolated" in found.basis
    hours = {
        (device.name, precision): estimate(wanted, audio, device, 8, precision).gpu_hours
        for device in (A100, H100, custom(156))
        for precision in ("float32", "tf32", "bfloat16")
    }
    for name in (A100.name, H100.name):
        assert hours[name, "float32"] > hours[name, "tf32"] > hours[name, "bfloat16"]
    assert hours[H100.name, "tf32"] < hours[A100.name, "tf32"]
    assert hours[custom(156).name, "float32"] == pytest.approx(hours[A100.name, "tf32"])
    assert estimate(wanted, audio, A100, 8).precision == "float32"  # what the preset computes in


def test_seconds_per_flop_by_hand():
    pace = 1 / 156e12 + 2e-14
    assert seconds_per_flop(A100, "tf32", pace) == pytest.approx(pace)
    assert seconds_per_flop(A100, "float32", pace) == pytest.approx(1 / 19.5e12 + 2e-14)
    assert seconds_per_flop(custom(15.6), "bfloat16", pace) == pytest.approx(10 * pace)


def test_noise_costs_time_only_where_it_takes_longer_than_training_or_shares_the_cores_with_it():
    private = (*PAPER, "privacy.clip_norm=0.01", "privacy.clipping=dim", "privacy.sigma_dp=3e-6")
    audio = paper_audio("CV-en-train")
    kinds = (PAPER, private, (*private, "randomness.source=secure"))

    def noise(device, processes=32):
        return [estimate(config(*settings), audio, device, processes).step_seconds["noise"] for settings in kinds]

    assert noise(A100) == [0, 0, 0]  # the threads of 32 processes are done long before their GPUs
    core = Device("a core", {"float32": 1.0}, seconds_per_flop=1e-12, is_cpu=True)
    none, seeded, secure = noise(core)
    assert none == 0 < seeded < secure
    assert secure == pytest.approx(255_800_864 / 32 / 25e6)
    assert noise(core, 1)[2] == pytest.approx(255_800_864 / 25e6)
    fast = replace(core, is_cpu=False, seconds_per_flop=1e-18)  # so fast that everyone waits for the noise
    assert 0.9 * secure < noise(fast)[2] < secure


def test_noise_with_a_memory_is_drawn_by_one_process():
    private = (*PAPER, "privacy.clip_norm=0.01", "privacy.clipping=dim", "privacy.sigma_dp=3e-6")
    given = config(*private, "privacy.noise.name=cancelling")
    core = Device("a core", {"float32": 1.0}, seconds_per_flop=1e-12, is_cpu=True)
    found = estimate(given, paper_audio("CV-en-train"), core, 32)
    assert found.step_seconds["noise"] == pytest.approx(255_800_864 / 50e6)
    assert given.privacy.noise == Cancelling()


def test_memory_and_traffic_by_hand():
    quick = config(preset="quick")
    size = describe(quick, "tensor", "en")
    parameters = size.parameters
    assert parameters == 2 + 80 * 7 * 128 + 128 + 2 * (4 * 64 + 4 * 64**2 + 2 * 64 * 128) + 128 + 64 * 30 + 30
    held = memory(quick, size)
    assert {name: held[name] / parameters for name in ("model", "gradients", "theta", "server_state")} == {
        "model": 4, "gradients": 4, "theta": 4, "server_state": 8}  # fmt: skip
    assert held["total"] == sum(size for name, size in held.items() if name not in ("total", "server_step", "release"))
    assert held["integer_sum"] == held["noise"] == torch.zeros(parameters, dtype=torch.int64).nbytes
    sent = traffic(quick, size.partition, 4)
    notes = sent["sent_by_process"] - 12 * parameters - 8 * parameters / 4  # a quarter of the noise
    assert notes > 0
    assert notes % (3 * 8) == 0  # to each of the three others
    assert (sent["user_down"], sent["user_up_masked"]) == (4 * parameters, 6 * parameters)
    assert 3.8 * parameters < sent["user_up"] < 4 * parameters
    assert sent["cohort_up"] == 8 * sent["user_up"]
    assert traffic(quick, size.partition, 1)["sent_by_process"] == 0
    plain = memory(config("privacy.sigma_dp=0", "privacy.diagnostics=false", preset="quick"), size)
    assert plain["first_gradient"] == plain["noise"] == 0
    shrunk = memory(config("participation.q_min=0.01", preset="quick"), size)
    assert (held["release"], shrunk["release"]) == (4 * parameters, 8 * parameters)
    assert plain["total"] < held["total"]


def test_a_model_that_does_not_fit_says_so(sotto):
    words = ("estimate", "wide", "--audio", "LS-960", "--set", "batching.seconds=3600")
    assert sotto(*words, "--json").document["fits"] is False
    assert "Lower batching.seconds" in sotto(*words).stderr


def test_this_machine_is_measured(sotto, monkeypatch):
    monkeypatch.setattr(devices, "_TIMED_SECONDS", 0.1)
    threads = torch.get_num_threads()
    quick, audio = config(preset="quick"), audio_of(resolve("quick"))
    device = here(quick, "en", 8.0, audio.utterance_seconds)
    large = here(config(), "en", 120.0, 5.5)
    assert torch.get_num_threads() == threads
    for one in (device, large):
        assert 1e-13 < one.seconds_per_flop < 1e-6
    assert "local steps of 8 s" in device.measured_on
    assert "matrix product" in large.measured_on
    found = estimate(quick, audio, device, 2)
    assert found.factor == 2
    assert found.step_seconds["fixed"] == 0
    assert found.step_seconds["local_work"] == pytest.approx(
        8 * found.flops_per_user * device.seconds_per_flop / 2 * found.imbalance
    )
    assert "The time rests on this machine: timed local steps" in sotto("estimate", "quick", "--device", "here").stderr


# The command


def test_the_command_prints_a_range_and_its_error(sotto):
    words = (
        "estimate",
        "commonvoice-en",
        "--set",
        "federated.local.steps=10",
        "--processes",
        32,
        "--precision",
        "tf32",
    )
    outcome = sotto(*words)
    assert "255,800,864 in 296 layers" in outcome.stdout
    assert "times or divided by 1.4" in " ".join(outcome.stdout.replace("│", " ").split())  # wherever lines end
    assert "Error on the paper's 17 runs: median 9 %, worst a factor of 1.30" in outcome.stderr
    document = sotto(*words, "--json").document
    assert document["audio"] == "CV-en-train-90"
    low, high = document["ranges"]["gpu_hours"]
    assert low < document["gpu_hours"] < high
    assert document["error_on_the_paper"]["ratio"]["worst_factor"] == pytest.approx(1.303, abs=0.01)


def test_the_command_prints_the_calibration(sotto):
    outcome = sotto("estimate", "--calibration")
    assert all(str(line) in outcome.stdout for line in (2617, 2637))
    document = sotto("estimate", "--calibration", "--json").document
    assert len(document["rows"]) == 17
    for row in document["rows"]:
        assert row["ratio"] == pytest.approx(row["estimated_gpu_hours"] / row["gpu_hours"])


def test_audio_may_be_given_in_numbers_and_by_a_store(sotto, make_store):
    words = ("--audio-mean-seconds", 60, "--audio-std-seconds", 30, "--utterance-seconds", 4)
    document = sotto("estimate", "tiny", *words, "--device", "custom", "--tflops", 10, "--json").document
    assert document["seconds_per_user"] == pytest.approx(60)
    store = make_store({"ann": 2, "bob": 5})
    document = sotto("estimate", "tiny", "--train", store.path, "--set", "users.iid=true", "--json").document
    assert document["audio"].endswith(", IID")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "Missing PRESET"),
        (("nope",), "There is no preset 'nope'"),
        (("baseline",), "Give --audio with a corpus"),
        (("baseline", "--audio", "CV-es"), "has no corpus 'CV-es'. It has: LS-100"),
        (("baseline", "--audio-mean-seconds", 3), "go together"),
        (("baseline", "--audio-mean-seconds", 0, "--audio-std-seconds", 1), "mean audio 0 s > 0"),
        (("baseline", "--audio-mean-seconds", 1, "--audio-std-seconds", "nan"), "expected a finite number"),
        (("baseline", "--audio", "LS-960", "--utterance-seconds", 3), "goes with --audio-mean-seconds"),
        (("baseline", "--audio", "LS-960", "--audio-mean-seconds", 3, "--audio-std-seconds", 1), "not both"),
        (("baseline", "--audio", "LS-960", "--train", "x"), "Leave out --audio"),
        (("baseline", "--audio", "LS-960", "--device", "custom"), "--tflops go together"),
        (("baseline", "--audio", "LS-960", "--tflops", 3), "--tflops go together"),
        (("baseline", "--audio", "LS-960", "--device", "custom", "--tflops", -3), "--tflops -3 > 0"),
        (("baseline", "--audio", "LS-960", "--device", "tpu"), "'tpu' is not one of"),
        (("baseline", "--audio", "LS-960", "--set", "participation.sampling=everyone"), "population is required"),
    ],
)
def test_bad_input_is_one_line(sotto, words, message):
    outcome = sotto("estimate", *words)
    assert outcome.code in (1, 2)
    assert message in outcome.error
    assert outcome.stdout == ""


@pytest.mark.parametrize(("processes", "faster"), [(4, 0.5), (8, 1), (16, 1.5), (64, 2.5)])
def test_central_training_uses_all_processes(processes, faster):
    config = resolve("baseline", parse_setting("central.steps=1000")).config
    paper, found = (estimate_central(config, 5.0, A100, count, "tf32") for count in (8, processes))
    assert found.flops_per_run == paper.flops_per_run
    assert found.wall_hours <= paper.wall_hours / faster
    assert found.gpu_hours == pytest.approx(processes * found.wall_hours)
    assert found.imbalance < 1.2
