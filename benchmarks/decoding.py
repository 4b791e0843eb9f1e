"""What beam search and language models gain, for docs/decoding.md.

    python benchmarks/decoding.py MODEL --train STORE@LIST --choose STORE@LIST --report STORE@LIST

Language models are built from the transcripts of --train, whose speakers the model was trained on. Weights are those
with the lowest WER on --choose. Printed are WERs on --report, speakers none of whom is in the other two, with 95 %
intervals by bootstrap over speakers; a gain is the difference to greedy decoding, resampled by the same speakers.
"""

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import jiwer
import numpy as np
import torch

from sottovoce.data.batching import load
from sottovoce.data.selection import Selection
from sottovoce.evaluation.decoder import tokens_of
from sottovoce.evaluation.decoding import GREEDY, Decoding
from sottovoce.evaluation.kneser_ney import build
from sottovoce.evaluation.language_model import LanguageModelNote, Level, write_arpa
from sottovoce.evaluation.lm_text import LmText, units
from sottovoce.model.recogniser import Recogniser, load_recogniser

LM_WEIGHTS = (0.25, 0.5, 1.0)
WORD_SCORES = (-1.0, 0.0, 1.0)
MODELS: tuple[tuple[Level, int], ...] = (("character", 6), ("word", 3))
DRAWS = 2000


class Spoken(NamedTuple):
    """An utterance as the model hears it."""

    speaker: str
    text: str
    scores: torch.Tensor


def heard(recogniser: Recogniser, speech: str) -> list[Spoken]:
    """Return the scores of every utterance."""
    population = Selection.parse(speech).open()
    store, rows = population.store, population.all_rows()
    speakers = store.index(["speaker"])["speaker"].to_pylist()
    recogniser.encoder.eval()
    found = []
    for row in rows.tolist():
        batch = load(store, np.array([row]))
        with torch.inference_mode():
            scores, _ = recogniser.encoder(torch.from_numpy(batch.features), torch.from_numpy(batch.frames))
        found.append(Spoken(speakers[row], recogniser.token_set.decode(store.tokens_of(row)), scores[0]))
    return found


def errors(recogniser: Recogniser, spoken: Sequence[Spoken], decoding: Decoding) -> dict[str, tuple[int, int]]:
    """Return the word errors and words of every speaker."""
    decoder = decoding.open(recogniser.token_set)
    sums: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(2, dtype=int))
    for one in spoken:
        found = jiwer.process_words(one.text, recogniser.token_set.decode(tokens_of(decoder.path(one.scores))))
        edits = found.substitutions + found.deletions + found.insertions
        sums[one.speaker] += (edits, found.hits + found.substitutions + found.deletions)
    return {speaker: (int(edits), int(words)) for speaker, (edits, words) in sums.items()}


def wer(found: dict[str, tuple[int, int]]) -> float:
    """Return the WER in %."""
    edits, words = np.array(list(found.values())).sum(axis=0)
    return float(100 * edits / words)


def resampled(found: dict[str, tuple[int, int]]) -> np.ndarray:
    """Return the WER in % of many draws of speakers; the same draws for the same speakers."""
    table = np.array([found[speaker] for speaker in sorted(found)])
    drawn = np.random.default_rng(0).integers(len(table), size=(DRAWS, len(table)))
    sums = table[drawn].sum(axis=1)
    return 100 * sums[:, 0] / sums[:, 1]


def chosen(recogniser: Recogniser, spoken: Sequence[Spoken], lm: Path | None) -> Decoding:
    """Return the beam search with the lowest WER."""
    weights = LM_WEIGHTS if lm is not None else (Decoding().lm_weight,)  # unused
    tried = [
        Decoding(decoder="beam", lm=lm, lm_weight=weight, word_score=score)
        for weight, score in product(weights, WORD_SCORES)
    ]
    return min(tried, key=lambda decoding: wer(errors(recogniser, spoken, decoding)))


def language_models(folder: Path, train: str) -> dict[str, Path]:
    """Build the language models from the transcripts of the training's speakers."""
    sentences = list(LmText("en").transcripts_of(Selection.parse(train).open()))
    built = {}
    for level, order in MODELS:
        path = folder / f"{level}.arpa"
        note = LanguageModelNote(level, order, len(sentences), users_transcripts=True)
        write_arpa(build([units(sentence, level) for sentence in sentences], order), path, note)
        built[f"{order}-gram of {level}s"] = path
    return built


def interval(values: np.ndarray) -> str:
    """Return a 95 % interval."""
    low, high = np.quantile(values, (0.025, 0.975))
    return f"{low:.1f} to {high:.1f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    for name in ("train", "choose", "report"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    recogniser = load_recogniser(given.model)
    choose, report = heard(recogniser, given.choose), heard(recogniser, given.report)
    greedy = errors(recogniser, report, GREEDY)
    print(f"{len(greedy)} speakers, {sum(words for _, words in greedy.values())} words")
    print("| decoding | lm_weight, word_score | WER in % | gain | audio per second |\n|---|---|---|---|---|")
    print(f"| greedy | | {wer(greedy):.1f} ({interval(resampled(greedy))}) | | |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, lm in {"beam search": None, **language_models(Path(folder), given.train)}.items():
            best = chosen(recogniser, choose, lm)
            start = time.process_time()
            found = errors(recogniser, report, best)
            speed = 0.03 * sum(len(one.scores) for one in report) / (time.process_time() - start)
            gain = f"{wer(greedy) - wer(found):.1f} ({interval(resampled(greedy) - resampled(found))})"
            weights = f"{best.lm_weight:g}, {best.word_score:g}"
            rate = f"{wer(found):.1f} ({interval(resampled(found))})"
            print(f"| {name} | {weights} | {rate} | {gain} | {speed:.0f} s |", flush=True)


if __name__ == "__main__":
    main()
