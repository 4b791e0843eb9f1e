"""Command lines: good ones for every command, and ways to make them hostile.

Paths are relative to the folder `out`, in which commands run; inputs lie in `../in`.
"""

import typing
from pathlib import Path
from random import Random
from typing import Any

import click

from fuzz.inputs import CENTRAL, FEDERATED
from sottovoce.cli.command_line import command_line
from sottovoce.cli.lazy_command import LazyCommand

_SETS = {"central": CENTRAL, "federated": FEDERATED}
_DATA = "--train ../in/store@../in/train.txt --dev ../in/store@../in/dev.txt --test ../in/store@../in/test.txt"
# A good command line of every command; those that are not here are made of what they require.
GOOD = (
    "eval ../in/private ../in/store@../in/test.txt --workers 1",
    "eval ../in/central/last/model.safetensors ../in/other --by sex --json --workers 1",
    "transcribe ../in/central ../in/corpus/ann0.flac ../in/corpus/bob1.wav --json",
    "transcribe ../in/private/best ../in/corpus/ann1.wav",
    "lm build ../in/corpus/text.txt --order 2 --out lm.arpa",
    "lm build --from-store ../in/store --includes-users --level character --out lm.arpa",
    "export ../in/central --to safetensors --out exported.safetensors",
    "import ../in/central/last/model.safetensors --preset ../in/preset.yaml --out seed.safetensors",
    "watch ../in/central",
    "watch ../in/private --json",
    "model ../in/preset.yaml --partition kind",
    "model tiny --json",
    "report ../in/private --out page.html",
    "report ../in/private ../in/central ../in/secure --out page.html --title many",
    "estimate tiny --processes 4",
    "estimate ../in/preset.yaml --train ../in/store@../in/train.txt --json",
    "data split ../in/store --fraction 0.5 --out split",
    "data split ../in/store --where sex=f --names a,b --out split --json",
    "data split ../in/store --speakers ../in/dev.txt --out split",
    "data merge ../in/store ../in/other --same-speakers --out merged",
    "data merge ../in/store ../in/other --prefix --out merged --json",
    "data stats ../in/store ../in/other --figure figure.png",
    "data stats ../in/store --iid --speakers ../in/train.txt",
    "data inspect ../in/store --limit 3",
    "data inspect ../in/store --speaker ann --json",
    "data inspect ../in/store --rejected",
    "data inspect ../in/store --verify",
    "data export ../in/store ann0.flac --out one.wav",
    "data upgrade older",
    "data prepare table ../in/corpus/index.tsv --out made --workers 1",
    "data prepare table ../in/corpus/index.csv --out made --concatenate 1:2 --times 2 --workers 1",
    "data prepare table ../in/corpus/index.jsonl --out made --workers 1 --json --unknown-letters keep",
    "data prepare lhotse ../in/corpus/recordings.jsonl ../in/corpus/supervisions.jsonl --out made --workers 1",
    "data prepare lhotse ../in/corpus/recordings.json ../in/corpus/supervisions.json --out made --workers 1",
    "data prepare lhotse-cuts ../in/corpus/cuts.jsonl --out made --workers 1",
    "data prepare kaldi ../in/corpus/kaldi --out made --workers 1",
    "data prepare nemo ../in/corpus/nemo.json --out made --workers 1",
    "data prepare huggingface ../in/corpus/some.parquet --out made --workers 1",
    "data prepare librispeech ../in/corpus --subset dev-clean --out made --workers 1",
    "data prepare commonvoice ../in/corpus --language en --out made --workers 1",
    "data prepare synthetic --speakers 2 --max-utterances 1 --out made --workers 1 --dry-run",
    "data prepare preset tiny --out made --workers 1 --dry-run",
    "data check librispeech ../in/corpus --subset dev-clean",
    "data check commonvoice ../in/corpus --language en",
    "config list",
    "config show ../in/preset.yaml --meaning",
    "config show tiny --json",
    f"train central tiny --run new --workers 1 {_DATA}",
    f"train federated tiny --run new --workers 1 {_DATA}",
    f"train federated tiny --run private --workers 1 {_DATA}",
    f"train central tiny --run central --workers 1 {_DATA}",
    f"train federated tiny --run new --workers 1 --seed-model ../in/central/last {_DATA}",
    "privacy publish ../in/secure published",
    "privacy population ../in/store",
    "privacy epsilon --sigma-dp 0.01 --cohort-size 10 --population 1000 --central-steps 5",
    "privacy plan --population 100000 --cohort-size 100 --central-steps 20 --epsilon 5 --accounting rdp",
    "privacy claim ../in/private --cohort-size 1000 --population 10000000",
    "privacy compose ../in/private ../in/secure --json",
    "privacy verify ../in/private",
    "privacy verify ../in/secure --json",
    "privacy explain ../in/secure --out statement.md",
    "privacy explain ../in/private --json",
    "bench list",
    "bench run ../in/bench.yaml --dry-run --out bench --corpora corpora --workers 1",
    "bench show ../in/bench.yaml --out bench --corpora corpora",
    "bench show dp-results --from ../in/published",
    "bench export demo --to document --out bench --corpora corpora",
    "bench summary --from ../in/published --out bench --corpora corpora",
    "demo --dry-run --out demo --workers 1",
)
LONG = ("train", "neighbours", "audit", "demo", "synthetic")  # asked to end, they may finish what they are at
SLOW = (
    "privacy plan",
    "privacy epsilon",
    "privacy compose",
    "privacy explain",
    "privacy verify",
    "report",
    "train",
    "eval",
)
ALWAYS = {
    "demo": "--dry-run",
    "bench run": "--dry-run",
    "data prepare synthetic": "--dry-run",
    "data prepare preset": "--dry-run",
}
NEVER = (
    "privacy audit",
    "privacy neighbours",
    "privacy table",
    *(f"deploy {name}" for name in ("keys", "server", "client", "status", "demo")),
)  # minutes each, on inputs that other commands read, too; those of deployments wait for others, or make keys
OUTPUTS = ("out", "run", "figure", "results", "to", "plot", "report", "wandb", "work", "ledger", "corpora", "export")

