"""No form that is inferred changes a value of its own sample: random samples against an oracle, in memory.

The oracle knows what each column means. It reads a cell's text by the declared form with Python's own numbers and
times, and does not use the readers' code.
"""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dagster_tidemark.scaffold.sample import Sample, read_sample
from tests.tidemark.lakehouse.parsing.declared import rows_of

MARKS = ["NA", "-", "None", "N/A", "n/a", "null", "NULL", "--", "#N/A"]
Cells = Callable[[Random], str]
STRPTIME = {
    "dd.MM.yyyy": "%d.%m.%Y",
    "dd.MM.yy": "%d.%m.%y",
    "dd/MM/yyyy": "%d/%m/%Y",
    "MM/dd/yyyy": "%m/%d/%Y",
    "d.M.yyyy": "%d.%m.%Y",
    "d/M/yyyy": "%d/%m/%Y",
    "M/d/yyyy": "%m/%d/%Y",
    "yyyyMMdd": "%Y%m%d",
    "dd.MM.yyyy HH:mm": "%d.%m.%Y %H:%M",
}
PLACES = {"epoch seconds": 0, "epoch millis": 3, "epoch micros": 6}

WORDS = ["DE", "FR", "a, b", "Zoë", "x;y", "no", "1,5 kg", "7|8", "#1", "a'b", "12-B", "é\tz", "3.5.x"]
TEXTS: Mapping[str, Cells] = {
    "country": lambda r: r.choice([*WORDS, *MARKS]),
    "remark": lambda r: r.choice(WORDS),
    "grade": lambda r: r.choice(["A", "B", *MARKS]),
    "only_marks": lambda r: r.choice(MARKS[:3]),
    "zip": lambda r: r.choice(["02115", "00501", "94107", *MARKS[:2]]),
    "code": lambda r: r.choice(["1,5", "1.5", "1,234", "1,234,567", "007", "1'000"]),
    "article_number": lambda r: r.choice(["1.234", "1.234,50", "12,50", "09"]),
    "version": lambda r: r.choice(["10.02.03", "11.12.04", "01.01.2020"]),
    "size": lambda r: r.choice(["1,5", "2,5", "XL", "-"]),
    "sizes": lambda r: r.choice(["36,37,x", "36"]),
    "ip": lambda r: f"10.{r.randint(0, 99)}.0.1",
    "born": lambda r: f"{r.randint(10, 28)}.0{r.randint(1, 9)}.{r.choice(['75', '99'])}",
}
"""Columns of texts: the value of each cell has to be the text. A name may be that of a number or of a time."""

IDS: Mapping[str, Cells] = {
    name: lambda r: str(r.randint(1_000_000_000, 1_999_999_999))
    for name in (
        "created_by", "end_customer_id", "start_number", "time_id", "updated_count", "date_amount", "cpu_time",
        "elapsed_time_ns", "start", "updated_by_user", "atId", "request_time_ms",
    )
}  # fmt: skip
"""Columns of whole numbers of ten digits, as epochs in seconds have."""

NUMBERS: Mapping[str, Cells] = {
    "amount": lambda r: f"{r.randint(-999, 999_999) / 100:.2f}",
    "n": lambda r: str(r.randint(-5, 12_000)),
    "share": lambda r: r.choice([".5", "0.25", "1e-3"]),
    "betrag": lambda r: f"{r.randint(0, 9_999_999) / 100:,.2f}".translate(str.maketrans(",.", ".,")),
    "price": lambda r: f"{r.randint(0, 9_999_999) / 100:,.2f}",
    "preis": lambda r: f"{r.randint(0, 9_999) / 100:.2f}".replace(".", ","),
    "people": lambda r: f"{r.randint(0, 9_999_999):,}",
    "franken": lambda r: f"{r.randint(0, 9_999_999):,}".replace(",", "'"),
}
TIMES: Mapping[str, Cells] = {
    "created_at": lambda r: str(r.randint(1_000_000_000, 1_999_999_999)),
    "event_ts": lambda r: str(r.randint(1_000_000_000_000, 1_999_999_999_999)),
    "sent_time_ms": lambda r: str(r.randint(1_000_000_000_000, 1_999_999_999_999)),
    "epoch": lambda r: str(r.randint(4_000_000_000, 4_300_000_000)),  # partly after 2100
    "booked": lambda r: f"{moment(r):%d.%m.%Y}",
    "valued": lambda r: f"{moment(r):%d.%m.%y}",
    "order_date": lambda r: f"{moment(r):%Y%m%d}",
    "seen": lambda r: f"{moment(r):%d/%m/%Y}",
    "at": lambda r: f"{moment(r):%d.%m.%Y %H:%M}",
    "day": lambda r: f"{moment(r):%Y-%m-%d}",
    "began": lambda r: f"{moment(r):%Y-%m-%dT%H:%M:%SZ}",
}


def moment(random: Random) -> datetime:
    return datetime(1990, 1, 1, tzinfo=UTC) + timedelta(minutes=random.randrange(60 * 24 * 365 * 60))


