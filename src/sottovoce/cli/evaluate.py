"""sotto eval: error rates of models on speech, with intervals, by group, and utterance by utterance."""

from dataclasses import asdict
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.arguments import ALL_CORES, AsJson, Workers
from sottovoce.cli.console import ProgressDisplay, counted, note, print_json, print_table, say
from sottovoce.cli.decoding import takes_decoding
from sottovoce.errors import ConfigError
from sottovoce.evaluation.decoding import GREEDY, Decoding

if TYPE_CHECKING:
    from sottovoce.evaluation.breakdown import Interval
    from sottovoce.evaluation.scores import Scores
    from sottovoce.evaluation.significance import Difference
    from sottovoce.runs.models_on_speech import ModelOnSpeech, SpeechPart

_NAMED_SPEAKERS = 3  # in a warning


@takes_decoding
def evaluate(
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="CHECKPOINT... STORE[@SPEAKERS]",
            help="Models: a run (its best model), RUN/last, a checkpoint or a model.safetensors. Then the speech.",
        ),
    ],
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on", metavar="STORE[@SPEAKERS]", help="The speech, instead of the last argument. Repeat for several."
        ),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            metavar="COLUMN[:EDGE,...]",
            help="Groups by this column of the index; many numbers in ranges. Repeat for several. Default: columns "
            "such as sex and age.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write every hypothesis with its errors: a .tsv or .jsonl."),
    ] = None,
    batch_seconds: Annotated[float, typer.Option(min=1, max=100_000, help="Audio in one batch.")] = 120.0,
    workers: Workers = ALL_CORES,
    as_json: AsJson = False,
    *,
    decoding: Decoding,
) -> None:
    """Print loss, WER and CER of models on speech, with intervals, by speaker and by group. Every utterance counts.

    With several checkpoints, the others are compared with the first one on the same speakers. --on gives several
    stores.

    Example: sotto eval runs/digits stores/digits@splits/digits/heldout.txt

    Example: sotto eval runs/a runs/b --on stores/an4 --on stores/ls --out hypotheses.tsv
    """
    from sottovoce.data.selection import Selection
    from sottovoce.evaluation.bandwidth_notes import population_note
    from sottovoce.evaluation.hypotheses import require_hypotheses_file, write_hypotheses
    from sottovoce.runs.models_on_speech import evaluate_models, open_parts

    models, speech = (places, on) if on else (places[:-1], places[-1:])
    if not models:
        raise ConfigError("There is no speech to evaluate on. Name a store after the checkpoint.")
    if out is not None:
        require_hypotheses_file(out)
    parts = open_parts([Selection.parse(text) for text in speech], by)
    for model, part in product(models, parts):
        if line := population_note(Path(model), part.population):
            note(line)
    results = evaluate_models(
        [Path(model) for model in models],
        parts,
        batch_seconds=batch_seconds,
        decoding=decoding,
        workers=workers,
        display=ProgressDisplay,
    )
    if results is None:  # under torchrun, only rank 0 has them
        return
    if out is not None:
        written = write_hypotheses(out, chain.from_iterable(result.rows() for result in results))
        note(f"{out} has {counted(written, 'hypothesis', 'hypotheses')} with their errors. Only you can read it.")
    if as_json:
        documents = [_document(result, decoding) for result in results]
        alone = on is None and len(models) == 1
        print_json(documents[0] if alone else {"evaluations": documents, "differences": _differences(results, parts)})
        return
    if len(results) == 1:
        _print_alone(results[0])
    else:
        _print_together(results, parts)
    if decoding != GREEDY:
        note(f"Decoding: {decoding.about}.")
    for part in parts:
        _print_notes(part)


def _document(result: "ModelOnSpeech", decoding: Decoding) -> dict[str, Any]:
    """Return everything that is known of a model on some speech."""
    breakdown, intervals, part = result.breakdown, result.intervals, result.speech
    figures = breakdown.model_dump()
    for column, groups in figures["groups"].items():
        for value, scores in groups.items():
            scores["wer_interval"] = intervals.groups[column][value]
    model = asdict(result.model)
    return {
        "model": model.pop("place"),
        **model,
        "store": str(part.selection.store),
        "speakers_file": None if part.selection.speakers is None else str(part.selection.speakers),
        "decoding": decoding.document(),
        **figures,
        "wer_interval": intervals.total,
        **{name: sum(getattr(one, name) for one in result.utterances) for name in _KINDS},
        "without_value": part.without_value(),
        "unwritable": part.population.unwritable(),
    }


_KINDS = ("substitutions", "deletions", "insertions")


