"""Values, names and texts of others: bounds on numbers, no commands for terminals, no formulas, a policy for pages."""

import base64
import hashlib
import re

import pytest

from sottovoce.cli.console import print_json, print_table, safe
from sottovoce.errors import out_of_memory
from sottovoce.files import as_cell
from sottovoce.limits import number_fault
from sottovoce.reports.page import content_policy

ESCAPE = "\x1b[31mred\x1b]0;title\x07\x9b2J\u202e\ud800"


def test_nothing_that_a_terminal_obeys_is_printed(capsys):
    shown = safe(ESCAPE)
    assert shown == r"\x1b[31mred\x1b]0;title\x07\x9b2J\u202e\ud800"
    assert safe("línea\n\tdos ß 日本") == "línea\n\tdos ß 日本"
    print_json({ESCAPE: [ESCAPE, float("nan")]})
    print_table(ESCAPE, [ESCAPE, "n"], [[ESCAPE, "1"]])
    printed = capsys.readouterr().out
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", printed)
    assert r"\u001b[31mred" in printed


@pytest.mark.parametrize(
    "words",
    [
        ("model", "tiny", "--set", "model.blocks=99999999999999999999"),
        ("model", "tiny", "--set", "model.blocks=1001"),
        ("config", "show", "tiny", "--set", "users.seed_fraction=1/0"),
        ("config", "show", "tiny", "--set", "users.seed_fraction=1e-999999999"),
        ("config", "show", "tiny", "--set", "federated.local.rule={name: fedprox, mu: 1e300}"),
        ("config", "show", "tiny", "--set", "seed=.nan"),
        ("config", "show", "tiny", "--set", "a: &a [*a]"),
        (
            "privacy",
            "epsilon",
            *["--sigma-dp", "1e-320", "--cohort-size", "10", "--population", "100", "--central-steps", "3"],
        ),
        ("estimate", "--processes", "9223372036854775808"),
        ("bench", "show", "demo", "--seeds", "12345678901234567890123"),
        ("eval", "a", "b", "--batch-seconds", "inf"),
        ("eval", "a", "b", "--workers", "99999999"),
        ("eval", "a\udcff", "b"),
        ("data", "prepare", "table", "x.tsv", "--out", "y", "--concatenate", "2:99999999999"),
        ("privacy", "explain", "nothing", "--out", "/"),
    ],
)
def test_absurd_values_are_one_line_at_once(sotto, words):
    outcome = sotto(*words)
    assert outcome.code in (1, 2)
    assert outcome.error


def test_bounds_on_numbers():
    assert [number_fault(value) for value in (0, 1.5, True, -(2**63) + 1, 1e30, -1e-30)] == [None] * 6
    assert all(number_fault(value) for value in (2**63, float("nan"), float("-inf"), 1e31, 1e-31, -1e300))


def test_formulas_in_tables_are_texts():
    assert [as_cell(value) for value in ("+1+1", "@SUM(1)", "=A1", " -x", "\tq", '"=1+1"')] == [
        *("'+1+1", "'@SUM(1)", "'=A1", "' -x", "'\tq", '\'"=1+1"')
    ]
    assert [as_cell(value) for value in ("-1.5", "+3e-4", -2, None, "ann", "a=b")] == [
        "-1.5",
        "+3e-4",
        -2,
        None,
        "ann",
        "a=b",
    ]


def test_a_page_runs_its_own_scripts_only():
    assert "script-src 'none'" in content_policy(())
    own = base64.b64encode(hashlib.sha256(b"let x = 1;").digest()).decode()
    policy = content_policy(["let x = 1;"])
    assert f"script-src 'sha256-{own}';" in policy
    assert "default-src 'none'" in policy


def test_a_lack_of_memory_is_one_line():
    for error in (MemoryError(), RuntimeError("can't start new thread"), ImportError("libx: failed to map segment")):
        assert "not enough memory" in str(out_of_memory(error))
    assert "cannot be loaded (x)" in str(out_of_memory(ImportError("x")))
    assert out_of_memory(RuntimeError("a mistake of ours")) is None
