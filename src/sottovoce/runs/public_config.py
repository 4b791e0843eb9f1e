"""The public part of a run's configuration: what was chosen, not what was found in the data.

`PUBLIC_SETTINGS` is a list of what may be seen. Everything else stays private: places of data (`data`, `corpus`), what
the run was called (`about`), the machine (`hardware`), and every key that nobody has thought about yet.
"""

from collections.abc import Mapping
from typing import Any

from sottovoce.config import Tree

# By section, the keys that are public; None: the whole value.
PUBLIC_SETTINGS: Mapping[str, tuple[str, ...] | None] = {
    "seed": None,  # of initialisation and local work; cohorts and noise of a published run never come from it
    "users": ("iid",),
    "batching": ("seconds", "max_seconds_per_user", "max_padding"),
    "model": None,  # an encoder of your own has options of its own
    "specaugment": None,
    "participation": (*("population", "cohort_size", "sampling", "weight", "weight_bound", "weight_total", "q_min"),),
    "privacy": (
        *("clip_norm", "clipping", "rule", "layer_weights", "sigma_dp", "noise", "target_delta", "budget"),
        *("noise_analysis", "accept", "diagnostics"),
    ),
    "randomness": ("source",),
    "federated": (
        *("local", "optimizer", "schedule", "partition", "trainable"),
        *("central_steps", "evaluate_every", "checkpoint_every"),
    ),
}


def public_config(config: Tree) -> Tree:
    """Return the public part of a configuration; keys that it does not have are left out."""
    given = {section: config[section] for section in PUBLIC_SETTINGS if section in config}
    return {section: _chosen(value, PUBLIC_SETTINGS[section]) for section, value in given.items()}


def _chosen(section: Any, keys: tuple[str, ...] | None) -> Any:
    return section if keys is None else {key: section[key] for key in keys if key in section}
