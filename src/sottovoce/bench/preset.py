"""A benchmark: the rows of one table or figure of the paper, in two sizes, as data.

    bench/presets/NAME.yaml              about, source, finding, sizes: {paper, mini}
    bench/presets/shared/NAME.yaml       corpora, parts, models, recipes that several benchmarks `extend`

`rows` are runs to train, `claims` are accounting only: an epsilon at another cohort size and population than was
trained. A row may name recipes, parts of rows that stand under `recipes`, over which it is laid. Numbers that the paper
prints stand under `paper`, in percent as printed, and nowhere else; each is named by dev, test or the part it is of.
Findings of the paper are `effects`, contrasts of rows; `figures` are of rows that form a series (effects.py).
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from sottovoce.bench.effects import Effect, PriceList, Series, require_effects, require_prices, require_series
from sottovoce.config import Layer, parse_setting, parse_tree
from sottovoce.data.corpora import AnyCorpus
from sottovoce.data.joining import Joining
from sottovoce.data.preparation import Request
from sottovoce.data.spelling import REJECT, UnknownLetters
from sottovoce.errors import ConfigError, expectation, nearest, with_full_stop
from sottovoce.reading import LARGEST_YAML, read_bounded

SizeName = Literal["paper", "mini"]
CORPORA = Path("corpora")  # where presets look for real corpora
_STRICT = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


def _parsed(setting: Any) -> Any:
    if not isinstance(setting, str):
        return setting  # a layer; pydantic refuses everything else
    try:
        return parse_setting(setting)
    except ConfigError as error:
        raise ValueError(str(error).rstrip(".")) from None


Setting = Annotated[Layer, BeforeValidator(_parsed)]


class Part(BaseModel):
    """Some speakers of a corpus."""

    model_config = _STRICT

    corpus: str = Field(description="a corpus of this benchmark")
    where: dict[str, str] = Field(default_factory=dict, description="columns of the index and their values")
    speakers: str = Field(
        ":", pattern=r"^(\d+(\.\d+)?%?)?:(\d+(\.\d+)?%?)?$", description="a slice of them, shuffled: 24: or :10%"
    )


class Row(BaseModel):
    """One run to train, or the run of another row or model (`is`), and the paper's numbers for it."""

    model_config = _STRICT

    name: str
    kind: Literal["central", "federated"] = "federated"
    same: str | None = Field(None, alias="is", description="the row or model whose run this row shows, unchanged")
    seed_model: str | None = Field(None, description="the row or model it starts from")
    train: str | None = Field(None, description="the part it is trained on; null: the size's")
    dev: str | None = None
    test: str | None = None
    also: tuple[str, ...] = Field((), description="further parts to evaluate on at the end")
    settings: tuple[Setting, ...] = Field((), alias="set", description="key=value, as after --set")
    unstated: tuple[str, ...] = Field((), description="keys whose values the paper does not print")
    like: str | None = Field(None, description="in mini: the paper's row that it stands for; BENCH: ROW of another")
    paper: dict[str, float] = Field(default_factory=dict, description="the paper's numbers, WER in percent")
    line: int | None = Field(None, description="where, in the paper's source")
    note: str = ""


class RowClaim(BaseModel):
    """Accounting only: a row's noise at a cohort size and population that nobody trained."""

    model_config = _STRICT

    row: str
    cohort_size: float = Field(gt=0)
    population: int = Field(ge=1)
    central_steps: int | None = Field(None, ge=1, description="null: as many as the row's")


class Preparation(BaseModel):
    """How a corpus is prepared, where that is not the usual way."""

    model_config = _STRICT

    joining: Joining | None = Field(None, description="join utterances of a speaker into longer ones")
    unknown_letters: UnknownLetters = Field(REJECT, description="keep: no utterance is rejected for its characters")
    bandwidth_hz: int | None = Field(None, description="limit the audio to this bandwidth; null: as it is")


