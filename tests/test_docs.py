"""What the documentation names exists: modules, functions, configuration keys, files, commands and their options."""

import itertools
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from conftest import ROOT, loaded
from sottovoce.cli.command_line import command_line
from sottovoce.config import Config
from sottovoce.open_union import OpenUnion

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SOURCES = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.yaml"), *(ROOT / "examples").glob("*.py")]
WORDS = {word for path in SOURCES for word in re.findall(r"[A-Za-z_][A-Za-z0-9_-]*", path.read_text())}
WORDS |= {path.stem for path in SOURCES}
FILES = {path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*") if ".venv" not in path.parts}
PACKAGE = {path.relative_to(ROOT / "src" / "sottovoce").as_posix() for path in (ROOT / "src" / "sottovoce").rglob("*")}
WRITTEN = (".safetensors", ".json", ".jsonl", ".csv", ".tsv", ".txt", ".html", ".npy", ".f16", ".parquet", ".png")
# Names of other projects, and what `make docs` writes.
ELSEWHERE = {"build/site", "torchrun", "torch.compile", "scaled_dot_product_attention", "value_discretization_interval"}


def ids(path: Path) -> str:
    return path.name


def config_keys(model: type[BaseModel], prefix: str = "") -> set[str]:
    """Return every key and section of the configuration, of all kinds of options."""
    keys = set()
    for name, field in model.model_fields.items():
        keys.add(f"{prefix}{name}")
        for section in sections([field.annotation, *field.metadata]):
            keys |= config_keys(section, f"{prefix}{name}.")
    return keys


def sections(parts: Iterable[Any]) -> Iterator[type[BaseModel]]:
    """Yield the options of all kinds that a field may hold."""
    for part in parts:
        if isinstance(part, OpenUnion):
            yield from part.members().values()
        elif isinstance(part, type) and issubclass(part, BaseModel):
            yield part
        yield from sections(get_args(part))


KEYS = config_keys(Config)


def exists(name: str) -> bool:
    """Return whether something that the documentation writes in backticks is there."""
    bare = name.removesuffix("()").rstrip("/")
    if bare in ELSEWHERE or bare in KEYS or bare in FILES or bare in PACKAGE:
        return True
    if bare.endswith(WRITTEN):  # a file that a command reads or writes
        return Path(bare).stem in WORDS
    if bare.endswith((".py", ".yaml", ".md")):
        return any(path == bare or path.endswith(f"/{bare}") for path in FILES)
    first, dot, _ = bare.partition(".")
    if dot and first in Config.model_fields and f"{first}.py" not in PACKAGE:
        return False  # a key of the configuration that does not exist
    return all(part in WORDS or part.isdigit() for part in re.split(r"[./]", bare.removeprefix("sv.")) if part)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_name_in_backticks_exists(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    names = [name for name in re.findall(r"`([^`\n]+)`", text) if re.fullmatch(r"[A-Za-z_][\w./-]*(\(\))?", name)]
    assert [name for name in names if not exists(name)] == []


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_setting_in_a_command_exists(page):
    settings = re.findall(r"--set '?\"?([a-z_.]+)=", page.read_text())
    assert [key for key in settings if key not in KEYS] == []


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_command_and_its_options_exist(page):
    blocks = "\n".join(re.findall(r"```(?:sh|console|bash)?\n(.*?)```", page.read_text(), flags=re.DOTALL))
    lines = re.sub(r"\\\n", " ", blocks).splitlines()
    inline = re.findall(r"`(sotto [^`\n]+)`", page.read_text())
    for line in [*lines, *inline]:
        if line.lstrip("$ ").startswith("sotto "):
            require_command(line.partition("#")[0].lstrip("$ "))


def require_command(line: str) -> None:
    """Follow the words of a command line down to a command, and check its options."""
    command, words = command_line(), shlex.split(line.replace("...", "x"))[1:]
    while words and hasattr(command, "commands"):
        if words[0] in ("|", "x") or words[0].startswith("-") or words[0].isupper():
            return
        assert words[0] in command.commands, line
        command = loaded(command.commands[words.pop(0)])
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        if word.startswith("--") and word != "--":
            assert word.partition("=")[0] in known | {"--help"}, f"{line}: there is no {word}"


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_link_between_pages_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, _ = target.partition("#")
        if path and "://" not in path:
            assert (page.parent / path).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_headings_skip_no_level(page):
    # `make docs` refuses such a page, and nobody runs that every day.
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    levels = [len(marks) for marks in re.findall(r"^(#+) ", text, flags=re.MULTILINE)]
    assert levels[0] == 1
    assert [after for before, after in itertools.pairwise(levels) if after > before + 1] == []
