"""A bare PyTorch loop over the same batches, without clipping or noise: the floor. python run_bare.py FOLDER OUT [pad].

With `pad`, batches are padded as by the paper's authors: to a multiple of 8 utterances and of 5 seconds.
"""

import sys
import time
from pathlib import Path

import torch
from items import FRAMES_PER_SECOND, GRADIENT_CLIP, LOCAL_LR, Item
from measuring import Measured, Stopwatch
from network import make_network
from speech import Batch, Speech


def padded_as_the_authors_do(speech: Speech, utterances: list[int]) -> Batch:
    """Return a batch with rows up to a multiple of 8 and frames up to a multiple of 5 seconds."""
    longest = max(int(speech.starts[place + 1] - speech.starts[place]) for place in utterances)
    block = 5 * FRAMES_PER_SECOND
    return speech.padded(utterances, -(-longest // block) * block, -(-len(utterances) // 8) * 8)


def main() -> None:
    """Take the steps of an item."""
    torch.set_num_threads(1)
    folder, out, pad = Path(sys.argv[1]), Path(sys.argv[2]), "pad" in sys.argv[3:]
    item, speech = Item.read(folder), Speech(folder)
    network = make_network(item, speech.tokens)
    parameters = list(network.parameters())
    measured = Measured(parameters=sum(parameter.numel() for parameter in parameters))
    watch = Stopwatch(measured)
    for cohort in speech.schedule:
        theta = [parameter.detach().clone() for parameter in parameters]
        total = [torch.zeros_like(parameter) for parameter in parameters]
        for _, batches in cohort:
            with torch.no_grad():
                torch._foreach_copy_(parameters, theta)
            optimizer = torch.optim.SGD(parameters, lr=LOCAL_LR)
            for utterances in batches:
                batch = padded_as_the_authors_do(speech, utterances) if pad else speech.padded(utterances)
                began = time.perf_counter()
                optimizer.zero_grad()
                network.loss(*batch).backward()
                measured.learning += time.perf_counter() - began
                measured.frames += int(batch[1][: len(batch[3])].sum())
                torch.nn.utils.clip_grad_norm_(parameters, GRADIENT_CLIP)
                optimizer.step()
            with torch.no_grad():
                torch._foreach_add_(total, torch._foreach_sub(theta, parameters))
            measured.users += 1
        with torch.no_grad():
            torch._foreach_copy_(parameters, theta)
            torch._foreach_sub_(parameters, torch._foreach_mul(total, 1 / len(cohort)))
        watch.step_ended()
    measured.write(out)


if __name__ == "__main__":
    main()
