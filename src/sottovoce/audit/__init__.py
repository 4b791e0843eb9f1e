"""Audits: canaries in one run, and the lower bound on epsilon that they prove. Names are loaded on first use."""

from typing import TYPE_CHECKING

from sottovoce.lazy_names import lazy_names

if TYPE_CHECKING:
    from sottovoce.audit.auditing import audit
    from sottovoce.audit.verdict import Audit

__all__ = ["Audit", "audit"]

__getattr__ = lazy_names(__name__, {"auditing": "audit", "verdict": "Audit"})
