"""The configuration: one frozen, validated tree, resolved from layers, each value with the source it came from.

A layer is part of the tree. Later layers win: the defaults, then the preset that a preset `extends`, then the preset,
then the layers given to `resolve`, from left to right. A preset is a YAML file with a layer. A key that does not exist
is an error that suggests the nearest key.

    resolve("tiny", {"seed": 7, "federated": {"optimizer": Lamb(xi=0.01)}}, parse_setting("batching.seconds=60"))
"""

import hashlib
import json
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from sottovoce.central.central_options import Central
from sottovoce.data.batching import Batching
from sottovoce.data.corpora import AnyCorpus
from sottovoce.data.corpora.synthetic import Synthetic
from sottovoce.data.joining import Joining
from sottovoce.data.selection import Selection
from sottovoce.data.splits import as_fraction
from sottovoce.errors import ConfigError, expectation, nearest, with_full_stop
from sottovoce.features.bandwidth import FULL_HZ, LEAST_HZ
from sottovoce.features.specaugment import SpecAugment
from sottovoce.federated.federated_options import Federated
from sottovoce.limits import faulty_numbers
from sottovoce.model.hardware import Hardware
from sottovoce.model.model_options import AnyEncoder, TransformerOptions
from sottovoce.open_union import OpenUnion
from sottovoce.privacy.privacy_options import Participation, Privacy, RandomSource
from sottovoce.reading import LARGEST_YAML, BadDocument, parse_yaml, read_bounded

# Part of a configuration: a section is a dictionary or an object of options; everything else is a value.
Tree = dict[str, Any]

DEFAULT = "default"
_LONGEST_SHOWN = 200
_TAGS = ("kind", "name")  # the fields that tell the members of a union of sections apart


@dataclass(frozen=True)
class Layer:
    """Part of a configuration, and the source that `sotto config show` names for its values."""

    tree: Tree
    source: str = "settings"


def _fraction(value: Any) -> str:
    """Accept 0.1, "0.1" and "1/10"; return a text, because no float is exactly 0.1."""
    as_fraction(value)
    return str(value)


class Users(BaseModel):
    """How speakers become users, and which speakers are held out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed_fraction: Annotated[str, BeforeValidator(_fraction)] | None = Field(
        None, description="the share of speakers for the seed model, such as 0.1 or 1/20"
    )
    dev_speakers: int | None = Field(
        None, ge=1, description="the number of dev speakers where a run makes its own corpus"
    )
    test_speakers: int | None = Field(
        None, ge=1, description="the number of test speakers where a run makes its own corpus"
    )
    iid: bool = Field(False, description="the IID control: every utterance goes to a random user")


class Features(BaseModel):
    """How features are made of audio, where a preset prepares a corpus; a store that exists stays as it is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bandwidth_hz: int | None = Field(
        None, ge=LEAST_HZ, lt=FULL_HZ, description="limit the audio to this bandwidth, such as 4000; null: as it is"
    )


class Data(BaseModel):
    """The speech that a run is trained and evaluated on, and the model it starts from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    train: Selection | None = Field(None, description="the training set")
    dev: Selection | None = Field(None, description="the set that chooses the best checkpoint")
    test: Selection | None = Field(None, description="the set that is evaluated once, at the end")
    seed_model: Path | None = Field(None, description="the model that training starts from; null: random parameters")


class Config(BaseModel):
    """Everything that determines a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    about: str = Field("", description="the purpose of the preset, in one line")
    seed: int = Field(0, ge=0, description="the run seed; a corpus has a seed of its own")
    corpus: AnyCorpus = Field(default_factory=Synthetic, description="where the speech comes from")
    joining: Joining | None = Field(None, description="join utterances of a speaker into longer ones")
    features: Features = Field(default_factory=Features)
    users: Users = Field(default_factory=Users)
    batching: Batching = Field(default_factory=Batching)
    data: Data = Field(default_factory=Data)
    model: AnyEncoder = Field(default_factory=TransformerOptions, description="the encoder")
    specaugment: SpecAugment | None = Field(default_factory=SpecAugment, description="null switches it off")
    central: Central = Field(default_factory=Central)
    participation: Participation = Field(default_factory=Participation)
    privacy: Privacy = Field(default_factory=Privacy)
    randomness: RandomSource = Field(default_factory=RandomSource)
    federated: Federated = Field(default_factory=Federated)
    hardware: Hardware = Field(default_factory=Hardware)

    @property
    def diagnostics(self) -> bool:
        """Whether a federated run logs and shows figures that are computed from private data."""
        return self.privacy.diagnosed(self.randomness.source)

    def effective(self) -> Tree:
        """Return what values that are null mean in this configuration, by key, where null is neither off nor absent."""
        local, meant = self.federated.local, dict[str, Any]()
        if local.steps is None and local.epochs is None:
            meant["federated.local.epochs"] = local.passes
        if self.federated.adapters.rank and self.federated.adapters.alpha is None:
            meant["federated.adapters.alpha"] = self.federated.adapters.rank
        if self.privacy.diagnostics is None:
            meant["privacy.diagnostics"] = self.diagnostics
        if self.participation.weight_total is None and self.participation.population is not None:
            meant["participation.weight_total"] = self.participation.population
        return meant

    @property
    def public_hash(self) -> str:
        """The SHA-256 of the public part, which a ledger holds."""
        return public_hash(self.model_dump(mode="json"))


