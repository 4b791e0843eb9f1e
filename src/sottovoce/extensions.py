"""Importing extensions: modules that define kinds of options (see `open_union`), named by a user or installed.

sotto --import my_noise.py train federated ...      a file
sotto --import my_package.noise ...                 a module

[project.entry-points."sottovoce.extensions"]       in the pyproject.toml of an installed package: no option needed
my_package = "my_package.noise"
"""

import functools
import importlib
import sys
import traceback
from importlib.metadata import entry_points
from pathlib import Path

from sottovoce.errors import ConfigError

ENTRY_POINTS = "sottovoce.extensions"

_imported: list[str] = []  # the names of modules that `import_extension` has imported


def import_extension(module: str) -> None:
    """Import a module by its dotted name, or a file by its path.

    The current folder, or the file's folder, is put first on the import path, as Python does for a script. Raise
    ConfigError where the module does not exist or fails.
    """
    path = Path(module)
    is_file = module.endswith(".py")
    if is_file and not path.is_file():
        raise ConfigError(f"There is no file {module}. Check --import.")
    folder, name = (str(path.resolve().parent), path.stem) if is_file else (str(Path.cwd()), module)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    imported = sys.modules.get(name)
    if is_file and imported is not None and not _is_from(imported, path):
        raise ConfigError(f"{module} has the name of another module, {name}. Rename the file.")
    _import(name, f"--import {module}")
    if is_file and not _is_from(sys.modules[name], path):
        raise ConfigError(f"{module} has the name of another module, {name}. Rename the file.")
    if name not in _imported:
        _imported.append(name)


def imported_extensions() -> tuple[str, ...]:
    """Return the names of the modules that `import_extension` has imported, in order."""
    return tuple(_imported)


@functools.cache
def import_installed() -> None:
    """Import the extensions of installed packages, once. Raise ConfigError where one of them fails."""
    for point in entry_points(group=ENTRY_POINTS):
        _import(point.module, f"The installed extension {point.name!r}")


def _import(name: str, source: str) -> None:
    """Import a module; an error in it becomes one line that says where it happened."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(f"{source}: there is no module {name!r}. Check the name and the folder.") from None
        raise _failed(source, error) from error
    except Exception as error:
        raise _failed(source, error) from error


def _failed(source: str, error: Exception) -> ConfigError:
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f" ({place.filename}, line {place.lineno})" if not place.filename.startswith("<") else ""
    reason = " ".join(str(error).split())
    return ConfigError(f"{source} fails with {type(error).__name__}: {reason}{where}. Correct the module.")


def _is_from(module: object, path: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).resolve() == path.resolve()
