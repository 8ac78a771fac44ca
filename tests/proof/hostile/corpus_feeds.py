"""Feeds `customers` and `prices`: the one overwritten file, and the files of a day."""

import gzip
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal

from tests.proof.hostile.corpus_material import BOM, JUNK
from tests.proof.hostile.corpus_model import PLACES, FileCase, Raw, join, line

Customer = tuple[int, str | None, str | None, str | None, str | None, str | None]
CUSTOMERS_HEADER = "customer_id,name,email,segment,nation,signed_up_at"
ANN: Customer = (1, "Ann", "ann@example.com", "consumer", "DE", "2026-01-05")
BOB: Customer = (2, "Bob", "bob@example.com", "corporate", "FR", "2026-02-06")
PRICES_HEADER = "product_id,cost_usd"
LEFT_OPEN = (
    "a customers file turned away: the table could keep the former version's rows; chosen: they are replaced, by none"
)


def customer_lines(*customers: Customer, header: str = CUSTOMERS_HEADER) -> list[str]:
    """The customers as CSV lines."""
    return [header, *(line("" if value is None else str(value) for value in customer) for customer in customers)]


def named(number: int, name: str) -> Customer:
    """A customer of which only the name matters."""
    return (number, name, f"c{number}@example.com", "consumer", "DE", "2026-03-07")


def customers(name: str, content: bytes, kept: Sequence[Customer], unsure: str = "", **entries: int) -> FileCase:
    """A case of feed customers."""
    counts = Counter({("", reason): count for reason, count in entries.items()})
    return FileCase(name, "customers", lambda _: {"": content}, lambda _: set(kept), lambda _: Counter(counts), unsure)


NAMES = (
    "Smith, John",
    'Dwayne "The Rock" Johnson',
    "O'Brien; DROP TABLE customers",
    "back\\slash\\",
    "Müller Æther 王 🧾",
    "مرحبا",
    "e\u0301 combining",
    "=HYPERLINK(A1)",
    "<b>bold</b> & co",
    "Null",
    "NULL",
    "None",
    "NaN",
    "007",
    "a\u2028b",
    "n" * 100_000,
)
ODD = [named(number, name) for number, name in enumerate(NAMES, start=1)]
TWO_LINES = named(1, "two\nlines")
PADDED = named(1, "  padded  ")

CUSTOMER_CASES: tuple[FileCase, ...] = (
    customers("customers_plain", join(customer_lines(ANN, BOB)), [ANN, BOB]),
    customers("customers_bom_and_crlf", BOM + join(customer_lines(ANN, BOB), "\r\n", end=False), [ANN, BOB]),
    customers("customers_odd_names", join(customer_lines(*ODD)), ODD),
    customers(
        "customers_newline_in_a_name",
        join(customer_lines(TWO_LINES, BOB)),
        [BOB],
        "RFC 4180 allows it; a reader by line makes two malformed lines of it",
        malformed=2,
    ),
    customers(
        "customers_blanks_around_a_name",
        join(customer_lines(PADDED, BOB)),
        [PADDED, BOB],
        "text is kept as it was sent; trimming is defensible",
    ),
    customers(
        "customers_empty_values",
        b"customer_id,name,email,segment,nation,signed_up_at\n1,,,,,\n2,Bob,bob@example.com,corporate,FR,2026-02-06\n",
        [(1, None, None, None, None, None), BOB],
    ),
    customers(
        "customers_empty_values_in_quotes",
        join([CUSTOMERS_HEADER, '1,"","","","",2026-01-05']),
        [(1, None, None, None, None, "2026-01-05")],
        "a quoted empty text could be an empty text instead of null",
    ),
    customers(
        "customers_bad_ids",
        join([*customer_lines(ANN), "x,X,,,,", ",Nobody,,,,", "2.5,Half,,,,", f"{2**63},Big,,,,", "3.0,Three,,,,"]),
        [ANN, (3, "Three", None, None, None, None)],
        bad_type=3,
        null_value=1,
    ),
    customers(
        "customers_same_id_twice",
        join([*customer_lines(ANN, BOB), "01,Anna,anna@example.com,consumer,DE,2026-01-05"]),
        [(1, "Anna", "anna@example.com", "consumer", "DE", "2026-01-05"), BOB],
    ),
    customers(
        "customers_other_order_and_extra_column",
        b"nation,note,signed_up_at,customer_id,segment,email,name\nDE,x,2026-01-05,1,consumer,ann@example.com,Ann\n",
        [ANN],
    ),
    customers(
        "customers_lines_of_other_length",
        join([*customer_lines(ANN), "9,Short", "9,L,o,n,g,2026-01-05,er"]),
        [ANN],
        malformed=2,
    ),
    customers(
        "customers_without_an_optional_column",
        b"customer_id,name,segment,nation,signed_up_at\n1,Ann,consumer,DE,2026-01-05\n",
        [(1, "Ann", None, "consumer", "DE", "2026-01-05")],
        "only customer_id is required, so the file stays; a landing column that is missing could be missing_column",
    ),
    customers(
        "customers_without_their_id",
        b"id,name,email,segment,nation,signed_up_at\n1,Ann,,,,\n",
        [],
        LEFT_OPEN,
        missing_column=1,
    ),
    customers(
        "customers_latin1",
        join(customer_lines(named(1, "Müller"))).decode().encode("latin-1"),
        [],
        LEFT_OPEN,
        malformed=1,
    ),
    customers("customers_no_byte", b"", [], LEFT_OPEN, empty=1),
    customers("customers_header_only", join([CUSTOMERS_HEADER]), [], LEFT_OPEN, **{"no rows": 1}),
    customers("customers_random_bytes", JUNK, [], LEFT_OPEN, unreadable=1),
)


