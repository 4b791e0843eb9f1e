"""The page docs/scaling.md: the answer first, then laws, stragglers, traffic and memory, then what it rests on.

Every number of the page is computed from the measurements, the estimate's fit to the paper's runs, or a data sheet.
"""

from pathlib import Path

import pictures
from content import COHORTS, GPUS, SIMULATED_COHORTS, SIMULATED_WORKERS, Content
from documents import Measurements
from projection import (
    CENTRAL_STEPS,
    PAPER_COHORT,
    PAPER_GPUS,
    PARTS,
    Projection,
    fixed_share_of_compute,
    paper_row,
    paper_size,
)
from section_basis import basis
from section_laws import largest_step, laws
from section_stragglers import stragglers, validation
from section_transport import int32, memory, traffic
from stragglers import CORPUS, EPOCHS, STEPS, paper_pace
from validation import from_user_times
from wording import digits, duration, percent, table, wrapped

from sottovoce.estimate.calibration import calibrate
from sottovoce.files import written_whole


def write_page(measurements: Measurements, path: Path) -> None:
    """Write the page, and its pictures into the folder `images` beside it."""
    content, images = Content.of(measurements), path.parent / "images"
    images.mkdir(exist_ok=True)
    pictures.laws(measurements, images)
    pictures.stragglers(content.simulated, (STEPS, EPOCHS), SIMULATED_COHORTS[-1], SIMULATED_WORKERS, images)
    pictures.validation(from_user_times(measurements.parts["workers"].steps), images)
    pictures.step_parts(_bars(content), images)
    sections = (answer, laws, largest_step, stragglers, validation, traffic, int32, memory, basis)
    text = wrapped("\n\n".join(section(content).strip() for section in sections))
    with written_whole(path) as file:
        file.write(f"{text}\n".encode())


def _bars(content: Content) -> list[tuple[str, Projection]]:
    return [
        (f"S {cohort:,}, {gpus:,} GPUs, {name}", runs[cohort, gpus])
        for cohort in COHORTS[:2]
        for gpus in GPUS
        for name, runs in (("as it is", content.today), ("sharded", content.ahead))
    ]


def answer(content: Content) -> str:
    """Return the first section: hours and GPU-hours."""
    today, ahead = (runs[PAPER_COHORT, PAPER_GPUS] for runs in (content.today, content.ahead))
    trial = "\n\n**These measurements are a trial with small sizes. Do not quote them.**" * content.measurements.quick
    rows = [_answer_row(content, cohort, gpus) for cohort in COHORTS for gpus in GPUS]
    head = ["users in a cohort", "GPUs", "hours", "GPU-hours", *PARTS, "sharded: hours", "sharded: GPU-hours"]
    drawn = "All processes draw the noise" if content.rates.noise_shared else "The leader draws all of the noise"
    when = "while users train" if content.rates.noise_hidden else "after the users have trained"
    return f"""# Scaling: from two cores to 1,024 GPUs

`make bench-scaling` measures the cost of a central step on this machine, simulates steps on many workers, and writes
this page. **Nothing here was run on a GPU.** Times on GPUs are computed from three sources: the pace of the paper's own
runs on A100s, our measurements on a CPU for the work that stays on a CPU, and the line rates of data sheets.{trial}

A run has {CENTRAL_STEPS:,} central steps of the paper's model ({paper_size().parameters / 1e6:.1f}M parameters), 10
local steps of up to 120 s of audio for each user, users like those of {CORPUS}, and secure noise. The columns in the
middle are shares of the time of a central step.

{table(head, rows)}

- **As it is** (all columns but the last two): users are shared out before the step, and the sum goes to one leader. It
  hashes the noised sum for the ledger. {drawn}, {when}.
- **Sharded**: users wait in a common queue, and every process releases its own part of the vector. The engine does
  not do this yet. It is the bound to aim for.
- The paper needed {paper_row().gpu_hours:,.0f} GPU-hours for {PAPER_COHORT:,} users on {PAPER_GPUS} GPUs. The same
  run takes {today.gpu_hours:,.0f} GPU-hours as it is and {ahead.gpu_hours:,.0f} sharded. The paper's noise is not
  secure noise.
- {percent(fixed_share_of_compute())} of the compute is a fixed time per local step in the authors' code
  ({duration(paper_pace().per_local_step)}), and the fixed part is a time per central step in their code. Our code has
  not been timed on a GPU, so this page assumes both in full.
- All hours may be larger or smaller by a factor of {calibrate().factor:.2f}, the largest error of the estimate on the
  paper's own runs. The paper used at most 64 GPUs; beyond that, everything is extrapolation.

![parts of a central step](images/scaling-parts.png)"""


def _answer_row(content: Content, cohort: int, gpus: int) -> list[str]:
    today, ahead = content.today[cohort, gpus], content.ahead[cohort, gpus]
    return [
        *(f"{cohort:,}", f"{gpus:,}", digits(today.hours), f"{today.gpu_hours:,.0f}"),
        *(percent(today.share(part)) for part in PARTS),
        *(digits(ahead.hours), f"{ahead.gpu_hours:,.0f}"),
    ]