def columns_of(random: Random) -> dict[str, list[str]]:
    """Return random columns. Some columns of numbers and times, and of ids, hold marks for missing values."""
    count = random.randint(2, 12)
    found: dict[str, list[str]] = {}
    for kind in (TEXTS, IDS, NUMBERS, TIMES):
        for name in random.sample([*kind], random.randint(0, 3)):
            found[name] = [kind[name](random) for _ in range(count)]
            for mark in random.sample(MARKS, random.choice([0, 0, 1, 2])) if kind is not TEXTS else ():
                found[name][random.randrange(count)] = mark
    for name in {"size", "sizes"} & found.keys():
        found[name][0] = "XL"
    found["who"] = ["x"] * count
    found["what"] = [f"w{n}" for n in range(count)]
    return dict(random.sample([*found.items()], len(found)))


def as_file(random: Random, columns: Mapping[str, Sequence[str]]) -> tuple[str, bytes]:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if random.random() < 0.25:
        text = "".join(json.dumps({name: as_json(cell) for name, cell in row.items()}) + "\n" for row in rows)
        return "a.jsonl", text.encode()
    out = io.StringIO()
    out.write(random.choice(["", "", "# by hand\n"]))
    writer = csv.DictWriter(out, [*columns], delimiter=random.choice(",;\t|"), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return "a.csv", out.getvalue().encode(random.choice(["utf-8", "cp1252", "utf-16"]))


def as_json(cell: str) -> object:
    """Return whole numbers as numbers, other cells as texts."""
    return int(cell) if cell.isdigit() and str(int(cell)) == cell else cell


def is_kept(text: str, value: Any, name: str, seen: Sample, others: Sequence[str], *, is_later: bool = False) -> bool:
    """Return True if a loaded value still shows the text of its cell.

    Args:
        is_later: True for a cell of a later file, which may hold other years than the sample.
    """
    kind, form = seen.columns[name], seen.settings.format
    if value is None:
        return form is not None and text in form.typed_nulls and kind != "string" and any(map(holds_digit, others))
    if kind == "string":
        return bool(value == text)
    if name in TEXTS or (name in IDS and kind != "bigint"):
        return False
    if kind in ("date", "timestamp"):
        pattern = str(form.times.get(name, "")) if form else ""
        if pattern in PLACES:
            exact = (value.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
            is_likely = is_later or 1990 <= value.year < 2100
            return bool(exact == int(text) * 10 ** (6 - PLACES[pattern])) and is_likely
        read = datetime.strptime(text, STRPTIME[pattern]) if pattern else datetime.fromisoformat(text)
        return bool(value == read.date() if kind == "date" else value.replace(tzinfo=None) == read.replace(tzinfo=None))
    decimal, thousands = getattr(form, "decimal", "."), getattr(form, "thousands", None)
    plain = text.replace(thousands, "") if thousands else text
    return Decimal(plain.replace(decimal, ".")) == Decimal(repr(value) if isinstance(value, float) else value)


def holds_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


def loaded(seen: Sample, file: str, body: bytes) -> list[tuple[Any, ...]]:
    return rows_of(body, seen.columns, key=file, exact=True, recognized=True, **seen.settings.options)


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(8))
def test_every_cell_of_a_random_sample_is_loaded_as_it_is_written(seed: int, tmp_path: Path) -> None:
    random, found = Random(seed), set[str]()
    for _ in range(60):
        columns = columns_of(random)
        file, body = as_file(random, columns)
        (tmp_path / file).write_bytes(body)
        seen = read_sample(tmp_path / file)
        rows = loaded(seen, file, body)
        assert [row[len(seen.columns)] for row in rows] == [None] * len(columns["what"]), (rows, body)
        for name, texts in columns.items():
            at = [*seen.columns].index(name)
            for text, row in zip(texts, rows, strict=True):
                value, left_to_spark = row[at], row[-1]
                if value is None and left_to_spark and left_to_spark[at] == text and name == "share":
                    continue  # .5 and 1e-3 reach Spark as they are written, and Spark casts them
                others = [t for t in texts if t not in MARKS]
                assert is_kept(text, value, name, seen, others), (name, text, value, seen.settings, body)
        found |= {seen.columns[name] for name in columns}
        found |= seen.settings.format.options.keys() if seen.settings.format else set()
    assert found >= {"string", "bigint", "decimal(18,4)", "date", "timestamp", "typed_nulls", "times", "decimal"}


def later_columns(random: Random, names: Sequence[str]) -> dict[str, list[str]]:
    """Return other values for the same columns, with marks for missing values in each column."""
    kinds = {**TEXTS, **IDS, **NUMBERS, **TIMES}
    found = {name: [kinds[name](random) for _ in range(12)] if name in kinds else ["x"] * 12 for name in names}
    for name in found.keys() - {"who"}:
        found[name][random.randrange(12)] = random.choice(MARKS)
    for at, day in enumerate(found.get("valued", [])):  # years of two digits are 2000 to 2099, as the command says
        found["valued"][at] = day if day in MARKS or day[-2:] < "69" else f"{day[:-2]}30"
    return found


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(4))
def test_every_cell_of_a_random_later_file_is_loaded_as_written_or_named(seed: int, tmp_path: Path) -> None:
    random, kept = Random(f"later {seed}"), 0
    for form in range(60):
        columns = columns_of(random)
        file, body = as_file(Random(form), columns)
        (tmp_path / file).write_bytes(body)
        seen = read_sample(tmp_path / file)
        later = later_columns(random, [*columns])
        rows = loaded(seen, file, as_file(Random(form), later)[1])
        assert len(rows) == 12
        for name, texts in later.items():
            at = [*seen.columns].index(name)
            for text, row in zip(texts, rows, strict=True):
                value, left_to_spark = row[at], row[-1]
                if row[len(seen.columns)] or (value is None and left_to_spark and left_to_spark[at] == text):
                    continue  # the row is rejected, or Spark's exact rule takes the text or rejects the row
                assert is_kept(text, value, name, seen, ["1"], is_later=True), (name, text, value, seen.settings, body)
                kept += 1
    assert kept > 1_000


