"""The command `sotto`. This module imports next to nothing, so that Ctrl-C is one line while the rest is loaded."""

import sys


def run() -> None:
    """Run the command line and exit with its code: 0 success, 1 error, 2 wrong usage, 130 or 143 interrupted."""
    try:
        from sottovoce.cli.command_line import execute

        code = execute()
    except (MemoryError, ImportError) as error:  # before the command line itself is loaded
        sys.stderr.write(f"error: {type(error).__name__}: there may not be enough memory, or a library is missing.\n")
        code = 1
    except KeyboardInterrupt:  # before a command runs; the interrupt of a running command arrives as its code
        code = 130
    if code == 130:
        sys.stderr.write("Interrupted. Run the same command again to resume.\n")
    from sottovoce.processes import leave, under_torchrun

    if under_torchrun():
        leave(code)
    sys.exit(code)
