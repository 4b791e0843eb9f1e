"""A model's parameters from elsewhere: tensors by a map of names, and output rows by the text of their tokens.

    tensors:
      "encoder.layers.*.fc1.weight": "blocks.*.w1.weight"     # * stands for one part of a name, the same in both
      "encoder.layers.*.fc2.weight": {to: "blocks.*.w2.weight", transpose: true}
      "encoder.layers.*.q.weight, encoder.layers.*.k.weight, encoder.layers.*.v.weight": "blocks.*.wqkv.weight"
      "decoder.fused.weight": {to: "output.weight", part: 1/2}  # the first half of its rows
    tokens: ["<blank>", "|", "a", "b"]                        # what the rows of their output layer mean

Guarantee: a parameter either has the values of the file or those of a new model from the seed, and the outcome names
every tensor that did not fit. Rows of the output layer are matched by token, never by position, unless the file says
nothing about its tokens and has exactly as many rows.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from sottovoce.data.text import TokenSet
from sottovoce.errors import ConfigError, DataError, expectation, nearest, with_full_stop
from sottovoce.model.encoder import make_on_meta
from sottovoce.model.encoder_options import EncoderOptions
from sottovoce.model.model_file import saved_tokens
from sottovoce.model.recogniser import Recogniser

_PART = re.compile(r"([1-9]\d?)/([1-9]\d?)")


def _as_target(value: Any) -> Any:
    return {"to": value} if isinstance(value, str) else value


def _as_tokens(value: Any) -> Any:
    """Accept a list of tokens, and a mapping from tokens to rows, as many vocabularies are saved."""
    if not isinstance(value, dict):
        return value
    rows = list(value.values())
    if not all(isinstance(row, int) and 0 <= row < 1_000_000 for row in rows) or len(set(rows)) < len(rows):
        raise ValueError("expected another row for every token")
    texts = {row: str(token) for token, row in value.items()}
    return [texts.get(row, "") for row in range(max(rows, default=-1) + 1)]


def _each_once(tokens: list[str]) -> list[str]:
    if twice := [token for token, times in Counter(tokens).items() if token and times > 1]:
        raise ValueError(f"expected every token once, and {twice[0]!r} is there twice")
    return tokens


class Target(BaseModel):
    """Where a tensor goes, and how it is changed on the way: first its part is taken, then it is transposed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    to: str
    transpose: bool = False
    part: str | None = Field(None, pattern=f"^{_PART.pattern}$")  # 2/3: the second third of its rows


class NameMap(BaseModel):
    """How the tensors of a file are called here."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tensors: dict[str, Annotated[Target, BeforeValidator(_as_target)]] | None = None  # None: equal names
    tokens: Annotated[list[str], BeforeValidator(_as_tokens), AfterValidator(_each_once)] | None = None

    @classmethod
    def read(cls, tree: Mapping[str, Any], place: str) -> "NameMap":
        """Read a map from the content of its file; raise ConfigError with the key that is wrong."""
        try:
            return cls.model_validate(tree)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"] if part != "[key]")
            raise ConfigError(with_full_stop(f"{place}: {where} is not valid: {expectation(first['msg'])}")) from None


@dataclass(frozen=True)
class Misfit:
    """A parameter of the model whose tensor in the file did not fit, with the shapes of both; it is new."""

    parameter: str
    tensor: str
    given: tuple[int, ...]
    needed: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What became of the tensors of a file."""

    tensors: int  # of the model
    parameters: int  # of the model
    taken_parameters: int  # with values of the file
    missing: tuple[str, ...] = ()  # tensors of the model that no tensor of the file is for: new
    wrong_shape: tuple[Misfit, ...] = ()  # new, too; not among the missing
    left_over: tuple[str, ...] = ()  # tensors of the file that nothing was made of
    unused_patterns: tuple[str, ...] = ()  # of the map: no tensor has such a name
    new_tokens: tuple[str, ...] = ()  # whose output rows are new
    dropped_tokens: tuple[str, ...] = ()  # whose output rows were left out

    def document(self) -> dict[str, Any]:
        """Return the outcome as JSON."""
        return asdict(self)


@dataclass(frozen=True)
class _Piece:
    """A tensor of the model, and the tensors of the file that make it."""

    sources: tuple[str, ...]
    target: Target


def token_axes(options: EncoderOptions) -> dict[str, int]:
    """Return, for every tensor with a row or column per token, which axis that is."""
    few, more = (dict(make_on_meta(options, tokens).named_parameters()) for tokens in (5, 6))
    axes = {}
    for name, tensor in few.items():
        sizes = enumerate(zip(tensor.shape, more[name].shape, strict=True))
        differing = [axis for axis, (one, other) in sizes if one != other]
        if differing:
            axes[name] = differing[0]
    return axes


