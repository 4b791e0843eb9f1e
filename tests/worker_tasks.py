"""Tasks for worker processes, in a module that the workers can import."""

import os
import time


def slow_first(number: int) -> int:
    """Return the square; the first task takes longest."""
    time.sleep(0.3 if number == 0 else 0)
    return number * number


def fail_at_three(number: int) -> int:
    """Return the number, or fail."""
    if number == 3:
        raise ValueError("three")
    return number


def die(number: int) -> int:
    """End the process without a result."""
    os._exit(9)
