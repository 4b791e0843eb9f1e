"""Speak the sentences of speakers with eSpeak NG. This is a stand-alone script.

    espeak_process.py [--serve] [FOLDER]

Standard input is one JSON document, a `SpeechTask`:

    {"voice": "en-us+f3", "pitch": 50, "range": 50, "rate": 160, "sentences": ["hello there", ...]}

Standard output is one line of JSON, {"sample_rate_hz": 22050, "samples": [20111, ...]}, followed by the samples of all
sentences as native 16-bit integers. FOLDER contains the package espeakng_loader, if it is not installed here.

With `--serve`, standard input has a document on every line, and standard output an answer to each. An answer is as
above, or the line {"error": "..."}. The engine is loaded once, and every document is spoken by a fork of it: a fork
takes a few milliseconds, a new process with a new engine eighty.

Guarantees: the same document gives the same bytes, served or not. The engine carries state from one sentence to the
next, so this holds for complete documents, not for single sentences. A voice or variant that does not exist is an
error: one line on standard error and exit status 1, or the answer above. The engine itself would silently use another
voice. A server ends with its input; if the engine crashes, it ends with the status of the crash.

eSpeak NG is under the GPL. No other module loads it, and this module imports nothing but the standard library and the
loader, which also makes it start fast.
"""

import array
import ctypes
import gc
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

_SYNCHRONOUS = 2  # AUDIO_OUTPUT_SYNCHRONOUS: no threads, no sound card, all audio goes to the callback
_DONT_EXIT = 0x8000  # espeakINITIALIZE_DONT_EXIT: report a failure instead of ending the process
_POSITION_CHARACTER = 1
_UTF8 = 1
_RATE, _PITCH, _RANGE = 1, 3, 4
_LIMITS = {"rate": (80, 450), "pitch": (0, 99), "range": (0, 99)}
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
_ARGUMENTS: dict[str, list[Any]] = {
    "espeak_Initialize": [ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_int],
    "espeak_ng_SetRandSeed": [ctypes.c_long],
    "espeak_SetSynthCallback": [_CALLBACK],
    "espeak_SetVoiceByName": [ctypes.c_char_p],
    "espeak_SetParameter": [ctypes.c_int, ctypes.c_int, ctypes.c_int],
    "espeak_Synth": [
        *(ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint, ctypes.c_int, ctypes.c_uint, ctypes.c_uint),
        *(ctypes.c_void_p, ctypes.c_void_p),
    ],
    "espeak_Synchronize": [],
}
SERVE = "--serve"


class EspeakError(Exception):
    """The engine refused a call, or would have done something other than requested."""


class SpeechTask(NamedTuple):
    """Sentences and the voice that speaks them; pitch and range go from 0 to 99, the rate is in words per minute."""

    voice: str
    pitch: int
    range: int
    rate: int
    sentences: list[str]