@pytest.mark.parametrize("mark", ["NA", "-", "None", "N/A"])
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_mark_is_missing_among_numbers_and_a_value_of_a_text_column(mark: str, ending: str, tmp_path: Path) -> None:
    rows = [("1", mark, "5"), ("2", "DE", mark), ("3", mark, "7")]
    lines = [",".join(row) for row in [("trip_id", "country", "amount"), *rows]]
    objects = [{"trip_id": n, "country": country, "amount": as_json(amount)} for n, country, amount in rows]
    lines = lines if ending == "csv" else [json.dumps(row) for row in objects]
    path = tmp_path / f"a.{ending}"
    path.write_text("\n".join(lines))

    seen = read_sample(path)
    assert (seen.columns["country"], seen.columns["amount"]) == ("string", "bigint")
    assert seen.form == [f"typed_nulls {mark!r}: it stands among the numbers or times of amount"]
    rows = loaded(seen, path.name, path.read_bytes())
    assert [row[1:3] for row in rows] == [(mark, 5), ("DE", None), (mark, 7)]

    decided = read_sample(path, options={"nulls": (mark,)})
    assert decided.columns["amount"] == "bigint"
    assert [row[1:3] for row in loaded(decided, path.name, path.read_bytes())] == [(None, 5), ("DE", None), (None, 7)]


def test_mark_among_numbers_and_times_is_missing_there_and_a_value_of_later_texts(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("trip_id,country,amount,day\n1,DE,5,NA\n2,FR,NA,2026-10-01\n")
    seen = read_sample(tmp_path / "a.csv")
    assert dict(seen.columns) == {"trip_id": "bigint", "country": "string", "amount": "bigint", "day": "date"}
    assert seen.form == ["typed_nulls 'NA': it stands among the numbers or times of amount"]
    later = b"trip_id,country,amount,day\n3,NA,NA,NA\n"  # a customer of Namibia
    assert [row[:4] for row in loaded(seen, "a.csv", later)] == [(3, "NA", None, None)]


@pytest.mark.parametrize("name", IDS)
def test_number_like_an_epoch_stays_a_number_unless_the_name_is_that_of_a_time(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"n,{name}\n1,1000000001\n2,1000000002\n3,1234567890\n")
    seen = read_sample(path)
    assert seen.columns[name] == ("string" if name == "start_number" else "bigint") and seen.settings.format is None
    assert f"give --time '{name}=epoch seconds'" in "\n".join(seen.form)
    decided = read_sample(path, options={"times": {name: "epoch seconds"}})
    assert decided.columns[name] == "timestamp"


@pytest.mark.parametrize("name", ["created_at", "createdAt", "event_ts", "timestamp", "time_unix", "date", "epoch_s"])
@pytest.mark.parametrize(("last", "kind"), [("1234567890", "timestamp"), ("4102444800", "bigint")])
def test_epoch_needs_years_from_1990_to_2100(name: str, last: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"n,{name}\n1,1000000001\n2,{last}\n")
    seen = read_sample(tmp_path / "a.csv")
    assert seen.columns[name] == kind
    assert ("--time" in "\n".join(seen.form)) == (kind == "bigint")


def test_rows_that_look_like_comments_are_loaded(tmp_path: Path) -> None:
    body = b"# by hand\ntag,n\n#a,1\nb,2\n"
    (tmp_path / "a.csv").write_bytes(body)
    assert [row[:2] for row in loaded(read_sample(tmp_path / "a.csv"), "a.csv", body)] == [("#a", 1), ("b", 2)]


def test_years_of_two_digits_after_2068_stay_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,born\n1,08.12.25\n2,31.12.75\n")
    seen = read_sample(tmp_path / "a.csv")
    assert seen.columns["born"] == "string"
    assert seen.form == [
        "born stays text: '31.12.75' is 2075-12-31 by 'dd.MM.yy'; if that is right, give --time born=dd.MM.yy"
    ]