class Size(BaseModel):
    """The rows of a benchmark in one size, and their common settings and data."""

    model_config = _STRICT

    extends: tuple[str, ...] = Field((), description="shared files that are laid below")
    notes: tuple[str, ...] = Field(
        (), alias="note", description="remarks for readers of the results, of shared files first"
    )
    preset: str = Field(min_length=1, description="the configuration that every row starts from")
    settings: tuple[Setting, ...] = Field((), alias="set")
    unstated: tuple[str, ...] = ()
    corpora: dict[str, AnyCorpus] = Field(default_factory=dict)
    preparation: dict[str, Preparation] = Field(default_factory=dict, description="by corpus; others as usual")
    parts: dict[str, Part] = Field(default_factory=dict)
    models: dict[str, Row] = Field(default_factory=dict, description="seed models, by name")
    train: str | None = None
    dev: str | None = None
    test: str | None = None
    rows: tuple[Row, ...] = ()
    claims: tuple[RowClaim, ...] = ()
    effects: tuple[Effect, ...] = Field((), description="the findings as contrasts of rows; the main one first")
    figures: tuple[Series, ...] = Field((), description="figures of rows that form a series")
    prices: PriceList | None = Field(None, description="what rows' WERs would cost by one recipe")
    paper_claims: str | None = Field(None, description="the table of the paper whose epsilons belong here")

    @model_validator(mode="before")
    @classmethod
    def _rows_over_recipes(cls, tree: dict[str, Any]) -> dict[str, Any]:
        """Lay rows and models over the recipes they name."""
        recipes, rows, models = tree.get("recipes", {}), tree.get("rows", []), tree.get("models", {})
        if not isinstance(recipes, dict):
            raise ValueError("expected recipes by name")  # noqa: TRY004 - pydantic shows a ValueError
        laid = {key: value for key, value in tree.items() if key != "recipes"}
        if not isinstance(rows, list) or not isinstance(models, dict):
            raise ValueError("expected rows as a list and models by name")  # noqa: TRY004 - pydantic shows a ValueError
        if rows:
            laid["rows"] = [_over_recipes(row, recipes) for row in rows]
        if models:
            laid["models"] = {name: _over_recipes(model, recipes) for name, model in models.items()}
        return laid

    @model_validator(mode="after")
    def _names_are_known(self) -> "Size":
        names = [row.name for row in self.rows]
        twice = {name for name in names if names.count(name) > 1 or name in self.models}
        if twice:
            raise ValueError(f"two rows or models are named {min(twice)!r}")
        known = {**{row.name: row for row in self.rows}, **self.models}
        if misnamed := [name for name, model in self.models.items() if model.name != name]:
            raise ValueError(f"the model {misnamed[0]!r} has another name inside")
        for row in known.values():
            for wanted in (row.same, row.seed_model):
                if wanted is not None and wanted not in known:
                    raise ValueError(f"row {row.name!r} needs the model {wanted!r}, which does not exist")
            _require_an_end(row, known)
            if row.same is not None and (known[row.same].same or row.seed_model or row.settings):
                raise ValueError(
                    f"row {row.name!r} is {row.same!r} as it is: that must be a run of its own, and nothing is set"
                )
            for needed in (*self.part_of(row).values(), *row.also):
                if needed is not None and needed not in self.parts:
                    raise ValueError(f"row {row.name!r} needs the part {needed!r}, which does not exist")
        return self

    @model_validator(mode="after")
    def _corpora_and_claims_are_known(self) -> "Size":
        for needed in [*(part.corpus for part in self.parts.values()), *self.preparation]:
            if needed not in self.corpora:
                raise ValueError(f"a part or a preparation needs the corpus {needed!r}, which does not exist")
        rows = {row.name: row for row in self.rows}
        for claim in self.claims:
            if claim.row not in rows:
                raise ValueError(f"a claim is about the row {claim.row!r}, which does not exist")
            if rows[claim.row].kind == "central" or rows[claim.row].same:
                raise ValueError(f"a claim is about the row {claim.row!r}, which is not federated")
        return self

    @model_validator(mode="after")
    def _effects_and_figures_are_of_rows(self) -> "Size":
        sets = {row.name: row.also for row in self.rows}
        require_effects(self.effects, sets, {row.name: self._shown_run(row) for row in self.rows})
        require_series(self.figures, sets)
        if self.prices is not None:
            require_prices(self.prices, sets)
        return self

    def _shown_run(self, row: Row) -> str:
        """Return what tells the runs of rows apart, and on what they are shown."""
        origin = self.origin(row)
        run = (origin.kind, origin.seed_model, origin.train, [layer.tree for layer in origin.settings])
        return repr((run, row.dev, row.test))

    @property
    def note(self) -> str:
        """All notes in one paragraph."""
        return " ".join(self.notes)

    def request(self, corpus: str) -> Request:
        """Return what a corpus is prepared from, and how."""
        how = self.preparation.get(corpus, Preparation())
        return Request(self.corpora[corpus], how.joining, how.unknown_letters, how.bandwidth_hz)

    def in_folder(self, folder: Path) -> "Size":
        """Return this size with its real corpora below another folder than `corpora`."""
        if folder == CORPORA:
            return self
        moved = {name: _in_folder(corpus, folder) for name, corpus in self.corpora.items()}
        return self.model_copy(update={"corpora": moved})

    def part_of(self, row: Row) -> dict[str, str | None]:
        """Return the parts that a row is trained and evaluated on; by default those of the size."""
        return {"train": row.train or self.train, "dev": row.dev or self.dev, "test": row.test or self.test}

    def row(self, name: str) -> Row:
        """Return a row, or a model, by its name."""
        row = next((row for row in self.rows if row.name == name), None) or self.models.get(name)
        if row is None:
            known = [row.name for row in self.rows]
            raise ConfigError(f"There is no row {name!r}.{nearest(name, known)} Rows: {', '.join(known)}.")
        return row

    def origin(self, row: Row) -> Row:
        """Return the row whose run a row shows: itself, or the one that it `is`."""
        return row if row.same is None else self.row(row.same)

    def unstated_in(self, row: Row) -> set[str]:
        """Return the keys of a row that the paper does not print."""
        return {*self.unstated, *row.unstated}


