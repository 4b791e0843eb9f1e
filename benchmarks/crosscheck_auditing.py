"""Bounds of the same guesses by jax_privacy and opake-auditing: a second opinion on `sottovoce.auditing.one_run`.

Needs jax_privacy 2.0.0 and opake-auditing 0.16.1, which bring jax: use an environment of their own.

    python benchmarks/crosscheck_auditing.py > tests/golden/auditing.json
"""

import json

import numpy as np
from jax_privacy.auditing import CanaryScoreAuditor, Explicit
from opake.api.auditing.one_run._eps_delta import EpsDeltaMethod
from opake.api.auditing.one_run._estimate import OneRunEstimate
from opake.api.auditing.one_run._gdp import GdpMethod
from opake.api.auditing.one_run._roc import get_tn_fn_counts

CASES = [(100, 1.0), (100, 3.0), (1000, 0.5), (1000, 1.0), (1000, 2.0), (1000, 4.0), (1000, 20.0), (4000, 1.0)]
SHARES = (0.05, 0.25)  # of the canaries, guessed to be there
DELTA, SIGNIFICANCE = 1e-5, 0.05


def scores(canaries: int, mu: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of a Gaussian mechanism of noise 1/mu, and the coins."""
    rng = np.random.Generator(np.random.Philox(key=[canaries, round(10 * mu)]))
    coins = rng.random(canaries) < 0.5
    return mu * coins + rng.standard_normal(canaries), coins


def compared(canaries: int, mu: float, share: float) -> dict[str, float]:
    """Return the guesses and what they prove according to jax_privacy."""
    values, coins = scores(canaries, mu)
    threshold = float(np.sort(values)[-round(share * canaries)])
    auditor = CanaryScoreAuditor(values[coins], values[~coins])
    made = values >= threshold
    strategy = Explicit(threshold)
    return {
        "canaries": canaries,
        "mu": mu,
        "made": int(made.sum()),
        "correct": int((made & coins).sum()),
        "jax_privacy_one_run": float(auditor.epsilon_one_run(SIGNIFICANCE, DELTA, threshold_strategy=strategy)),
        "jax_privacy_one_run_fdp": float(auditor.epsilon_one_run_fdp(SIGNIFICANCE, DELTA, threshold_strategy=strategy)),
    }


def all_guessed(canaries: int, mu: float) -> dict[str, float]:
    """Return what guessing every coin by the sign of score - mu / 2 proves according to opake."""
    values, coins = scores(canaries, mu)
    present, absent = values[coins], values[~coins]
    thresholds, tn, fn = get_tn_fn_counts(present, absent)
    estimate = OneRunEstimate(
        n_in=len(present), n_out=len(absent), thresholds=thresholds, tn_counts=tn, fn_counts=fn,
        tp_counts=(fn[-1] - fn)[::-1], fp_counts=(tn[-1] - tn)[::-1], in_scores=present, out_scores=absent,
    )  # fmt: skip
    made, wrong = estimate._best_r_u(mu / 2)
    options = {"delta": DELTA, "significance": SIGNIFICANCE, "threshold": mu / 2}
    return {
        "canaries": canaries,
        "mu": mu,
        "made": made,
        "correct": made - wrong,
        "opake_eps_delta": EpsDeltaMethod(_estimate=estimate).epsilon_at(**options),
        "opake_gdp": GdpMethod(_estimate=estimate).epsilon_at(**options),
    }


if __name__ == "__main__":
    document = {
        "delta": DELTA,
        "significance": SIGNIFICANCE,
        "jax_privacy 2.0.0": [compared(*case, share) for case in CASES for share in SHARES],
        "opake-auditing 0.16.1": [all_guessed(*case) for case in CASES],
    }
    print(json.dumps(document, indent=1))
