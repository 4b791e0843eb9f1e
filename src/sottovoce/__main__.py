"""`python -m sottovoce` is the command `sotto`."""

from sottovoce.cli.main import run

if __name__ == "__main__":
    run()