class Bench(BaseModel):
    """One result of the paper."""

    model_config = _STRICT

    about: str
    source: str = Field(description="the table or figure, with its line in the paper's source")
    finding: str = Field(description="the paper's finding, in a sentence")
    in_paper: bool = Field(True, description="whether the finding is the paper's; false: it is what we look for")
    sizes: dict[SizeName, Size]

    @property
    def stated_finding(self) -> str:
        """The finding, and whose it is."""
        return f"{'The paper finds' if self.in_paper else 'Not in the paper; to be shown'}: {self.finding}"

    def size(self, name: str) -> Size:
        """Return one size."""
        for known, size in self.sizes.items():
            if known == name:
                return size
        raise ConfigError(f"There is no size {name!r} here. Sizes: {', '.join(self.sizes)}.")

    def paper_values(self, row: Row) -> Mapping[str, float]:
        """Return the paper's numbers for a row, or for the row it stands for; that of its dev part is named `dev`."""
        bench, shown = self._printed(row)
        parts = bench.sizes["paper"].part_of(shown) if "paper" in bench.sizes else {}
        roles = {part: role for role, part in parts.items() if role != "train"}
        return {roles.get(key, key): value for key, value in shown.paper.items()}

    def paper_row(self, row: Row) -> Row:
        """Return the row of the paper's size that a row stands for, or the row itself."""
        return self._printed(row)[1]

    def _printed(self, row: Row) -> "tuple[Bench, Row]":
        if row.like is None:
            return self, row
        other, colon, name = row.like.partition(": ")
        bench = load_bench(other) if colon else self
        if "paper" not in bench.sizes:
            raise ConfigError(f"The row {row.name!r} is like {row.like!r}, which has no size `paper`.")
        return bench, bench.size("paper").row(name if colon else row.like)


def _in_folder(corpus: AnyCorpus, folder: Path) -> AnyCorpus:
    """Return a corpus with paths below `corpora` moved below a folder."""
    paths = {name: path for name in type(corpus).model_fields if isinstance(path := getattr(corpus, name), Path)}
    below = {name: path.relative_to(CORPORA) for name, path in paths.items() if path.is_relative_to(CORPORA)}
    return corpus.model_copy(update={name: folder / path for name, path in below.items()})


def bench_names() -> list[str]:
    """Return the names of all benchmarks."""
    folder = resources.files("sottovoce") / "bench" / "presets"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


