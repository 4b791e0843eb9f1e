"""eSpeak NG as the synthetic corpus uses it: a process that speaks for this one (see `espeak_process`).

Guarantees: what is spoken depends on the task only, not on what was spoken before. The process ends with this one,
however this one ends.
"""

import contextlib
import importlib.util
import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt

from sottovoce.data.corpora import espeak_process
from sottovoce.errors import SottoError


class Speech(NamedTuple):
    """Spoken sentences, each as 16-bit samples."""

    sample_rate_hz: int
    sentences: list[npt.NDArray[np.int16]]


class SpeechEngine:
    """A speaking process, started by the first task and, after `close`, by the next one."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._server: _Server | None = None
        self._lock = threading.Lock()

    def speak(self, task: espeak_process.SpeechTask) -> Speech:
        """Return the spoken sentences of a task; raise SottoError where the engine fails."""
        with self._lock:
            self._server = self._server or _Server()
            try:
                return self._server.speak(task)
            except BaseException:  # the rest of an answer would be taken for the next one
                self._end()
                raise

    def close(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._server is not None:
            self._server.end()
            self._server = None


class _Server:
    """A running process of `espeak_process`."""

    def __init__(self) -> None:
        # -I isolates the script from the environment and from this package, so it needs the folder of the loader.
        command = [sys.executable, "-I", espeak_process.__file__, espeak_process.SERVE, str(loader_folder())]
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 - open until `end`; a pipe could fill up unread
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._messages)

    def speak(self, task: espeak_process.SpeechTask) -> Speech:
        tasks, answers = _opened(self._process.stdin), _opened(self._process.stdout)
        with contextlib.suppress(BrokenPipeError):  # the process has ended: there is no answer
            tasks.write(json.dumps(task._asdict()).encode() + b"\n")
            tasks.flush()
        line = answers.readline()
        header = json.loads(line) if line.endswith(b"\n") else {}
        if "error" in header:
            raise _failure(task, header["error"])
        sizes = [2 * count for count in header.get("samples", ())]
        data = [answers.read(size) for size in sizes]
        if not header or [len(samples) for samples in data] != sizes:
            raise _failure(task, self._last_words())
        return Speech(header["sample_rate_hz"], [np.frombuffer(samples, np.int16) for samples in data])

    def _last_words(self) -> str:
        """Return why the process has ended."""
        status = self._process.wait()
        self._messages.seek(0)
        return self._messages.read().decode(errors="replace").strip().rpartition("\n")[2] or f"status {status}."

    def end(self) -> None:
        self._process.kill()  # at most a fork is left, which ends when it finds nobody to answer
        self._process.communicate()
        self._messages.close()


def _opened(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise RuntimeError("The process has no pipes.")
    return pipe


def _failure(task: espeak_process.SpeechTask, reason: str) -> SottoError:
    return SottoError(f"eSpeak NG failed with the voice {task.voice}: {reason} Reinstall espeakng-loader.")


def loader_folder() -> Path:
    """Return the folder that contains espeakng_loader, which this process never imports (see `espeak_process`)."""
    spec = importlib.util.find_spec("espeakng_loader")
    if spec is None or spec.origin is None:
        raise SottoError("eSpeak NG, which speaks the synthetic corpus, is missing: pip install 'sottovoce[synthetic]'")
    return Path(spec.origin).parents[1]