NUMBERS = (
    *("0", "1", "2", "-1", "3", "0.5", "-0.0", "1e-320", "1e300", "1e-9", "nan", "inf", "-inf", "1e9", "2147483648"),
    *(
        "9223372036854775808",
        "99999999999999999999999",
        "1" * 5000,
        "0x10",
        "1_000",
        "٣",
        "",
        " ",
        "one",
        "1/0",
        "1e",
        "1,5",
    ),
)
TEXTS = (
    *(
        "",
        " ",
        "x",
        "\x1b[31mred\x1b[0m",
        "\x1b]0;t\x07",
        "a\nb",
        "é",
        "\udcff",  # how Python has an argument that is not UTF-8
        "\u202etxt",
        "=1+1",
        "-",
        "--",
        "@",
        "=",
        "a=",
        "=b",
    ),
    *(
        "y" * 5000,
        "../in",
        "nan",
        "null",
        "[",
        "{",
        "1:2",
        "2:99999999999",
        "0:0",
        "2:1",
        "1/2",
        "0.1,0.2",
        "ann",
        "sex=f",
    ),
)
PATHS = (
    *(
        "",
        ".",
        "nothing",
        "nothing/inside",
        "\udcff",
        "z" * 300,
        "\x1b[31mx",
        "a\nb",
        "../in",
        "../in/store",
        "../in/private",
        "pipe",
    ),
    *(
        "link",
        "dangling",
        "folder",
        "device",
        "../in/corpus/index.tsv",
        "../in/train.txt",
        "../in/preset.yaml",
        "é.yaml",
    ),
    *(
        "../in/corpus/ann0.flac",
        "../in/central/last/model.safetensors",
        "../in/store@../in/dev.txt",
        "../in/store@pipe",
        "@",
    ),
)
NEW_PATHS = (
    "new-one",
    "link",
    "dangling",
    "pipe",
    "folder",
    "device",
    ".",
    "",
    "nothing/inside/it.png",
    "\udcff.png",
    "z" * 300,
    "\x1b[31mx.png",
)
SETTINGS = (
    "null",
    "[]",
    "{}",
    "nan",
    ".inf",
    "-.inf",
    "x",
    "1/0",
    "[1, 2]",
    "{a: 1}",
    "'",
    "{{",
    "true",
    "*a",
    "&a [*a]",
    "2020-99-99",
)


def commands() -> dict[str, list[Any]]:
    """Return the parameters of every command of the real command line, by its words."""
    found: dict[str, list[Any]] = {}

    def walk(command: Any, words: tuple[str, ...]) -> None:
        loaded = command.load() if isinstance(command, LazyCommand) else command
        for name, inner in getattr(loaded, "commands", {}).items():
            walk(inner, (*words, name))
        if not hasattr(loaded, "commands"):
            found[" ".join(words)] = list(loaded.params)

    walk(command_line(), ())
    return found


def named(words: list[str], known: dict[str, list[Any]]) -> str:
    """Return the command that a command line begins with."""
    return next(" ".join(words[:size]) for size in (3, 2, 1) if " ".join(words[:size]) in known)