@cache
def load_bench(name: str) -> Bench:
    """Return a benchmark by its name, or from a YAML file."""
    known = bench_names()
    if name.endswith((".yaml", ".yml")):
        tree = parse_tree(_file_text(Path(name)), name)
    elif name in known:
        tree = parse_tree(_text(f"{name}.yaml"), name)
    else:
        raise ConfigError(f"There is no benchmark {name!r}.{nearest(name, known)} Benchmarks: {', '.join(known)}.")
    sizes = tree.get("sizes")
    if not isinstance(sizes, dict) or not all(isinstance(content, dict) for content in sizes.values()):
        raise ConfigError(f"The benchmark {name} has no `sizes` with rows in them.")
    tree["sizes"] = {size: _over_shared(content) for size, content in sizes.items()}
    try:
        return Bench.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        message = f"The benchmark {name} is not valid: {where}: {expectation(first['msg'])}"
        raise ConfigError(with_full_stop(message)) from None


def is_bench(name: str) -> bool:
    """Return whether a name, or a YAML file, is that of a benchmark and not of a preset for one run."""
    if name.endswith((".yaml", ".yml")) and Path(name).is_file():
        return "sizes" in parse_tree(_file_text(Path(name)), name)
    return name in bench_names()


def all_benches() -> Iterator[tuple[str, Bench]]:
    """Yield every benchmark with its name."""
    for name in bench_names():
        yield name, load_bench(name)


def _require_an_end(row: Row, known: Mapping[str, Row]) -> None:
    """Raise where a row needs itself, perhaps by way of others."""
    seen: list[str] = []
    while True:
        if row.name in seen:
            raise ValueError(f"row {row.name!r} needs itself: {' -> '.join([*seen, row.name])}")
        seen.append(row.name)
        needed = row.same or row.seed_model
        if needed is None or needed not in known:
            return
        row = known[needed]


def _over_shared(tree: dict[str, Any]) -> dict[str, Any]:
    """Lay a size over the shared files it extends; their notes come before its own."""
    named = tree.get("extends", [])
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise ConfigError(f"Expected `extends` to be a list of shared files, such as [mini], not {named!r}.")
    shared = [parse_tree(_text(f"shared/{name}.yaml"), name) for name in named]
    layers = [*map(_over_shared, shared), tree]
    if not isinstance(tree.get("note", ""), str):
        raise ConfigError(f"Expected `note` to be a text, not {tree['note']!r}.")
    notes = [*(note for layer in layers[:-1] for note in layer["note"]), " ".join(tree.get("note", "").split())]
    return {**_laid(layers), "note": [note for note in dict.fromkeys(notes) if note]}


def _over_recipes(row: Any, recipes: Mapping[str, Any], above: tuple[str, ...] = ()) -> Any:
    """Lay a row, or a recipe, over the recipes it names."""
    if not isinstance(row, dict):
        return row  # its validation explains the error
    named = row.get("recipe", [])
    layers = []
    for name in named if isinstance(named, list) else [named]:
        if not isinstance(name, str) or name in above or not isinstance(recipes.get(name), dict):
            why = "needs itself" if name in above else f"does not exist.{nearest(str(name), recipes)}".rstrip(".")
            raise ValueError(f"the recipe {name!r} {why}")
        layers.append(_over_recipes(recipes[name], recipes, (*above, name)))
    return _laid([*layers, {key: value for key, value in row.items() if key != "recipe"}])


def _laid(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Lay later layers over earlier ones: mappings are merged, lists of settings follow one another."""
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            below = result.get(key)
            if isinstance(value, dict) and isinstance(below, dict):
                result[key] = {**below, **value}
            elif key in ("set", "unstated") and isinstance(value, list) and isinstance(below, list):
                result[key] = [*below, *value]
            else:
                result[key] = value
    return result


def _text(path: str) -> str:
    file = resources.files("sottovoce") / "bench" / "presets" / path
    if not file.is_file():
        raise ConfigError(f"There is no {path} among the benchmarks' files. Check `extends`.")
    return file.read_text(encoding="utf-8")


def _file_text(path: Path) -> str:
    if not path.is_file():
        raise ConfigError(f"There is no benchmark file {path}. Check the path.")
    return read_bounded(path, LARGEST_YAML).decode(errors="replace")
