"""Audits: canaries in one run, and the lower bound on epsilon that they prove. Names are loaded on first use."""

from typing import TYPE_CHECKING

from sottovoce.lazy_names import lazy_names

if TYPE_CHECKING:
    from sottovoce.auditing.auditor import audit
    from sottovoce.auditing.verdict import Audit

__all__ = ["Audit", "audit"]

__getattr__ = lazy_names(__name__, {"auditor": "audit", "verdict": "Audit"})