def possible(folder: Path, *, quick: bool, only: str) -> list[str]:
    """Return the good command lines whose inputs are there; quick ones are those that need no model."""
    inputs = {line: [word.split("@")[0] for word in line.split() if "../" in word] for line in GOOD}
    found = [line for line, words in inputs.items() if all((folder / word).exists() for word in words)]
    return [line for line in found if line.startswith(only) and (not quick or line.startswith(("data", "config")))]


def good(random: Random, known: dict[str, list[Any]], lines: list[str]) -> list[str]:
    """Return the words of one of these good command lines, or of some other command."""
    covered = {named(line.split(), known) for line in GOOD}
    others = [name for name in known if name not in covered and name not in NEVER]
    if others and len(lines) == len(GOOD) and random.random() < 0.1:
        name = random.choice(others)
        words = name.split()
        for parameter in known[name]:
            if parameter.required:
                words += [*_option(parameter), _value(parameter, random)]
        return words
    line = random.choice(lines)
    if any(word in line for word in SLOW) and random.random() < 0.9:
        line = random.choice(lines)
    words = line.split()
    for setting in _SETS.get(words[1], ()) if words[0] == "train" else ():
        words += ["--set", setting]
    return words


def hostile(words: list[str], random: Random, known: dict[str, list[Any]]) -> list[str]:
    """Return a command line with one or a few of its values replaced, or options added."""
    name = named(words, known)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        parameter = random.choice(known[name])
        option = _option(parameter)
        if not option:
            words = _with_argument(words, name, parameter, random)
        elif _kind(parameter) is bool:
            words = [*words, *option]
        elif option[0] in words and random.random() < 0.7:
            place = words.index(option[0]) + 1
            words = [*words[:place], _value(parameter, random), *words[place + 1 :]]
        else:
            words = [*words, *option, _value(parameter, random)]
    if random.random() < 0.03:
        words = [*words, random.choice(("--no-such-option", "extra", "--", "-x", "--json=1", "--help"))]
    if (always := ALWAYS.get(name)) is not None and always not in words:
        words = [*words, always]
    return words


def _with_argument(words: list[str], name: str, parameter: Any, random: Random) -> list[str]:
    first = len(name.split())
    places = [place for place in range(first, len(words)) if not words[place].startswith("--")]
    if not places:
        return [*words, _value(parameter, random)]
    place = random.choice(places[:3])
    return [*words[:place], _value(parameter, random), *words[place + 1 :]]


def _option(parameter: Any) -> list[str]:
    return [parameter.opts[0]] if parameter.opts[0].startswith("--") else []


def _kind(parameter: Any) -> Any:
    """Return the Python type of a parameter's values: a number, bool, Path, choices as a Literal, or else text."""
    kinds = {click.types.IntParamType: int, click.types.FloatParamType: float, click.types.BoolParamType: bool}
    kinds |= {click.Path: Path, click.File: Path}
    if isinstance(parameter.type, click.Choice):
        return typing.Literal[tuple(map(str, parameter.type.choices))]
    return next((kind for click_kind, kind in kinds.items() if isinstance(parameter.type, click_kind)), str)


def _value(parameter: Any, random: Random) -> str:
    kind, metavar = _kind(parameter), parameter.metavar or ""
    if metavar == "KEY=VALUE":
        return _setting(random)
    values: tuple[Any, ...] = (*TEXTS, *NUMBERS)
    if parameter.name in OUTPUTS:
        values = NEW_PATHS
    elif kind in (int, float):
        values = NUMBERS
    elif kind is Path or "STORE" in metavar:
        values = PATHS
    elif typing.get_origin(kind) is typing.Literal and random.random() < 0.7:
        values = typing.get_args(kind)
    elif metavar in ("PRESET", "NAME"):
        values = ("tiny", "quick", "demo", "../in/preset.yaml", "../in/bench.yaml", *PATHS)
    return str(random.choice(values))


_KEYS: list[str] = []


def _setting(random: Random) -> str:
    if not _KEYS:
        from sottovoce.config import resolve

        _KEYS.extend(key for key, _, _ in resolve("tiny").rows())
        _KEYS.extend(key.rpartition(".")[0] for key in list(_KEYS) if "." in key)
        _KEYS.extend(
            ("federated.local.rule", "privacy.noise_analysis", "joining", "users.seed_fraction", "x", "", "a.b.c")
        )
    key, value = random.choice(_KEYS), random.choice((*NUMBERS, *SETTINGS, *TEXTS))
    return f"{key}={value}" if random.random() < 0.97 else value
