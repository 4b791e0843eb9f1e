"""The errors a user can meet. Each message is one line: the fact first, then what to do."""


class SottoError(Exception):
    """Base of every error that is shown as one line instead of a traceback."""


class ConfigError(SottoError):
    """A preset, an option or a value that cannot be used."""


class DataError(SottoError):
    """A corpus, a store or a folder that is not what it should be."""


class PrivacyError(SottoError):
    """Something that would void the privacy guarantee. Never a warning."""
