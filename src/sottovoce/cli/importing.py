"""sotto import: a seed model from the parameters of another program's model."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.cli.arguments import AsJson, Seed
from sottovoce.cli.config import Settings, configured
from sottovoce.cli.console import counted, note, print_json, print_table
from sottovoce.errors import ConfigError, DataError
from sottovoce.reading import read_bounded

if TYPE_CHECKING:
    from sottovoce.model.importing import Imported, Misfit, NameMap

_SHOWN = 20  # tensors of each kind

Source = Annotated[Path, typer.Argument(metavar="FILE", help="A safetensors file, of any program.")]
PresetOption = Annotated[
    str, typer.Option("--preset", metavar="PRESET", help="A preset or a YAML file whose model has the shape.")
]
OutFile = Annotated[Path, typer.Option("--out", help="The model file to write, such as seed.safetensors.")]
Names = Annotated[
    Path | None,
    typer.Option("--names", metavar="MAP", help="A YAML or JSON file: which tensor is which. Default: equal names."),
]
Languages = Annotated[
    list[str] | None,
    typer.Option("--language", help="The language that the model shall write: en, fr or de.", show_default="en"),
]


def import_seed(
    file: Source,
    preset: PresetOption,
    out: OutFile,
    names: Names = None,
    language: Languages = None,
    settings: Settings = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Make a seed model from tensors that another program has saved, and list what did not fit.

    The map says which tensor goes where: with stars for numbers of blocks, several tensors joined, transposed or cut.
    Tensors without a counterpart are those of a new model. Rows of the output layer are matched by the text of their
    tokens, so the languages may differ. Nobody can know whom such a model was trained on: federated training with a
    guarantee asks you to state that they are not users (privacy.accept=[unknown_seed_model]).

    Example: sotto import other.safetensors --names names.yaml --preset tiny --language fr --out seed.safetensors
    """
    from sottovoce.data.text import TokenSet
    from sottovoce.federated.seed import run_of
    from sottovoce.model.importing import import_model

    if out.exists():
        raise DataError(f"{out} already exists. Choose another --out, or remove it.")
    if run_of(out) is not None:
        raise ConfigError(f"{out} would lie in the folder of a run, which did not train it. Choose another --out.")
    token_set = TokenSet(tuple(language or ("en",)))
    options = configured(preset, settings).config.model
    recogniser, imported = import_model(file, _read(names), options, token_set, seed)
    recogniser.save(out)
    if as_json:
        print_json({"file": str(file), "out": str(out), **imported.document()})
        return
    _print(file, out, imported)


def _read(path: Path | None) -> "NameMap":
    from sottovoce.config import parse_tree
    from sottovoce.model.importing import NameMap

    if path is None:
        return NameMap()
    if not path.is_file():
        raise ConfigError(f"There is no map of names {path}. Check the path.")
    return NameMap.read(parse_tree(read_bounded(path).decode(errors="replace"), str(path)), str(path))


def _print(file: Path, out: Path, imported: "Imported") -> None:
    rows = [["new, nothing was given", name] for name in imported.missing]
    rows += [
        [
            "wrong shape, so new",
            f"{one.parameter} is {_shape(one.needed)}; in the file {one.tensor} is {_shape(one.given)}",
        ]
        for one in imported.wrong_shape
    ]
    rows += [["left over", name] for name in imported.left_over]
    rows += [["in the map, but not in the file", pattern] for pattern in imported.unused_patterns]
    if rows:
        print_table(f"{file}: what did not fit", ["", "tensor"], _shortened(rows), text_columns=2)
    share = math.floor(1000 * imported.taken_parameters / imported.parameters) / 10  # 100 % means all of them
    fitted = imported.tensors - len(imported.missing) - len(imported.wrong_shape)
    note(f"{out}: {fitted} of {counted(imported.tensors, 'tensor')} ({share:g} % of the parameters) are from {file}.")
    if imported.new_tokens or imported.dropped_tokens:
        new, dropped = (" ".join(tokens) or "none" for tokens in (imported.new_tokens, imported.dropped_tokens))
        note(f"Tokens with new output rows: {new}. Tokens that were left out: {dropped}.")


def _misfit(one: "Misfit") -> str:
    return f"{one.parameter} is {_shape(one.needed)}; in the file {one.tensor} is {_shape(one.given)}"


def _shape(sizes: tuple[int, ...]) -> str:
    return " x ".join(map(str, sizes)) or "of no common shape"


def _shortened(rows: list[list[str]]) -> list[list[str]]:
    """Return the first rows of each kind, and how many more there are."""
    shown: list[list[str]] = []
    for kind in dict.fromkeys(row[0] for row in rows):
        same = [row for row in rows if row[0] == kind]
        shown += same[:_SHOWN]
        if len(same) > _SHOWN:
            shown.append([kind, f"and {len(same) - _SHOWN} more (--json lists all)"])
    return shown
