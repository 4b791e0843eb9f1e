"""sotto data split and sotto data merge."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli.arguments import AsJson, DryRun, Out, Seed
from sottovoce.cli.console import ProgressDisplay, counted, note, print_json, say
from sottovoce.cli.statistics import print_statistics
from sottovoce.data.merging import merge, merged_bytes
from sottovoce.data.population import Population
from sottovoce.data.selection import Selection, read_speakers
from sottovoce.data.splits import split_by_column, split_by_count, split_by_fraction, split_by_list
from sottovoce.data.statistics import statistics_of
from sottovoce.data.store import Store
from sottovoce.errors import ConfigError, DataError
from sottovoce.files import as_json as as_bytes
from sottovoce.files import gigabytes, make_folder, require_free, written_whole
from sottovoce.reading import read_bounded

_NAMES = "seed,federated"
_COPIED_BYTES_PER_SECOND = 200e6  # reading, writing and hashing on a typical disk


def split(
    store: Annotated[str, typer.Argument(metavar="STORE[@SPEAKERS]", help="A store, or a part of it to split again.")],
    out: Annotated[Path, typer.Option("--out", help="The folder for the two lists, such as splits/digits.")],
    fraction: Annotated[
        str | None, typer.Option(help="Share of the speakers for the first part: 0.1, 0.05, 1/3; rounded down.")
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Or: the number of speakers for the first part.")] = None,
    speakers: Annotated[
        Path | None, typer.Option(help="Or: the speakers of the first part, a file with one name per line.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(metavar="COLUMN=VALUE", help="Or: speakers with this value in a column of the index."),
    ] = None,
    seed: Seed = 0,
    names: Annotated[
        str, typer.Option(metavar="FIRST,SECOND", help="Names of the two parts, and of their lists: OUT/NAME.txt.")
    ] = _NAMES,
    as_json: AsJson = False,
) -> None:
    """Split the speakers of a store into two disjoint parts, such as 20 % for a seed model and 80 % for the users.

    Writes one list of speakers per part, named by --names (OUT/seed.txt and OUT/federated.txt by default), and
    OUT/split.json, which records the method. Other commands take a part as STORE@OUT/seed.txt, and so does this one:
    split a part again to get three. The same seed gives the same parts on every machine.

    Example: sotto data split stores/digits --fraction 0.2 --names seed,users --out splits/digits
    """
    selection = Selection.parse(store)
    population = selection.open()
    opened = population.store
    methods = {"fraction": fraction, "count": count, "speakers": speakers, "where": where}
    chosen = {name: str(value) for name, value in methods.items() if value is not None}
    if len(chosen) != 1:
        raise ConfigError("Give exactly one of --fraction, --count, --speakers and --where.")
    everyone = list(population.speakers)
    if fraction is not None:
        parts = split_by_fraction(everyone, fraction, seed)
    elif count is not None:
        parts = split_by_count(everyone, count, seed)
    elif speakers is not None:
        parts = split_by_list(everyone, read_speakers(speakers))
    else:
        first, _ = split_by_column(opened, *_column_and_value(where or ""))
        parts = split_by_list(everyone, [speaker for speaker in first if speaker in set(everyone)])
    part_names = _part_names(names)
    of_part = {} if selection.speakers is None else {"of": str(selection.speakers)}
    method: dict[str, str | int] = {**of_part, **chosen, "seed": seed}
    _write_split(opened, out, dict(zip(part_names, parts, strict=True)), method)
    unnamed = names == _NAMES and not of_part
    labels = _part_labels(opened.info.label, part_names, fraction if unnamed else None)
    rows = [statistics_of(label, Population.of(opened, part)) for label, part in zip(labels, parts, strict=True)]
    print_statistics(rows, None, as_json)
    for name, part in zip(part_names, parts, strict=True):
        path = out / f"{name}.txt"
        note(f"{path}: {counted(len(part), 'speaker')}. Use it as {selection.store}@{path}.")


def _column_and_value(text: str) -> tuple[str, str]:
    column, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"Expected --where COLUMN=VALUE, not {text!r}.")
    return column, value


def _part_names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if len(names) != 2 or len(set(names)) != 2 or not all(name.replace("-", "").isalnum() for name in names):
        raise ConfigError(f"Expected --names with two different words such as seed,federated, not {text!r}.")
    return names


def _part_labels(label: str, names: list[str], fraction: str | None) -> list[str]:
    """Return labels as in the paper (CV-en-train-10, CV-en-train-90) if the share is a whole percentage.

    `fraction` is None where the parts have names of their own.
    """
    try:
        percent = round(100 * float(fraction or ""), 6)
    except ValueError:
        return [f"{label} {name}" for name in names]
    if percent != int(percent):
        return [f"{label} {name}" for name in names]
    return [f"{label}-{int(percent):02d}", f"{label}-{100 - int(percent):02d}"]


def _write_split(store: Store, out: Path, parts: dict[str, list[str]], method: Mapping[str, str | int]) -> None:
    """Write the list of every part, and split.json; existing files are never overwritten, only confirmed."""
    contents = {f"{name}.txt": "".join(f"{speaker}\n" for speaker in part).encode() for name, part in parts.items()}
    sizes = {name: len(part) for name, part in parts.items()}
    contents["split.json"] = as_bytes({"store": store.info.hash, "method": method, "speakers": sizes})
    for name, content in contents.items():
        if (out / name).exists() and read_bounded(out / name) != content:
            raise DataError(f"{out / name} already exists, with another content. Choose another --out.")
    make_folder(out)
    for name, content in contents.items():
        if not (out / name).exists():
            with written_whole(out / name, private=True) as file:  # names of speakers
                file.write(content)


def merge_stores(
    stores: Annotated[list[Path], typer.Argument(metavar="STORE STORE...", help="The stores to merge.")],
    out: Out,
    same_speakers: Annotated[
        bool, typer.Option("--same-speakers", help="Equal names in two stores are the same person.")
    ] = False,
    prefix: Annotated[
        bool,
        typer.Option("--prefix", help="Equal names are different people: add the store's label to them."),
    ] = False,
    label: Annotated[
        str | None, typer.Option(help="The name shown in statistics (default: the labels joined by +).")
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Merge stores of the same languages into one.

    If a speaker's name occurs in two stores, say whether it is the same person: their privacy depends on it.

    Example: sotto data merge stores/ls-100 stores/ls-360 --same-speakers --out stores/ls-460
    """
    if same_speakers and prefix:
        raise ConfigError("Give --same-speakers or --prefix, not both.")
    opened = [Store.open(path) for path in stores]
    if dry_run:
        _print_merge_plan(opened, out, as_json)
        return
    with ProgressDisplay() as progress:
        store = merge(opened, out, same_speakers=same_speakers, prefix=prefix, label=label, progress=progress)
    print_statistics([statistics_of(store.info.label, Population.of(store))], None, as_json)


def _print_merge_plan(stores: list[Store], out: Path, as_json: bool) -> None:
    utterances, size = sum(len(store) for store in stores), merged_bytes(stores)
    require_free(out, size)
    seconds = size / _COPIED_BYTES_PER_SECOND
    if as_json:
        document = {"dry_run": True, "store": str(out), "utterances": utterances, "bytes": round(size)}
        print_json(document | {"seconds": seconds})
        return
    say(
        f"Would make {out} from {len(stores)} stores: {utterances:,} utterances, {gigabytes(size)}, in about "
        f"{seconds:.0f} s."
    )
