"""Numbers formatted for readers. An epsilon is always rounded up, so it never looks more private than it is."""

import math

from sottovoce.privacy.accounting import rounded_up, short_exponents, short_number

NONE = "–"


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share in percent, without the percent sign."""
    return NONE if share is None or not math.isfinite(share) else f"{100 * share:.{digits}f}"


def epsilon(value: float | None) -> str:
    """Return an epsilon, rounded up."""
    return NONE if value is None else short_exponents(rounded_up(value))


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with this many significant digits: 0.00123, 12.3, 3e-6, 1.2e9."""
    if value is None or not math.isfinite(value):
        return NONE
    return short_number(value, digits)


def count(value: float | None) -> str:
    """Return a count with separators: 34,753; 204,800; 69.5 million."""
    if value is None:
        return NONE
    if value >= 1e6 and value % 1000 == 0:
        return f"{value / 1e6:,.6g} million"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.6g}"
