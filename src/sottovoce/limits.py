"""The largest and smallest numbers that a configuration or a command takes, whatever they mean.

Beyond them arithmetic overflows, divides by zero or never ends. A number that counts things which are made one by one
(blocks, processes, seeds) has a narrower bound of its own where it is declared.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

LARGEST, SMALLEST = 1e30, 1e-30  # sizes of numbers that are not 0; float32 ends at 3e38
LARGEST_WHOLE = 2**63 - 1  # NumPy's and torch's
MOST_PROCESSES = 1024  # on one machine
MOST_SEEDS = 1000


def number_fault(value: float) -> str | None:
    """Return what was expected instead of a number that is out of bounds; None where it is within them."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return None if abs(value) <= LARGEST_WHOLE else "a whole number of at most 18 digits"
    if not math.isfinite(value):
        return "a finite number"
    if value != 0 and not SMALLEST <= abs(value) <= LARGEST:
        return f"0, or a number of a size between {SMALLEST:g} and {LARGEST:g}"
    return None


def faulty_numbers(value: Any) -> Iterator[tuple[float, str]]:
    """Yield the numbers in a value, or inside its lists and sections, that are out of bounds, each with its fault."""
    if isinstance(value, int | float):
        if (fault := number_fault(value)) is not None:
            yield value, fault
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from faulty_numbers(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from faulty_numbers(inner)
