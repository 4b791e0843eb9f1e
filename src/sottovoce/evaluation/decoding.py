"""How texts are found in a model's scores: greedily, or by beam search with a language model and a lexicon.

Greedy decoding, the default and the paper's, takes the best token of every output. Beam search looks for the text with
the highest

    ln p(text | audio) + lm_weight ln p_LM(text) + word_score * words

where the first term sums over all alignments. A language model of words, or a list of words (`lexicon`), restricts
texts to its words. A language model of characters, or none, leaves spelling free. These options load no torch.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sottovoce.data.text import TokenSet
from sottovoce.errors import ConfigError
from sottovoce.evaluation.language_model import LanguageModelFile, open_language_model

if TYPE_CHECKING:
    from sottovoce.evaluation.decoder import Decoder

DecoderName = Literal["greedy", "beam"]
MAX_BEAM = 10_000
MAX_WEIGHT = 100.0


class Decoding(BaseModel):
    """The options of decoding.

    Example: `Decoding(decoder="beam", lm=Path("an4.arpa"))`
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    decoder: DecoderName = Field("greedy", description="how texts are found: greedily or by beam search")
    lm: Path | None = Field(None, description="with beam: a language model, ARPA or KenLM's binary form")
    lexicon: Path | None = Field(
        None, description="with beam: a file with one word per line; texts have no other words"
    )
    lm_weight: float = Field(
        0.5, ge=0, le=MAX_WEIGHT, description="with --lm: weight of the language model's log-probability"
    )
    word_score: float = Field(
        0.0, ge=-MAX_WEIGHT, le=MAX_WEIGHT, description="with beam: what every word adds to the score"
    )
    beam: int = Field(50, ge=1, le=MAX_BEAM, description="with beam: hypotheses that are kept after every output")

    @property
    def about(self) -> str:
        """How texts are found, in a few words."""
        if self.decoder == "greedy":
            return "greedy"
        used = [f"{name} {path}" for name, path in (("language model", self.lm), ("lexicon", self.lexicon)) if path]
        weights = f"lm_weight {self.lm_weight:g}, " if self.lm is not None else ""
        return ", ".join(["beam search", *used, f"{weights}word_score {self.word_score:g}, beam {self.beam}"])

    def document(self) -> dict[str, Any]:
        """Return what was used, for --json."""
        return {"decoder": "greedy"} if self.decoder == "greedy" else self.model_dump(mode="json")

    def check(self) -> LanguageModelFile | None:
        """Raise ConfigError or DataError where these options cannot be used; return the language model, if any."""
        if self.decoder == "greedy":
            if self.lm is not None or self.lexicon is not None:
                raise ConfigError("A language model or a lexicon needs --decoder beam: greedy decoding uses neither.")
            for name in ("beam", "word_score", "lm_weight"):
                self._require_default(name, "--decoder beam")
            return None
        if self.lm is None:
            self._require_default("lm_weight", "--lm")
        require_decoder_library()
        return None if self.lm is None else open_language_model(self.lm)

    def _require_default(self, name: str, needed: str) -> None:
        """Raise ConfigError where an option that would change nothing has a value of its own."""
        if getattr(self, name) != type(self).model_fields[name].default:
            raise ConfigError(f"--{name.replace('_', '-')} changes nothing without {needed}. Give both, or neither.")

    def open(self, token_set: TokenSet) -> "Decoder":
        """Return the decoder for a model with these tokens."""
        from sottovoce.evaluation.decoder import GreedyDecoder  # noqa: PLC0415 - it loads torch

        language_model = self.check()
        if self.decoder == "greedy":
            return GreedyDecoder()
        from sottovoce.evaluation.beam import BeamDecoder  # noqa: PLC0415 - it loads an extra

        return BeamDecoder(self, token_set, language_model)


def require_decoder_library() -> None:
    """Raise ConfigError where the library of beam search is not installed."""
    try:
        import flashlight.lib.text.decoder.kenlm  # noqa: F401, PLC0415 - an extra
    except ImportError:
        raise ConfigError("Beam search needs flashlight-text. Install it: pip install 'sottovoce[decode]'.") from None


GREEDY = Decoding()
