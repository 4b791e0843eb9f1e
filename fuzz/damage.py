"""Ways to damage a file: bytes, JSON values and keys, lines, headers of arrays, models and audio, kinds of file."""

import contextlib
import hashlib
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

DEEP = 3_000
STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 7, 200, 2**31, 2**53, 2**63, -(2**63), 2**70, 10**30, 0.5, -0.0, 1e-320, 1e300),
    *(
        float("nan"),
        float("inf"),
        -float("inf"),
        "",
        " ",
        "0",
        "nan",
        "\x1b[31mred",
        "\x1b]0;title\x07",
        "a\nb",
        "\u202e",
    ),
    *(
        "=1+1",
        "+1+1",
        "@SUM(1)",
        "../..",
        "x" * 3000,
        "é",
        "\ud800",
        [],
        {},
        [[]],
        [None],
        {"": None},
        [1, "a"],
        {"a": {}},
    ),
)


def damage(path: Path, random: Random) -> str:
    """Damage a file in one way and return what was done."""
    suffix = path.suffix
    ways: list[Callable[[Path, Random], str]] = [_flip, _cut, _insert, _replace_by]
    ways += {
        ".json": [_json] * 8,
        ".jsonl": [_line] * 8,
        ".yaml": [_yaml] * 8,
        ".npy": [_array] * 6,
        ".safetensors": [_model] * 8,
        ".wav": [_header] * 6,
        ".parquet": [_table] * 8,
        ".tsv": [_cell] * 6,
        ".csv": [_cell] * 6,
        ".txt": [_cell] * 4,
    }.get(suffix, [])
    way = random.choice(ways)
    try:
        done = f"{path.name}: {way(path, random)}"
    except (OSError, ValueError, IndexError, KeyError, TypeError, struct.error, UnicodeError, RecursionError):
        done = f"{path.name}: {_flip(path, random)}"
    with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
        if path.is_file() and not path.is_symlink():
            _get_past_sums(path, random)
    return done


def _flip(path: Path, random: Random) -> str:
    content = bytearray(path.read_bytes())
    for _ in range(random.choice((1, 1, 2, 8))):
        if content:
            content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    path.write_bytes(content)
    return "bits flipped"


