"""The tables of the paper's source, read from LaTeX: for tests that hold the benchmarks against them."""

import re
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).parent.parent.parent / "shared" / "paper" / "paper.tex"
LABELS = ("dev-clean", "test-clean", "dev-other", "test-other", "dev", "test")


@dataclass(frozen=True)
class Table:
    """Where the word error rates of a table are: columns and what they are of.

    In some tables a line is of one set of speech, which it names in the column `label`; in the others a line is of one
    run, and the column says of which set. `start` are columns of the model that training starts from. `told` are
    columns that say how a run was made.
    """

    bench: str
    name: str
    columns: dict[int, str]
    label: int | None = None
    start: tuple[int, ...] = ()
    told: dict[str, int] = field(default_factory=dict)
    tabular: int = 0


def labelled(bench: str, name: str, label: int, columns: range, start: tuple[int, ...]) -> Table:
    """Return a table with a line for every set of speech."""
    told = {} if label == 0 else {"seed": 0, "data": 1}
    return Table(bench, name, dict.fromkeys(columns, ""), label, start, told)


def by_run(
    bench: str, name: str, first: int, keys: str, told: dict[str, int], tabular: int = 0, times: int = 2
) -> Table:
    """Return a table with a line for every run, and for every set one column each for T = 0, 2k and perhaps 4k."""
    columns = [key for key in keys.split() for _ in range(times)]
    start = tuple(range(first, first + len(columns), times))
    return Table(bench, name, dict(enumerate(columns, first)), None, start, told, tabular)


LS, CV = "dev-clean test-clean dev-other test-other", "dev test"
_DP = {"sigma": 1, "clip_norm": 2, "S": 3, "K": 4}
_DP_COLUMNS = {9: "dev", 10: "test", 11: "dev", 12: "test"}
TABLES = (
    labelled("cohort-size", "table-ls-seed-results", 0, range(1, 19), (1, 7, 13)),
    labelled("cohort-size", "table-cv-seed-results", 2, range(3, 11), (3,)),
    labelled("iid", "table-iid-ls", 0, range(1, 19), (1, 7, 13)),
    labelled("iid", "table-iid-cv", 2, range(3, 9), (3,)),
    labelled("languages", "table-compare-languages", 2, range(3, 10), (3,)),
    labelled("steps-vs-epochs", "table-cv-scaling", 2, range(3, 18), (3,)),
    Table(
        "architectures",
        "table-architectures-cohort-1",
        {2: "dev-clean", 3: "dev-other", 4: "test-clean", 5: "test-other"},
        told={"warmup": 1},
    ),
    by_run("optimizers", "table-ls-optimizer-results", 5, LS, {"seed": 0, "data": 1, "S": 2, "optimizer": 3, "lr": 4}),
    by_run("optimizers", "table-cv-optimizer-results", 5, CV, {"seed": 0, "data": 1, "S": 2, "optimizer": 3, "lr": 4}),
    by_run("specaugment", "table-ls-specaug", 4, LS, {"seed": 0, "data": 1, "specaugment": 2, "S": 3}),
    by_run("specaugment", "table-cv-specaug", 4, CV, {"seed": 0, "data": 1, "specaugment": 2, "S": 3}),
    by_run("fedprox", "table-fedprox-results", 4, LS, {"seed": 0, "data": 1, "mu": 2, "S": 3}),
    by_run("fedprox", "table-fedprox-results", 5, CV, {"seed": 0, "data": 1, "mu": 2, "S": 3, "lr": 4}, 1),
    by_run("longer-training", "table-cv-4k", 3, CV, {"seed": 0, "data": 1, "S": 2}, times=3),
    Table("seed-quality", "table-seed-model-quality", {1: "dev", 2: "dev", 3: "test", 4: "test"}),
    Table("dp-results", "tab:dp-results-extended", _DP_COLUMNS, told=_DP),
    Table("dp-fr-de", "tab:dp-results-fr-de", _DP_COLUMNS, told=_DP),
    Table("dp-ls960", "tab:dp-results-ls960", _DP_COLUMNS, told=_DP),
    Table(
        "dp-ablation",
        "tab:dp-results-ablation",
        {8: "dev", 9: "test", 10: "dev", 11: "test"},
        told={"sigma": 2, "clip_norm": 3, "S": 4, "K": 5},
    ),
    Table("model-size", "tab:dp-results-en-model-size", {2: "dev", 3: "test", 5: "dev", 6: "test"}, told={"sigma": 1}),
)


class Source:
    """The paper's source by line, counted from 1."""

    def __init__(self, path: Path = SOURCE) -> None:
        """Read it."""
        self.lines = ["", *path.read_text(encoding="utf-8").splitlines()]

    def label(self, name: str) -> int:
        """Return the line of a label."""
        return next(number for number, text in enumerate(self.lines) if f"\\label{{{name}}}" in text)

    def body(self, name: str, tabular: int = 0) -> dict[int, list[str]]:
        """Return the lines of a table below its header, cut into cells."""
        here = self.label(name)
        first = max(n for n in range(here) if self.lines[n].startswith("\\begin{table"))
        begins = [n for n in range(first, len(self.lines)) if "\\begin{tabular}" in self.lines[n]]
        rule = next(n for n in range(begins[tabular], len(self.lines)) if self.lines[n].startswith("\\midrule"))
        end = next(n for n in range(rule, len(self.lines)) if "\\bottomrule" in self.lines[n])
        return {n: cells(self.lines[n]) for n in range(rule, end) if "&" in self.lines[n]}

    def header(self, name: str) -> list[str]:
        """Return the cells of the last line above a table's body."""
        rule = min(self.body(name))
        return cells(next(self.lines[n] for n in range(rule - 1, 0, -1) if "&" in self.lines[n]))

    def place(self, line: int, key: str) -> int:
        """Return where a number stands that belongs to `line`: there, or on the line of its set just below."""
        if not set(cells(self.lines[line])) & {"dev-clean", "dev"}:
            return line
        return next(n for n in range(line, line + len(LABELS)) if key in cells(self.lines[n]))


def cells(line: str) -> list[str]:
    """Cut a line of a table into cells, without colours and rules."""
    bare = re.sub(r"\\(row|cell)color(\[gray\])?\{[^}]*\}|\\\\.*$|\$|\\textbf", "", line)
    return [re.sub(r"\\multirow\{\d+\}\{\*\}\{(.*)\}", r"\1", cell.strip()).strip() for cell in bare.split("&")]


def numbers(text: str) -> list[float]:
    """Return the numbers in a text: 15.7 (12.7) are two."""
    return [float(number) for number in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])", text.replace(",", ""))]