# By section, the keys that are public; None: the whole value.
PUBLIC_SETTINGS: Mapping[str, tuple[str, ...] | None] = {
    "seed": None,  # of initialisation and local work; cohorts and noise of a published run never come from it
    "users": ("iid",),
    "batching": ("seconds", "max_seconds_per_user", "max_padding"),
    "model": None,  # an encoder of your own has options of its own
    "specaugment": None,
    "participation": (*("population", "cohort_size", "sampling", "weight", "weight_bound", "weight_total", "q_min"),),
    "privacy": (
        *("clip_norm", "clipping", "adaptive", "rule", "layer_weights", "sigma_dp", "noise", "target_delta", "budget"),
        *("noise_analysis", "accept", "diagnostics"),
    ),
    "randomness": ("source",),
    "federated": (
        *("local", "optimizer", "schedule", "partition", "trainable", "adapters"),
        *("central_steps", "evaluate_every", "checkpoint_every"),
    ),
}


def public_part(config: Tree) -> Tree:
    """Return the part of a configuration that may be published; keys that it does not have are left out."""
    given = {section: config[section] for section in PUBLIC_SETTINGS if section in config}
    return {section: _chosen(value, PUBLIC_SETTINGS[section]) for section, value in given.items()}


def _chosen(section: Any, keys: tuple[str, ...] | None) -> Any:
    return section if keys is None else {key: section[key] for key in keys if key in section}