def _pairs(results: "list[ModelOnSpeech]", parts: "list[SpeechPart]") -> "list[tuple[ModelOnSpeech, ModelOnSpeech]]":
    """Return every other model with the first one, on the same speech."""
    return [(other, results[place]) for place in range(len(parts)) for other in results[place :: len(parts)][1:]]


def _differences(results: "list[ModelOnSpeech]", parts: "list[SpeechPart]") -> list[dict[str, Any]]:
    return [
        {
            "model": str(other.model.place),
            "minus": str(first.model.place),
            "on": other.speech.name,
            **asdict(found := other.minus(first)),
            "significant": found.significant,
        }
        for other, first in _pairs(results, parts)
    ]


def _line(name: str, scores: "Scores", interval: "Interval | None" = None) -> list[str]:
    rates = [f"{100 * scores.wer:.2f}", _ends(interval), f"{100 * scores.cer:.2f}", f"{scores.loss:.3f}"]
    return [name, f"{scores.utterances:,}", f"{scores.words:,}", *rates]


def _ends(interval: "Interval | None") -> str:
    return "" if interval is None else f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}"


_HEADER = ["utterances", "words", "WER %", "95 % interval", "CER %", "loss"]


def _print_alone(result: "ModelOnSpeech") -> None:
    """Print one model on one store: all, groups, the worst speakers, and how WER is spread."""
    breakdown, intervals = result.breakdown, result.intervals
    rows = [_line("all", breakdown, intervals.total)]
    for column, groups in breakdown.groups.items():
        rows += [
            _line(f"{column}={value}", scores, intervals.groups[column][value]) for value, scores in groups.items()
        ]
    speakers = breakdown.speakers
    rows += [_line(f"worst: {scores.speaker}", scores) for scores in speakers.worst]
    print_table(f"{result.model} on {result.speech.name}", ["", *_HEADER], rows)
    counts = ", ".join(f"{sum(getattr(one, name) for one in result.utterances):,} {name}" for name in _KINDS)
    quantiles = "  ".join(f"{float(name):.0%}: {100 * wer:.1f}" for name, wer in speakers.wer_quantiles.items())
    say(f"Word errors: {counts}.")
    say(f"WER % over {speakers.count} speakers, quantiles: {quantiles}")


def _print_together(results: "list[ModelOnSpeech]", parts: "list[SpeechPart]") -> None:
    """Print a table of all models on all stores, one of their groups, and how the models differ."""
    rows = []
    for result in results:
        name, *figures = _line(str(result.model), result.breakdown, result.intervals.total)
        rows.append([name, result.speech.name, *figures])
    print_table("", ["model", "speech", *_HEADER], rows, text_columns=2)
    for place, part in enumerate(parts):
        same = results[place :: len(parts)]
        rows = [
            [
                f"{column}={value}",
                f"{scores.speakers:,}",
                f"{scores.words:,}",
                *(f"{100 * one.breakdown.groups[column][value].wer:.2f}" for one in same),
            ]
            for column, groups in same[0].breakdown.groups.items()
            for value, scores in groups.items()
        ]
        if rows:
            names = [f"WER % of {one.model.place}" for one in same]
            print_table(part.name, ["", "speakers", "words", *names], rows)
    for other, first in _pairs(results, parts):
        say(_sentence(other, first, other.minus(first)))


def _sentence(other: "ModelOnSpeech", first: "ModelOnSpeech", found: "Difference") -> str:
    names = f"{other.model.place} minus {first.model.place} on {other.speech.name}: {found.points:+.2f} points"
    if found.interval is None or found.p_value is None:
        return f"{names}. One speaker says nothing about others."
    p_value = "p < 0.0001" if found.p_value < 1e-4 else f"p = {found.p_value:.2g}"
    verdict = "significant" if found.significant else "not significant"
    low, high = found.interval
    return f"{names} ({low:+.2f} to {high:+.2f}), {p_value}, {verdict} at 5 %, over {found.speakers} speakers."


def _print_notes(part: "SpeechPart") -> None:
    """Print what a reader of the figures should know."""
    for column, speakers in part.without_value().items():
        named = ", ".join(speakers[:_NAMED_SPEAKERS]) + (", ..." if len(speakers) > _NAMED_SPEAKERS else "")
        note(f"warning: {part.name}: {counted(len(speakers), 'speaker')} without a value for {column}: {named}.")
    unwritable = part.population.unwritable()
    if unwritable:
        note(
            f"{part.name}: {counted(unwritable, 'utterance')} with characters that the model cannot write: "
            "errors in their words."
        )