def prices(
    name: str,
    files: Mapping[str, bytes],
    kept: Mapping[int, str],
    entries: Mapping[tuple[str, str], int] | None = None,
    unsure: str = "",
) -> FileCase:
    """A case of feed prices."""
    table = {(product, Decimal(cost).quantize(PLACES)) for product, cost in kept.items()}
    return FileCase(
        name, "prices", lambda _: dict(files), lambda _: set(table), lambda _: Counter(entries or {}), unsure
    )


def price_list(*pairs: tuple[str, str], header: str = PRICES_HEADER) -> bytes:
    """Products and costs as CSV, as they are written."""
    return join([header, *(line(pair) for pair in pairs)])


PLAIN = price_list(("1", "9.99"), ("2", "5"))
BAD_COSTS = ("abc", "9,99", "$9", "NaN", "Infinity", "1e40", "100000000000000", "0x9", "9.99 USD")

PRICE_CASES: tuple[FileCase, ...] = (
    prices("prices_plain", {"p.csv": PLAIN}, {1: "9.99", 2: "5"}),
    prices(
        "prices_bom_crlf_and_order",
        {"p.csv": BOM + b"cost_usd,note,product_id\r\n9.99,x,1\r\n5,,2"},
        {1: "9.99", 2: "5"},
    ),
    prices(
        "prices_odd_numbers",
        {"p.csv": price_list(("007", "+9.9"), ("3.0", "0"), ("-1", "-2.5"), ("4", "99999999999999.9999"))},
        {7: "9.9", 3: "0", -1: "-2.5", 4: "99999999999999.9999"},
    ),
    prices(
        "prices_bad_costs",
        {"p.csv": price_list(("1", "9.99"), *(("5", cost) for cost in BAD_COSTS))},
        {1: "9.99"},
        {("p.csv", "bad_type"): len(BAD_COSTS)},
    ),
    prices(
        "prices_bad_products",
        {"p.csv": price_list(("1", "9.99"), ("x", "1"), ("2.7", "1"), ("", "1"), ("6", ""), ("9" * 20, "1"))},
        {1: "9.99"},
        {("p.csv", "bad_type"): 3, ("p.csv", "null_value"): 2},
    ),
    prices("prices_same_product_twice", {"p.csv": price_list(("1", "9"), ("2", "5"), ("1.0", "8"))}, {1: "8", 2: "5"}),
    prices(
        "prices_two_lists", {"a.csv": PLAIN, "b.csv": price_list(("2", "6"), ("3", "7"))}, {1: "9.99", 2: "6", 3: "7"}
    ),
    prices(
        "prices_list_superseded",
        {"a.csv": PLAIN, "b.csv": price_list(("2", "6"), ("1", "7"))},
        {1: "7", 2: "6"},
        {("a.csv", "no rows"): 1},
    ),
    prices(
        "prices_rounded",
        {"p.csv": price_list(("1", "1.00005"), ("2", "0.33333333333333333333"))},
        {1: "1.0001", 2: "0.3333"},
        unsure="more places than stored: rounded half up, as price_of_many_places",
    ),
    prices(
        "prices_in_formats_of_other_feeds",
        {
            "p.csv": PLAIN,
            "p.csv.gz": gzip.compress(PLAIN, mtime=0),
            "p.json": b'{"product_id": 9, "cost_usd": 1}\n',
            "p.parquet": b"PAR1",
            "p.xlsx": JUNK,
        },
        {1: "9.99", 2: "5"},
        {(key, "outside_layout"): 1 for key in ("p.csv.gz", "p.json", "p.parquet", "p.xlsx")},
        "prices are *.csv; formats known elsewhere are outside the layout of this feed",
    ),
    prices(
        "prices_in_wrong_places",
        {
            "p.csv": PLAIN,
            "hour=07/p.csv": PLAIN,
            "sub/p.csv": PLAIN,
            "/p.csv": PLAIN,
            "/dt=2026-02-30/p.csv": PLAIN,
            "/dt=2026-10-1/p.csv": PLAIN,
            "/dt=2026-09-27/p.csv": PLAIN,
        },
        {1: "9.99", 2: "5"},
        {
            (key, "outside_layout"): 1
            for key in ("hour=07/p.csv", "sub/p.csv", "/p.csv", "/dt=2026-02-30/p.csv", "/dt=2026-10-1/p.csv")
        }
        | {("/dt=2026-09-27/p.csv", "before_start_date"): 1},
    ),
    prices(
        "prices_broken_beside_good",
        {
            "a.csv": PLAIN,
            "b.csv": b"",
            "c.csv": JUNK,
            "d.csv": price_list(("1", "5"), header="product;cost"),
            "e.csv": PRICES_HEADER.encode(),
            "f.csv": join(["product_id,cost_usd,cost_usd", "1,2,3"]),
            "_SUCCESS": b"",
            "g.csv.tmp": PLAIN,
        },
        {1: "9.99", 2: "5"},
        {
            ("b.csv", "empty"): 1,
            ("c.csv", "unreadable"): 1,
            ("d.csv", "missing_column"): 1,
            ("e.csv", "no rows"): 1,
            ("f.csv", "duplicate_column"): 1,
        },
    ),
    prices(
        "prices_only_a_broken_list",
        {"p.csv": PLAIN.replace(b"cost_usd", b"cost")},
        {},
        {("p.csv", "missing_column"): 1},
    ),
    prices(
        "prices_lines_of_other_length",
        {"p.csv": join([PRICES_HEADER, "1,9.99", "2", "3,4,5", "4,1,000.50", line([Raw('"5"'), "6"])])},
        {1: "9.99", 5: "6"},
        {("p.csv", "malformed"): 3},
    ),
)