def public_hash(config: Tree) -> str:
    """Return the SHA-256 of the public part of a configuration."""
    return hashlib.sha256(json.dumps(public_part(config), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Resolved:
    """A configuration and, for every value in it, the layer it came from."""

    name: str
    config: Config
    sources: Mapping[str, str]
    tree: Tree  # the layers together, before the defaults are filled in

    def over(self, *layers: Tree | Layer) -> "Resolved":
        """Return this configuration with further layers on top, validated again."""
        tree, sources = self.tree, dict(self.sources)
        for layer in (layer if isinstance(layer, Layer) else Layer(layer) for layer in layers):
            tree = _tagged(_merged(tree, layer.tree), Config)
            kept = {key for key, _ in _leaves(tree)}
            sources |= dict.fromkeys((key for key, _ in _leaves(layer.tree)), layer.source)
            sources = {key: source for key, source in sources.items() if key in kept}  # of replaced sections: none
        return Resolved(self.name, _validated(tree, sources), sources, tree)

    def rows(self) -> Iterator[tuple[str, Any, str]]:
        """Yield key, value and source of every value."""
        for key, value in _leaves(self.config.model_dump(mode="json")):
            yield key, value, self.sources.get(key, DEFAULT)

    def meanings(self) -> dict[str, str]:
        """Return what the keys mean, by key; a few keys need no description and are not among them."""
        return dict(_meanings(self.config))


def preset_names() -> list[str]:
    """Return the names of the built-in presets."""
    folder = resources.files("sottovoce") / "presets"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def resolve(preset: str, *layers: Tree | Layer) -> Resolved:
    """Return the configuration of a built-in preset, or of a YAML file, with the layers on top.

    An object of options in a layer, such as an optimizer, is kept as it is unless a later layer changes one of its
    values.
    """
    return Resolved(preset, Config(), {}, {}).over(*_preset_layers(preset, ()), *layers)


def parse_setting(text: str) -> Layer:
    """Read a setting such as "batching.seconds=60" as a layer; the value is YAML."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"Expected --set key=value, not {text!r}.")
    try:
        tree: Any = parse_yaml(value)
    except BadDocument:
        raise ConfigError(f"The value in --set {text[:200]} is not YAML. Quote it.") from None
    for part in reversed(key.split(".")):
        tree = {part: tree}
    return Layer(tree, f"--set {key}")


def _preset_layers(name: str, seen: tuple[str, ...]) -> list[Layer]:
    """Return the layers of a preset; those of the preset it extends come first."""
    if name in seen:
        raise ConfigError(f"Presets extend each other in a circle: {' -> '.join([*seen, name])}. Remove one `extends`.")
    tree = _load(name)
    base = tree.pop("extends", None)
    below = _preset_layers(str(base), (*seen, name)) if base else []
    return [*below, Layer(tree, f"preset {name}")]


def _load(name: str) -> Tree:
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not path.is_file():
            raise ConfigError(f"There is no preset file {name}. Check the path.")
        text = read_bounded(path, LARGEST_YAML).decode(errors="replace")
    else:
        known = preset_names()
        if name not in known:
            raise ConfigError(f"There is no preset {name!r}.{nearest(name, known)} Presets: {', '.join(known)}.")
        text = (resources.files("sottovoce") / "presets" / f"{name}.yaml").read_text(encoding="utf-8")
    return parse_tree(text, name)


def parse_tree(text: str, name: str) -> Tree:
    """Read YAML that holds keys and values; raise ConfigError where it does not."""
    try:
        tree = parse_yaml(text)
    except BadDocument as error:
        raise ConfigError(f"{name} is not YAML: {error}.") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{name} should hold keys and values.")
    return tree


def _merged(below: Tree, above: Tree) -> Tree:
    """Return `below` with `above` on top; a section of another kind replaces the whole section."""
    return {**below, **{key: _over(below.get(key), value) for key, value in above.items()}}


def _over(old: Any, new: Any) -> Any:
    if isinstance(old, BaseModel) and isinstance(new, dict):
        old = old.model_dump()
    both_sections = isinstance(old, dict) and isinstance(new, dict)
    return _merged(old, new) if both_sections and _same_kind(old, new) else new


def _same_kind(old: Tree, new: Tree) -> bool:
    return all(new.get(tag, old.get(tag)) == old.get(tag) for tag in _TAGS)


def _tagged(tree: Tree, model: type[BaseModel]) -> Tree:
    """Return the tree with the default's tag in every section of a union that does not say which member it is."""
    tagged = dict(tree)
    for name, field in model.model_fields.items():
        section, default = tree.get(name), field.get_default(call_default_factory=True)
        if isinstance(section, dict) and isinstance(default, BaseModel):
            tags = {tag: getattr(default, tag) for tag in _TAGS if tag in type(default).model_fields}
            tagged[name] = _tagged(tags | section, type(default))
    return tagged


def _leaves(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        section = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
        if isinstance(section, dict) and section:
            yield from _leaves(section, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", section


def _meanings(section: BaseModel, prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, field in type(section).model_fields.items():
        if field.description is not None:
            yield f"{prefix}{name}", field.description
        for union in field.metadata:
            if isinstance(union, OpenUnion):
                yield f"{prefix}{name}.{union.key}", union.choices
        if isinstance(inner := getattr(section, name), BaseModel):
            yield from _meanings(inner, f"{prefix}{name}.")


def _validated(tree: Tree, sources: Mapping[str, str]) -> Config:
    for key, value in _leaves(tree):
        for number, fault in faulty_numbers(value):
            came_from = f" (from {sources[key]})" if key in sources else ""
            raise ConfigError(f"{key}={_shown(number)}{came_from} is not valid: expected {fault}.")
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(_explained(error, tree, sources)) from None


def _explained(error: ValidationError, tree: Tree, sources: Mapping[str, str]) -> str:
    """Return the first validation error as one line."""
    first = error.errors()[0]
    key = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        return f"There is no key {key!r}.{_nearest_key(key, tree)} See `sotto config show PRESET`."
    came_from = f" (from {sources[key]})" if key in sources else ""
    if first["type"] == "missing":
        return f"{key} is required. Give it with --set {key}=..."
    value = "" if isinstance(first["input"], dict | BaseModel) else f"={_shown(first['input'])}"
    return with_full_stop(f"{key}{value}{came_from} is not valid: {expectation(first['msg'])}")


def _shown(value: Any) -> str:
    """Return a value for a message, in one line that is not too long."""
    text = " ".join(reprlib.repr(value).split()) if not isinstance(value, str) else repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _nearest_key(key: str, tree: Tree) -> str:
    """Return a hint at the key that was meant: a misspelt section is compared with sections, a key with keys."""
    known = list(_known_keys(Config, tree))
    return nearest(key, known if "." in key else dict.fromkeys(name.partition(".")[0] for name in known))


def _known_keys(model: type[BaseModel], given: Any, prefix: str = "") -> Iterator[str]:
    """Yield every key of a section; of a section with several kinds, only the keys of the given kind."""
    for name, field in model.model_fields.items():
        inner = given.get(name) if isinstance(given, dict) else None
        sections = _sections([field.annotation, *field.metadata], inner)
        for section in sections:
            yield from _known_keys(section, inner, f"{prefix}{name}.")
        if not sections:
            yield f"{prefix}{name}"


def _sections(parts: Iterable[Any], given: Any) -> list[type[BaseModel]]:
    """Return the models that `given` may be validated by; `parts` are an annotation and its metadata."""
    parts = list(parts)
    unions = [part for part in parts if isinstance(part, OpenUnion)]
    if unions:
        return [member for union in unions if (member := union.member(given)) is not None]
    models = [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
    return models + [section for part in parts for section in _sections(get_args(part), given)]
