"""Transcribe a 16 kHz mono WAV file with an exported model, numpy and onnxruntime: no torch, no sottovoce.

sotto export runs/digits --to onnx --out digits.onnx
python examples/transcribe_onnx.py digits.onnx recording.wav
"""

import json
import sys
import wave

import numpy as np
import onnxruntime


def features(samples):
    """Return the log-mel features (frames, 80) of samples on the 16-bit scale, as docs/export.md describes them."""
    frames = np.lib.stride_tricks.sliding_window_view(samples, 400)[::160].astype(np.float64)
    frames = frames - frames.mean(axis=1, keepdims=True)
    frames = frames - 0.97 * np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
    magnitudes = np.abs(np.fft.rfft(frames * np.hamming(400), 512))[:, :256]
    mel = 1127 * np.log(1 + np.arange(256) * 16000 / 512 / 700)
    low, high = 1127 * np.log(1 + np.array([20, 8000]) / 700)
    edges = low + np.arange(82) * (high - low) / 81
    rising, falling = (mel - edges[:-2, None]), (edges[2:, None] - mel)
    bank = np.clip(np.minimum(rising, falling) / (edges[1] - edges[0]), 0, None)
    energies = np.log(np.maximum(magnitudes @ bank.T, 1.0))
    return ((energies - energies.mean()) / (energies.std() or 1.0)).astype(np.float16).astype(np.float32)


model = onnxruntime.InferenceSession(sys.argv[1])
tokens = json.loads(model.get_modelmeta().custom_metadata_map["tokens"])
with wave.open(sys.argv[2]) as file:
    if (file.getframerate(), file.getnchannels(), file.getsampwidth()) != (16000, 1, 2):
        sys.exit(f"{sys.argv[2]} is not at 16 kHz, mono, with 16 bits. Convert it first.")
    heard = features(np.frombuffer(file.readframes(file.getnframes()), dtype=np.int16))
scores, _ = model.run(None, {"features": heard[None], "frames": np.array([len(heard)])})
best = scores[0].argmax(axis=1)
spoken = [tokens[token] for token, before in zip(best, [0, *best[:-1]], strict=True) if token not in (0, before)]
print(" ".join("".join(spoken).replace("|", " ").split()))