def _cut(path: Path, random: Random) -> str:
    size = path.stat().st_size
    os.truncate(path, random.choice((0, 1, size // 2, max(size - 1, 0), random.randrange(size + 1))))
    return f"cut to {path.stat().st_size}"


def _insert(path: Path, random: Random) -> str:
    content, place = path.read_bytes(), 0
    if content:
        place = random.randrange(len(content))
    piece = random.choice(
        (b"\0", b"\xff\xfe", b"\x1b[2J", b"{", b"[" * DEEP, b"9" * 5000, random.randbytes(40), b"\n\n")
    )
    path.write_bytes(content[:place] + piece + content[place:])
    return f"inserted {piece[:10]!r}"


def _replace_by(path: Path, random: Random) -> str:
    kind = random.choice(("nothing", "folder", "dangling", "link", "pipe", "empty"))
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "dangling":
        path.symlink_to("nowhere")
    elif kind == "link":
        others = [other for other in path.parent.iterdir() if other.is_file()]
        path.symlink_to(random.choice(others).name if others else "itself")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "empty":
        path.write_bytes(b"")
    return f"replaced by {kind}"


def retyped(document: Any, random: Random) -> Any:
    """Return a document with one value replaced, one key removed or renamed, or one list repeated."""
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
            places.append((value, key))
            walk(value[key])

    walk(document)
    if not places or random.random() < 0.03:
        return random.choice(STRANGE)
    holder, key = random.choice(places)
    how = random.random()
    if how < 0.7:
        holder[key] = random.choice(STRANGE)
    elif how < 0.85:
        del holder[key]
    elif isinstance(holder, dict):
        holder[random.choice(("x", "", "\x1b[1m", "kind", "name"))] = holder.pop(key)
    else:
        holder.append(holder[key])
    return document


def _text(document: Any, random: Random) -> str:
    if random.random() < 0.04:
        return random.choice(
            ("[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP, "null", "[]", "5", '""', "{}")
        )
    return json.dumps(document)


def _json(path: Path, random: Random) -> str:
    document = json.loads(path.read_bytes())
    for _ in range(random.choice((1, 1, 2))):
        document = retyped(document, random)
    path.write_bytes(_text(document, random).encode(errors="surrogatepass"))
    return "JSON retyped"


def _line(path: Path, random: Random) -> str:
    lines = path.read_bytes().splitlines()
    place, how = random.randrange(len(lines)), random.random()
    if how < 0.6:
        line = _text(retyped(json.loads(lines[place]), random), random)
        lines[place] = line.encode(errors="surrogatepass")
    elif how < 0.8:
        lines[place] = random.choice(
            (b"", b"{}", b"null", b"[]", b"5", b'{"step": 1}', b'{"step": null}', b"\xff", b'"x"')
        )
    else:
        del lines[place]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return f"line {place + 1} changed"


def _yaml(path: Path, random: Random) -> str:
    text = path.read_text()
    if random.random() < 0.5 and text.startswith("{"):
        return _json(path, random)
    lines = text.splitlines()
    place = random.randrange(len(lines))
    key = lines[place].partition(":")[0]
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"b{n}: &b{n} [{'*a,' * 9 if not n else f'*b{n - 1},' * 9}]\n" for n in range(9)
    )
    values = (
        "2020-99-99",
        f"[{'[' * DEEP}",
        "1e999",
        ".nan",
        "!!python/object x",
        "{",
        f"0x{'f' * 40}",
        "null",
        "[1, {2: 3}]",
    )
    lines[place] = random.choice((*(f"{key}: {value}" for value in values), "\t: x", bomb, "- x", "? [a]\n: b"))
    path.write_text("\n".join(lines))
    return f"line {place + 1} of YAML"


def _array(path: Path, random: Random) -> str:
    import numpy as np

    array = np.load(path)
    how = random.randrange(5)
    if how == 0 and array.size:
        flat = array.reshape(-1)
        flat[random.randrange(flat.size)] = (
            random.choice((0, 7, 200, 255)) if array.dtype == np.uint8 else random.choice((-1, 7, 2**60))
        )
    elif how == 1:
        array = array.astype(random.choice((np.float64, np.int32, np.uint64, np.bool_, "S3")))
    elif how == 2:
        array = array[: random.randrange(len(array) + 1)]
    elif how == 3:
        array = array[::-1]
    else:
        array = array.reshape(1, -1)
    np.save(path, array)
    return f"array changed ({how})"


def _model(path: Path, random: Random) -> str:
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header, rest = json.loads(content[8 : 8 + size]), content[8 + size :]
    how = random.randrange(4)
    if how == 0 and "__metadata__" in header:
        described = json.loads(header["__metadata__"]["sottovoce"])
        if random.random() < 0.5:
            described["model"][random.choice(("width", "blocks", "mlp_width", "heads"))] = random.choice(
                (10**6, 10**12, 0, 17)
            )
        else:
            described = retyped(described, random)
        header["__metadata__"]["sottovoce"] = _text(described, random)
    elif how == 1:
        header = retyped(header, random)
    elif how == 2:
        rest = struct.pack("<f", float("nan")) * (len(rest) // 4)
    else:
        size = random.choice((0, 1, 2**40, 2**63))
    encoded = json.dumps(header).encode(errors="surrogatepass")
    length = size if how == 3 else len(encoded)
    path.write_bytes(struct.pack("<Q", length) + encoded + rest)
    return f"model changed ({how})"


def _header(path: Path, random: Random) -> str:
    content = bytearray(path.read_bytes())
    place, form = random.choice(
        ((4, "<I"), (20, "<H"), (22, "<H"), (24, "<I"), (28, "<I"), (32, "<H"), (34, "<H"), (40, "<I"))
    )
    top = 2**16 if form == "<H" else 2**32
    struct.pack_into(form, content, place, random.choice((0, 1, 2, 3, 7, 8000, top // 2, top - 1)) % top)
    path.write_bytes(content)
    return f"header at {place}"


def _table(path: Path, random: Random) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    place = random.randrange(table.num_columns)
    name, how = table.column_names[place], random.randrange(6)
    if how == 0:
        table = table.drop_columns([name])
    elif how == 1:
        table = table.set_column(place, name, pa.nulls(len(table)))
    elif how == 2:
        table = table.set_column(place, name, pa.array([random.choice(("\x1b[31m", "", "a\nb", "=1"))] * len(table)))
    elif how == 3:
        table = table.slice(random.randrange(len(table) + 1))
    elif how == 4:
        table = table.set_column(place, name, pa.nulls(len(table), table.schema.field(place).type))
    else:
        table = table.append_column("extra", pa.array([[1]] * len(table)))
    pq.write_table(table, path)
    return f"column {name} ({how})"


def _cell(path: Path, random: Random) -> str:
    lines = path.read_text(errors="surrogateescape").splitlines()
    between = "," if path.suffix == ".csv" else "\t"
    place = random.randrange(len(lines))
    cells = lines[place].split(between)
    cells[random.randrange(len(cells))] = str(random.choice((*STRANGE, '"', "a" * 200_000, "\0", "\udcff")))
    lines[place] = between.join(cells)
    path.write_text("\n".join(lines) + "\n", errors="surrogateescape" if "\ud800" not in lines[place] else "replace")
    return f"line {place + 1}: a cell"


def companions(path: Path) -> list[Path]:
    """Return the files that are changed along with a file, so that the damage gets past the first check."""
    info = path.parent / "store.json"
    return [info] if info.is_file() and path != info else []


def _get_past_sums(path: Path, random: Random) -> None:
    """Often let a store forget its sizes, and chain the lines of a ledger anew: other checks must then hold."""
    if random.random() < 0.3:
        return
    for info in companions(path):
        document = json.loads(info.read_bytes())
        if isinstance(document, dict):
            document.pop("sizes", None)
            info.write_text(json.dumps(document))
    if path.name in ("ledger.jsonl", "population.jsonl"):
        head, lines = "0" * 64, []
        for line in path.read_bytes().splitlines():
            document = json.loads(line)
            if isinstance(document, dict) and "previous" in document:
                document["previous"] = head
            lines.append(json.dumps(document, ensure_ascii=False).encode())
            head = hashlib.sha256(lines[-1]).hexdigest()
        path.write_bytes(b"\n".join(lines) + b"\n")
