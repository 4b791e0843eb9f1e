"""sotto config: the presets, and the configuration that each resolves to."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.arguments import AsJson
from sottovoce.cli.console import note, print_json, print_table

if TYPE_CHECKING:
    from sottovoce.config import Layer, Resolved

app = typer.Typer(no_args_is_help=True)


def _preset_names(incomplete: str) -> list[str]:
    """Return the presets that Tab completes a word to."""
    from sottovoce.config import preset_names

    return [name for name in preset_names() if name.startswith(incomplete)]


Preset = Annotated[
    str,
    typer.Argument(metavar="PRESET", help="A built-in preset or a YAML file.", autocompletion=_preset_names),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change one value, such as batching.seconds=60. Repeat for several; `sotto config show PRESET --meaning` "
        "explains all keys.",
    ),
]


def configured(preset: str, settings: Sequence[str] | None, *layers: "Layer") -> "Resolved":
    """Return the configuration of PRESET with the values of --set, and further layers on top."""
    from sottovoce.config import parse_setting, resolve

    return resolve(preset, *map(parse_setting, settings or ()), *layers)


@app.command("list")
def list_presets(as_json: AsJson = False) -> None:
    """List the built-in presets.

    Example: sotto config list
    """
    from sottovoce.config import preset_names

    rows = [[name, configured(name, None).config.about] for name in preset_names()]
    if as_json:
        print_json([{"preset": name, "about": about} for name, about in rows])
    else:
        print_table("", ["preset", "about"], rows, text_columns=2)


@app.command("show")
def show(
    preset: Preset,
    settings: Settings = None,
    meaning: Annotated[bool, typer.Option("--meaning", help="Say what each key means instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the resolved configuration of PRESET, and where each value came from.

    Where null stands for another value, that value is shown, too.

    Example: sotto config show tiny --set federated.central_steps=100
    """
    resolved = configured(preset, settings)
    meanings, effective = resolved.meanings(), resolved.config.effective()
    if as_json:
        sources = {key: source for key, _, source in resolved.rows()}
        document = {"preset": preset, "config": resolved.config.model_dump(mode="json"), "sources": sources}
        print_json(document | {"meanings": meanings, "effective": effective})
    else:
        last = "meaning" if meaning else "source"
        rows = [
            [key, _shown(value, effective.get(key)), meanings.get(key, "") if meaning else source]
            for key, value, source in resolved.rows()
        ]
        print_table("", ["key", "value", last], rows, text_columns=3)
        note(f"In federated training, users train {resolved.config.federated.local.described} in every central step.")


def _shown(value: Any, effective: Any) -> str:
    """Return a value as --set takes it; with what null means where it stands for another value."""
    meant = "" if effective is None else f" (in effect: {_typed(effective)})"
    return f"null{meant}" if value is None else _typed(value)


def _typed(value: Any) -> str:
    """Return a value as in YAML: true, [en], {mlp: 2.0}; texts and numbers as they are."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_typed(one)}' for key, one in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_typed, value))}]"
    return "null" if value is None else str(value)