def token_changes(before: Sequence[str], after: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the tokens that are new, and those that are dropped."""
    return tuple(one for one in after if one not in before), tuple(one for one in before if one and one not in after)


@torch.no_grad()
def with_tokens(recogniser: Recogniser, token_set: TokenSet, seed: int) -> Recogniser:
    """Return the model for other tokens: rows of tokens that both have are kept, new ones are a new model's."""
    if token_set.tokens == recogniser.token_set.tokens:
        return recogniser
    other = Recogniser.make(recogniser.options, token_set, recogniser.flat.theta.device).initialise(seed)
    axes, tensors = token_axes(recogniser.options), dict(other.flat.tensors())
    for name, tensor in recogniser.flat.tensors().items():
        axis = axes.get(name)
        kept = (
            tensor if axis is None else _by_token(tensor, tensors[name], axis, recogniser.token_set.tokens, token_set)
        )
        tensors[name] = kept
    other.flat.fill_(tensors)
    return other


def _by_token(old: Tensor, new: Tensor, axis: int, tokens: Sequence[str], wanted: TokenSet) -> Tensor:
    """Return `new` with what `old` has for the tokens of both."""
    place = {token: number for number, token in enumerate(tokens)}
    pairs = [(number, place[token]) for number, token in enumerate(wanted.tokens) if token in place]
    to, of = (torch.tensor([pair[end] for pair in pairs], dtype=torch.int64, device=old.device) for end in (0, 1))
    return new.clone().index_copy_(axis, to, old.index_select(axis, of))


@torch.no_grad()
def import_model(
    path: Path, names: NameMap, options: EncoderOptions, token_set: TokenSet, seed: int
) -> tuple[Recogniser, Imported]:
    """Return a model with the tensors of a safetensors file, as far as they fit, and what became of them.

    Raise DataError where the file cannot be read, holds numbers that are not finite, or where no matrix of it fits.
    """
    if not path.is_file():
        raise DataError(f"There is no file {path}. Give a safetensors file.")
    recogniser = Recogniser.make(options, token_set).initialise(seed)
    try:
        with safe_open(path, "pt") as file:
            there = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 - no dict
            tokens = names.tokens or saved_tokens(file.metadata() or {})
            filling = _Filling(recogniser, path, there, tokens)
            pieces, unused = _pieces(names, there, recogniser)
            for name, piece in pieces.items():
                filling.take(name, piece, file)
    except SafetensorError as error:
        raise DataError(f"{path} is not a whole safetensors file: {error}. Save it again.") from None
    return recogniser, filling.finish(unused)


@dataclass
class _Filling:
    """The model while it is filled."""

    recogniser: Recogniser
    path: Path
    there: Mapping[str, tuple[int, ...]]
    tokens: Sequence[str] | None
    taken: dict[str, Tensor] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    wrong: list[Misfit] = field(default_factory=list)
    parameters: int = 0
    matrices: int = 0  # of which something was taken
    by_token: bool = False
    axes: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        """Find the tensors with a row for every token."""
        self.axes = token_axes(self.recogniser.options)

    def take(self, name: str, piece: _Piece, file: Any) -> None:
        """Take one tensor of the model from the file, if it fits."""
        mine, tokens = self.recogniser.flat.tensors()[name], self.tokens
        axis = None if tokens is None else self.axes.get(name)
        needed = list(mine.shape)
        if axis is not None and tokens is not None:
            needed[axis] = len(tokens)
        given = _shape([self.there[source] for source in piece.sources], piece.target)
        if given != tuple(needed):
            self.wrong.append(Misfit(name, " + ".join(piece.sources), given or (), tuple(needed)))
            return
        tensor = _changed(
            [_finite(file.get_tensor(source), source, self.path) for source in piece.sources], piece.target
        )
        taken = mine.numel()
        if axis is not None and tokens is not None:
            wanted = self.recogniser.token_set
            tensor = _by_token(tensor, mine, axis, tokens, wanted)
            taken = taken // mine.shape[axis] * len(set(tokens) & set(wanted.tokens))
            self.by_token = True
        self.parameters += taken
        self.matrices += taken > 0 and mine.dim() > 1
        self.taken[name] = tensor
        self.used.update(piece.sources)

    def finish(self, unused: Sequence[str]) -> Imported:
        """Fill the model and return what became of everything; raise DataError where no matrix fits."""
        flat = self.recogniser.flat
        if not self.matrices:  # scales and biases alone, which fit models of most shapes, are no model
            raise DataError(
                f"No matrix in {self.path} fits the model: {self._why()} Give a map of names with --names, and the "
                "preset with the model's shape."
            )
        flat.fill_({**flat.tensors(), **self.taken})
        unfit = {misfit.parameter for misfit in self.wrong}
        tried = {source for misfit in self.wrong for source in misfit.tensor.split(" + ")}
        before = self.tokens if self.by_token and self.tokens is not None else self.recogniser.token_set.tokens
        new, dropped = token_changes(before, self.recogniser.token_set.tokens)
        return Imported(
            tensors=len(flat.tensors()),
            parameters=sum(tensor.numel() for tensor in flat.tensors().values()),
            taken_parameters=self.parameters,
            missing=tuple(name for name in flat.tensors() if name not in self.taken and name not in unfit),
            wrong_shape=tuple(self.wrong),
            left_over=tuple(name for name in self.there if name not in self.used | tried),
            unused_patterns=tuple(unused),
            new_tokens=new,
            dropped_tokens=dropped,
        )

    def _why(self) -> str:
        """Return what is wrong with a file of which no matrix fits."""
        if (misfit := next((one for one in self.wrong if len(one.needed) > 1), None)) is not None:
            given, needed = (" x ".join(map(str, sizes)) for sizes in (misfit.given, misfit.needed))
            return f"{misfit.parameter} is {needed}, and {misfit.tensor} is {given or 'of no common shape'}."
        ours = [name for name, tensor in self.recogniser.flat.tensors().items() if tensor.dim() > 1]
        theirs = ", ".join(list(self.there)[:3])
        return f"the file holds {theirs or 'nothing'}, ..., and the model needs {', '.join(ours[:3])}, ..."


def _pieces(
    names: NameMap, there: Mapping[str, tuple[int, ...]], recogniser: Recogniser
) -> tuple[dict[str, _Piece], list[str]]:
    """Return what every tensor of the model is made of, and the patterns that no tensor has."""
    known = recogniser.flat.tensors()
    if names.tensors is None:
        return {name: _Piece((name,), Target(to=name)) for name in there if name in known}, []
    pieces: dict[str, _Piece] = {}
    unused = []
    for pattern, target in names.tensors.items():
        found = list(_matches(pattern, target.to, there))
        if not found:
            unused.append(pattern)
        for name, sources in found:
            if name not in known:
                raise ConfigError(f"The model has no tensor {name!r}, which {pattern!r} goes to.{nearest(name, known)}")
            if name in pieces:
                raise ConfigError(f"Two entries of the map go to {name!r}. Join tensors with commas in one entry.")
            pieces[name] = _Piece(sources, target)
    return pieces, unused


def _matches(pattern: str, to: str, there: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield names of the model with the tensors that make them; a star is one part of a name."""
    first, *others = [part.strip() for part in pattern.split(",")]
    expression = re.compile(r"([^.]+)".join(map(re.escape, first.split("*"))))
    for name in there:
        if (match := expression.fullmatch(name)) is None:
            continue
        sources = (name, *(_filled(other, match.groups()) for other in others))
        if all(source in there for source in sources):
            yield _filled(to, match.groups()), sources


def _filled(pattern: str, parts: Sequence[str]) -> str:
    """Return a pattern with its stars replaced, from left to right."""
    left = list(parts)
    return re.sub(r"\*", lambda _: left.pop(0) if left else "*", pattern)


def _shape(shapes: Sequence[tuple[int, ...]], target: Target) -> tuple[int, ...] | None:
    """Return the shape that tensors of these shapes have together; None where they cannot be joined."""
    if any(shape[1:] != shapes[0][1:] or not shape for shape in shapes):
        return None
    rows = sum(shape[0] for shape in shapes)
    if target.part is not None:
        _, of = map(int, target.part.split("/"))
        if rows % of:
            return None
        rows //= of
    shape = (rows, *shapes[0][1:])
    return shape[::-1] if target.transpose else shape


def _changed(tensors: Sequence[Tensor], target: Target) -> Tensor:
    joined = torch.cat(list(tensors)) if len(tensors) > 1 else tensors[0]
    if target.part is not None:
        part, of = map(int, target.part.split("/"))
        joined = joined.chunk(of)[part - 1]
    return joined.permute(*range(joined.dim() - 1, -1, -1)) if target.transpose else joined


def _finite(tensor: Tensor, name: str, path: Path) -> Tensor:
    """Return a tensor in float32; raise DataError where it holds something else than finite numbers."""
    if not tensor.is_floating_point() or not bool(torch.isfinite(tensor.float()).all()):
        raise DataError(f"{name} in {path} holds values that are not finite numbers. Leave it out of the map.")
    return tensor.float()
