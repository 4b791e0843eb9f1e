"""Privacy: clipping, noise, release, ledger and accounting. Names are loaded on first use."""

from typing import TYPE_CHECKING

from sottovoce.lazy_names import lazy_names

if TYPE_CHECKING:
    from sottovoce.privacy.accounting import Event, Spent, pld, rdp
    from sottovoce.privacy.chain import Mark
    from sottovoce.privacy.claims import (
        Account,
        Claim,
        RunClaim,
        claim_at,
        claim_for,
        composed,
        open_account,
        statement,
    )
    from sottovoce.privacy.clipping import add_clipped_, clip_factors
    from sottovoce.privacy.epsilons import Epsilons
    from sottovoce.privacy.ledger import Ledger, read_ledger
    from sottovoce.privacy.ledger_header import LedgerHeader
    from sottovoce.privacy.mechanism import Mechanism, plain_mechanism
    from sottovoce.privacy.noise import (
        AnyNoise,
        Correlated,
        Gaussian,
        IndependentNoise,
        NoiseMechanism,
        NoiseState,
    )
    from sottovoce.privacy.planner import Plan, solve
    from sottovoce.privacy.privacy_options import Budget, NoiseAnalysis, Participation, Privacy, RandomSource
    from sottovoce.privacy.release import Released

__all__ = [
    "Account",
    "AnyNoise",
    "Budget",
    "Claim",
    "Correlated",
    "Epsilons",
    "Event",
    "Gaussian",
    "IndependentNoise",
    "Ledger",
    "LedgerHeader",
    "Mark",
    "Mechanism",
    "NoiseAnalysis",
    "NoiseMechanism",
    "NoiseState",
    "Participation",
    "Plan",
    "Privacy",
    "RandomSource",
    "Released",
    "RunClaim",
    "Spent",
    "add_clipped_",
    "claim_at",
    "claim_for",
    "clip_factors",
    "composed",
    "open_account",
    "plain_mechanism",
    "pld",
    "rdp",
    "read_ledger",
    "solve",
    "statement",
]

__getattr__ = lazy_names(
    __name__,
    {
        "accounting": "Event Spent pld rdp",
        "chain": "Mark",
        "claims": "Account Claim RunClaim claim_at claim_for composed open_account statement",
        "clipping": "add_clipped_ clip_factors",
        "epsilons": "Epsilons",
        "ledger": "Ledger read_ledger",
        "ledger_header": "LedgerHeader",
        "mechanism": "Mechanism plain_mechanism",
        "noise": "AnyNoise Correlated Gaussian IndependentNoise NoiseMechanism NoiseState",
        "planner": "Plan solve",
        "privacy_options": "Budget NoiseAnalysis Participation Privacy RandomSource",
        "release": "Released",
    },
)
