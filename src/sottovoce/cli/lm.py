"""sotto lm: language models for beam search."""

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.cli.arguments import AsJson
from sottovoce.cli.console import counted, note, print_json
from sottovoce.cli.lazy_command import MARKUP
from sottovoce.data.selection import Selection
from sottovoce.errors import ConfigError
from sottovoce.evaluation.language_model import USERS_NOTE, Level
from sottovoce.files import require_place

if TYPE_CHECKING:
    from sottovoce.evaluation.kneser_ney import NgramModel
    from sottovoce.evaluation.language_model import LanguageModelNote

app = typer.Typer(no_args_is_help=True, rich_markup_mode=MARKUP)


@app.callback()
def _group() -> None:
    """Language models for beam search: `sotto eval` and `sotto transcribe` with --decoder beam --lm."""


@app.command()
def build(
    out: Annotated[Path, typer.Option("--out", help="The ARPA file to write.")],
    texts: Annotated[
        list[Path] | None, typer.Argument(metavar="TEXT...", help="Text files with one sentence per line, in UTF-8.")
    ] = None,
    order: Annotated[int, typer.Option(min=1, max=6, help="The longest n-grams, in words or characters.")] = 3,
    level: Annotated[
        Level, typer.Option(help="word: texts have the words of TEXT only; character: spelling stays free.")
    ] = "word",
    language: Annotated[str, typer.Option(help="The language, whose rules normalise the text: en, fr or de.")] = "en",
    from_store: Annotated[
        str | None,
        typer.Option(metavar="STORE[@SPEAKERS]", help="Also the transcripts of a store. Needs --includes-users."),
    ] = None,
    includes_users: Annotated[
        bool,
        typer.Option("--includes-users", help="Say that the model holds users' own words, which no guarantee covers."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Build an n-gram language model from text, by interpolated modified Kneser-Ney smoothing.

    The text is normalised as transcripts are; numbers are spelt out. A line with characters that no model can write is
    left out. A model with transcripts of a store says so in its first line, can be read by its owner only, and is
    outside every privacy guarantee.

    Example: sotto lm build letters.txt news.txt --order 4 --out lm.arpa
    """
    from sottovoce.evaluation import kneser_ney
    from sottovoce.evaluation.language_model import LanguageModelNote, write_arpa
    from sottovoce.evaluation.lm_text import LmText, units

    if not texts and from_store is None:
        raise ConfigError("There is nothing to build a language model from. Give text files with a sentence per line.")
    if from_store is not None and not includes_users:
        raise ConfigError(
            "--from-store takes speakers' transcripts word by word, and no privacy guarantee covers that. "
            "Add --includes-users if that is meant, or give text files."
        )
    require_place(out, ".arpa")
    text = LmText(language)
    sentences = text.lines_of(texts or [])
    if from_store is not None:
        sentences = chain(sentences, text.transcripts_of(Selection.parse(from_store).open()))
    model = kneser_ney.build((units(sentence, level) for sentence in sentences), order)
    about = LanguageModelNote(level, order, model.sentences, users_transcripts=includes_users)
    write_arpa(model, out, about)
    _report(out, model, about, text.left_out, as_json)


def _report(out: Path, model: "NgramModel", about: "LanguageModelNote", left_out: int, as_json: bool) -> None:
    words = len(model.words) - 3  # without <unk>, <s> and </s>
    if left_out:
        note(f"{counted(left_out, 'line')} left out: characters that no model can write.")
    if model.fallbacks:
        orders = ", ".join(map(str, model.fallbacks))
        note(f"The text is too small or too regular to estimate discounts of order {orders}: 0.5, 1 and 1.5 are used.")
    if about.users_transcripts:
        note(USERS_NOTE)
    if as_json:
        print_json({"file": str(out), **vars(about), "words": words, "ngrams": [len(one.word) for one in model.grams]})
        return
    ngrams = ", ".join(f"{len(one.word):,}" for one in model.grams)
    note(f"{out}: {counted(model.sentences, 'sentence')}, {counted(words, about.level)}, n-grams by order: {ngrams}.")