class EspeakEngine:
    """The library, loaded and initialised; one per process."""

    def __init__(self) -> None:
        """Load the library and its data from the installed package."""
        import espeakng_loader  # noqa: PLC0415 - the first argument says where it is

        self._library = ctypes.CDLL(espeakng_loader.get_library_path())
        for name, arguments in _ARGUMENTS.items():
            function = getattr(self._library, name)
            function.argtypes, function.restype = arguments, ctypes.c_int
        self._library.espeak_ListVoices.argtypes = [ctypes.c_void_p]
        self._library.espeak_ListVoices.restype = ctypes.c_void_p
        data = Path(espeakng_loader.get_data_path())
        self.sample_rate_hz: int = self._library.espeak_Initialize(_SYNCHRONOUS, 0, str(data).encode(), _DONT_EXIT)
        if self.sample_rate_hz <= 0:
            raise EspeakError(f"espeak_Initialize returned {self.sample_rate_hz}.")
        self._check("espeak_ng_SetRandSeed", 1)  # by default the engine takes the time of day
        self._variants = {file.name for file in (data / "voices" / "!v").iterdir()}
        self._samples = bytearray()
        self._callback = _CALLBACK(self._receive)  # this reference protects it from the garbage collector
        self._library.espeak_SetSynthCallback(self._callback)

    def _receive(self, samples: Any, count: int, _events: int | None) -> int:
        if samples and count > 0:
            self._samples += ctypes.string_at(samples, 2 * count)
        return 0  # continue

    def _check(self, function: str, *arguments: Any) -> None:
        status = getattr(self._library, function)(*arguments)
        if status != 0:
            raise EspeakError(f"{function}{arguments} returned {status}.")

    def list_voices(self) -> None:
        """Read the list of voices, which the first choice of a voice would do."""
        self._library.espeak_ListVoices(None)

    def choose(self, voice: str, *, rate: int, pitch: int, pitch_range: int) -> None:
        """Set the voice, for example "en-us+f3", the rate, the pitch and its range."""
        _, plus, variant = voice.partition("+")
        if plus and variant not in self._variants:
            raise EspeakError(f"The variant of voice {voice} does not exist.")  # the engine would ignore it
        self._check("espeak_SetVoiceByName", voice.encode())
        for code, name, value in ((_RATE, "rate", rate), (_PITCH, "pitch", pitch), (_RANGE, "range", pitch_range)):
            low, high = _LIMITS[name]
            if not low <= value <= high:  # the engine would accept it
                raise EspeakError(f"Expected {low} <= {name}={value} <= {high}.")
            self._check("espeak_SetParameter", code, value, 0)

    def speak(self, sentence: str) -> bytes:
        """Return the samples of one sentence."""
        self._samples.clear()
        text = sentence.encode()
        self._check("espeak_Synth", text, len(text) + 1, 0, _POSITION_CHARACTER, 0, _UTF8, None, None)
        self._check("espeak_Synchronize")
        if not any(self._samples):
            raise EspeakError(f"No sound for the sentence {sentence!r}.")
        return bytes(self._samples)


def speak(engine: EspeakEngine, document: bytes, output: BinaryIO) -> None:
    """Speak the sentences of a document and write them in the format of the module docstring."""
    task = SpeechTask(**json.loads(document))
    engine.choose(task.voice, rate=task.rate, pitch=task.pitch, pitch_range=task.range)
    sentences = [engine.speak(sentence) for sentence in task.sentences]
    item_bytes = array.array("h").itemsize
    header = {"sample_rate_hz": engine.sample_rate_hz, "samples": [len(item) // item_bytes for item in sentences]}
    output.write(json.dumps(header).encode() + b"\n")
    output.writelines(sentences)
    output.flush()


def serve(engine: EspeakEngine, documents: BinaryIO, output: BinaryIO) -> int:
    """Answer every document and return the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the process that asks, and thereby this one
    engine.list_voices()
    gc.freeze()  # a collection in a fork would copy the pages of everything that is loaded
    for document in documents:
        child = os.fork()
        if child == 0:
            os._exit(_answer(engine, document, output))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != 0:
            return abs(status)
    return 0


def _answer(engine: EspeakEngine, document: bytes, output: BinaryIO) -> int:
    """Answer one document and return the exit status of the process that does it."""
    try:
        try:
            speak(engine, document, output)
        except EspeakError as error:  # nothing is written yet
            output.write(json.dumps({"error": str(error)}).encode() + b"\n")
            output.flush()
    except OSError:  # whoever asked has ended
        return 1
    return 0


def main() -> int:
    """Speak one document or serve many, and return the exit status."""
    serves = sys.argv[1:2] == [SERVE]
    sys.path[:0] = sys.argv[2:3] if serves else sys.argv[1:2]
    try:
        engine = EspeakEngine()
        if serves:
            return serve(engine, sys.stdin.buffer, sys.stdout.buffer)
        speak(engine, sys.stdin.buffer.read(), sys.stdout.buffer)
    except (EspeakError, ImportError, OSError, AttributeError) as error:  # the last: a library lacks a function
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
