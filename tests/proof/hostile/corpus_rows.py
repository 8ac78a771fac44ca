"""Feed `orders`, row by row: numbers, ranges and faults in CSV, in JSON lines and as text in Parquet."""

from decimal import Decimal

from tests.proof.hostile.corpus_model import MISSING, FileCase, Raw, Sent, at, bad, each, fine, rows
from tests.proof.hostile.corpus_times import epoch, quarter

LONG_MAX = 2**63 - 1


def quantities(**cells: int) -> list[Sent]:
    """One stored row per text of a quantity."""
    return [fine({"quantity": value}, quantity=cell) for cell, value in cells.items()]


NUMBERS_AS_TEXT = (
    rows(
        "numbers_of_a_careful_person",
        [
            *quantities(**{"007": 7, "+5": 5, "3.0": 3, "-4": -4, "0": 0, "-0": 0, "12.000000000000": 12}),
            fine({"unit_price_usd": "7"}, unit_price_usd="7"),
            fine({"unit_price_usd": "12.5"}, unit_price_usd="+012.50"),
            fine({"unit_price_usd": "-3.25"}, unit_price_usd="-3.25"),
            fine({"order_id": 0}, order_id="0"),
            fine({"customer_id": -1}, customer_id="-1"),
        ],
    ),
    rows(
        "integers_with_a_fraction", each("bad_type", "quantity", "2.7", "0.5", "-1.01", "3.0000000000000000000000001")
    ),
    rows(
        "numbers_that_are_words",
        each("bad_type", "quantity", "abc", "two", "x2", "2x", "true", "-", "+", ".", "N/A", "#N/A", "#REF!", "\\N"),
    ),
    rows("numbers_with_currency", each("bad_type", "unit_price_usd", "$12.50", "12.50 USD", "€12.50", "12.50€")),
    rows("numbers_with_thousands_separators", each("bad_type", "unit_price_usd", "1,234.50", "1'234.50", "1 234.50")),
    rows("integers_with_thousands_separators", each("bad_type", "quantity", "1,000", "1.000,0", "1_000", "1'000")),
    rows("decimal_comma_in_quotes", each("bad_type", "unit_price_usd", "12,50", "0,99", "1.234,50")),
    rows(
        "not_a_number_and_infinity",
        [
            *each("bad_type", "unit_price_usd", "NaN", "nan", "Infinity", "-Infinity", "inf", "-inf"),
            *each("bad_type", "discount", "NaN", "Infinity"),
            *each("bad_type", "quantity", "NaN", "inf"),
        ],
    ),
    rows(
        "numbers_of_programmers", each("bad_type", "quantity", "0x10", "0b11", "0o17", "5L", "5d", "5f", "1e", "2**3")
    ),
    rows("java_suffixes_on_a_price", each("bad_type", "unit_price_usd", "5d", "5f", "5D", "0x1p3", "5L")),
    rows(
        "numbers_of_accountants",
        each("bad_type", "quantity", "(5)", "5-", "--5", "+-5", "'5", "=5", "=1+1", "5%", "5 pcs", "1/2"),
    ),
    rows(
        "biggest_and_smallest_bigint",
        [fine({"order_id": LONG_MAX}, order_id=str(LONG_MAX)), fine({"order_id": -(2**63)}, order_id=str(-(2**63)))],
    ),
    rows("bigint_by_one_too_far", each("bad_type", "order_id", str(2**63), str(-(2**63) - 1), f"{2**63}.0")),
    rows("ids_of_twenty_and_forty_digits", each("bad_type", "customer_id", "9" * 20, "9" * 40, "-" + "9" * 25)),
    rows("id_beyond_a_doubles_precision", [fine({"order_id": 2**53 + 1}, order_id=str(2**53 + 1))]),
    rows(
        "id_beyond_a_doubles_precision_with_fraction",
        [fine({"order_id": 2**53 + 1}, order_id=f"{2**53 + 1}.0"), bad("bad_type", order_id=f"{2**53 + 1}.5")],
    ),
    rows("a_million_digits", each("bad_type", "quantity", "9" * 1_000_000)),
    rows(
        "exponent_of_a_billion",
        [*each("bad_type", "quantity", "1e999999999"), bad("bad_type", unit_price_usd="1e999999999")],
    ),
    rows(
        "exponent_of_minus_a_billion",
        each("bad_type", "quantity", "1e-999999999", "5e-2147483649"),
    ),
    rows(
        "exponents",
        [
            *quantities(**{"1e3": 1000, "2.5E1": 25, "30e-1": 3}),
            fine({"unit_price_usd": "1250"}, unit_price_usd="1.25e3"),
            fine({"discount": "0.05"}, discount="5E-2"),
        ],
        "'numbers as text' does not say whether exponents count; these are numbers, and whole where they must be",
    ),
    rows(
        "blanks_around_numbers",
        [*quantities(**{" 5": 5, "6 ": 6, "\t7": 7}), fine({"unit_price_usd": "8.5"}, unit_price_usd=" 8.50 ")],
        "blanks around a value are not mentioned; the value is clear, so it is kept",
    ),
    rows(
        "dots_without_digits_on_one_side",
        [
            *quantities(**{"3.": 3}),
            fine({"unit_price_usd": "0.5"}, unit_price_usd=".5"),
            fine({"discount": "0"}, discount="0."),
        ],
        "'.5' and '3.' are not mentioned; every number parser reads them",
    ),
    rows(
        "digits_of_other_scripts",
        each("bad_type", "quantity", "\uff15", "\u0665", "\u096b", "5\u00b2", "\u2164"),
        "digits of other scripts are digits to some parsers; plain digits are what a number as text consists of",
    ),
    rows(
        "invisible_characters_in_numbers",
        each("bad_type", "quantity", "5\u00a0", "\u200b5", "\ufeff5", "\u22125", "5\u2009000"),
        "a trimmer of Unicode blanks would keep some of these; the value is not a number as it stands",
    ),
    rows(
        "null_spelled_out",
        each("bad_type", "quantity", "null", "NULL", "None", "nil", "nan?"),
        "CSV has no word for null: could be null_value; chosen bad_type, the text is no number",
    ),
    rows(
        "empty_value_in_every_column",
        [
            bad("null_value", **{c: None})
            for c in (
                "order_id",
                "line_number",
                "customer_id",
                "product_id",
                "store_id",
                "quantity",
                "unit_price_usd",
                "discount",
                "ordered_at",
            )
        ],
    ),
    rows(
        "empty_value_in_quotes", [bad("null_value", **{c: Raw('""')}) for c in ("order_id", "discount", "ordered_at")]
    ),
    rows(
        "value_of_blanks_only",
        each("null_value", "quantity", " ", "    ", "\t"),
        "a cell of blanks: empty (null_value) or no number (bad_type); chosen empty",
    ),
)

RANGES = (
    rows(
        "discounts_at_the_edges",
        [fine({"discount": value}, discount=value) for value in ("0", "1", "0.0", "1.0000", "-0", "0.0001", "0.9999")],
    ),
    rows(
        "discounts_out_of_range",
        each("discount_out_of_range", "discount", "-0.01", "1.0001", "-0.0001", "10", "100", "-1"),
    ),
    rows("discounts_in_percent", each("bad_type", "discount", "10%", "10 %", "0,1")),
    rows(
        "discount_out_of_range_behind_the_fourth_place",
        each("discount_out_of_range", "discount", "1.00001", "-0.00001"),
        "after rounding to 4 places these are 1 and 0; what was sent lies outside 0-1, so it is rejected",
    ),
    rows("discount_beyond_its_decimal", each("bad_type", "discount", "1e30", "9" * 30)),
    rows(
        "discount_of_many_places",
        [
            fine({"discount": "0.1235"}, discount="0.12345678901234567890"),
            fine({"discount": "0.3333"}, discount="0." + "3" * 60),
        ],
        "more places than stored: rounded, not rejected",
    ),
    rows(
        "quantities_at_the_edges",
        [
            fine({"quantity": q, "unit_price_usd": "1"}, quantity=str(q), unit_price_usd="1")
            for q in (999_999_999, -999_999_999)
        ],
    ),
    rows(
        "quantities_out_of_range", each("quantity_out_of_range", "quantity", "1000000000", "-1000000000", str(LONG_MAX))
    ),
    rows(
        "amounts_at_the_edges",
        [
            fine({"quantity": 999_999_999, "unit_price_usd": "100000"}, quantity="999999999", unit_price_usd="100000"),
            fine(
                {"quantity": 1, "unit_price_usd": "99999999999999.9999"},
                quantity="1",
                unit_price_usd="99999999999999.9999",
            ),
            fine(
                {"quantity": -1, "unit_price_usd": "99999999999999.9999"},
                quantity="-1",
                unit_price_usd="99999999999999.9999",
            ),
        ],
    ),
    rows(
        "amounts_out_of_range",
        [
            bad("amount_out_of_range", quantity="2", unit_price_usd="50000000000000"),
            bad("amount_out_of_range", quantity="-2", unit_price_usd="50000000000000"),
            bad("amount_out_of_range", quantity="999999999", unit_price_usd="100001"),
            bad("amount_out_of_range", quantity="999999999", unit_price_usd="-99999999999999.9999", discount="1"),
        ],
    ),
    rows(
        "price_beyond_its_decimal",
        [
            bad("bad_type", quantity="1", unit_price_usd="100000000000000"),
            bad("bad_type", quantity="0", unit_price_usd="9" * 40),
        ],
        "10^14 does not fit decimal(18,4) and is an amount out of range too; bad_type comes first",
    ),
    rows(
        "price_of_many_places",
        [
            fine({"unit_price_usd": "1.2346"}, unit_price_usd="1.23456"),
            fine({"unit_price_usd": "1.0001"}, unit_price_usd="1.00005"),
            fine({"unit_price_usd": "-1.0001"}, unit_price_usd="-1.00005"),
            fine({"unit_price_usd": "0"}, unit_price_usd="0.00001"),
            fine({"unit_price_usd": "1.1"}, unit_price_usd="1.0999999999999999999999999999999999999999999999999999"),
        ],
        "more places than stored: rounded half up, as the design rounds revenue; truncation or rejection are possible",
    ),
    rows("zero_and_negative_prices", [fine({"unit_price_usd": v}, unit_price_usd=v) for v in ("0", "-0.0", "-19.99")]),
)

FAULTS = (
    rows(
        "several_faults_in_one_row",
        [
            bad("bad_type", order_id="x", quantity=None, discount="7"),
            bad("bad_type", quantity="1,5", ordered_at=at("%Y-%m-%dT%H:00:00Z", hours=1)),
            bad("null_value", customer_id=None, discount="7", ordered_at=at("%Y-%m-%dT%H:00:00Z", hours=1)),
            bad("wrong_hour", ordered_at=at("%Y-%m-%dT%H:00:00Z", hours=1), discount="7", quantity="1000000000"),
            bad("discount_out_of_range", discount="7", quantity="1000000000", unit_price_usd="1000000"),
            bad("quantity_out_of_range", quantity="1000000000", unit_price_usd="1000000"),
            bad("bad_type", ordered_at="soon", order_id=None),
        ],
    ),
    rows(
        "row_of_commas_only",
        [
            bad(
                "null_value",
                order_id=None,
                line_number=None,
                customer_id=None,
                product_id=None,
                store_id=None,
                quantity=None,
                unit_price_usd=None,
                discount=None,
                ordered_at=None,
            )
        ],
    ),
)

JSON_VALUES = (
    rows(
        "json_numbers_as_strings",
        [
            fine(
                {"order_id": 7, "quantity": 3, "unit_price_usd": "12.5", "discount": "0"},
                order_id="7",
                quantity="3.0",
                unit_price_usd="12.50",
                discount="0",
            )
        ],
        form="jsonl",
    ),
    rows(
        "json_numbers_with_a_fraction",
        [
            fine({"quantity": 3}, quantity=Raw("3.0")),
            bad("bad_type", quantity=Raw("2.7")),
            fine({"quantity": -3}, quantity=Raw("-3.00")),
            bad("bad_type", quantity="2.7"),
        ],
        form="jsonl",
    ),
    rows(
        "json_numbers_with_exponent",
        [
            fine({"quantity": 1000}, quantity=Raw("1e3")),
            fine({"unit_price_usd": "12.5"}, unit_price_usd=Raw("1.25E+1")),
            bad("bad_type", quantity=Raw("1e-3")),
        ],
        "1e3 is a JSON number and whole, so kept",
        form="jsonl",
    ),
    rows(
        "json_numbers_too_big",
        [
            *each("bad_type", "order_id", Raw(str(2**63)), Raw("9" * 40), Raw("1e30"), Raw("-9223372036854775809")),
            fine({"order_id": LONG_MAX}, order_id=Raw(str(LONG_MAX))),
        ],
        form="jsonl",
    ),
    rows(
        "json_exponent_of_a_billion",
        [bad("bad_type", quantity=Raw("1e999999999")), bad("bad_type", unit_price_usd=Raw("1e999999999"))],
        form="jsonl",
    ),
    rows(
        "json_numbers_beyond_a_doubles_precision",
        [
            fine({"order_id": 2**53 + 1}, order_id=Raw(str(2**53 + 1))),
            fine(
                {"quantity": 1, "unit_price_usd": "98765432109876.5432"},
                quantity=1,
                unit_price_usd=Raw("98765432109876.5432"),
            ),
        ],
        form="jsonl",
    ),
    rows(
        "json_nulls_and_missing_keys",
        [
            bad("null_value", quantity=None),
            bad("null_value", ordered_at=None),
            bad("null_value", order_id=MISSING),
            bad("null_value", discount=MISSING),
            bad("null_value", store_id=""),
        ],
        form="jsonl",
    ),
    rows(
        "json_values_of_other_kinds",
        [
            *each("bad_type", "quantity", Raw("true"), Raw("[1]"), Raw('{"value": 1}'), Raw("[]"), Raw("{}"), "two"),
            *each("bad_type", "ordered_at", Raw("true"), Raw('["2026-10-05T07:15:00Z"]'), Raw("{}")),
            *each("bad_type", "unit_price_usd", Raw('{"amount": 1, "currency": "USD"}'), Raw("false")),
        ],
        form="jsonl",
    ),
    rows(
        "json_time_as_epoch_number",
        each(
            "bad_type",
            "ordered_at",
            epoch(1),
            "0",
            Raw("1790000000"),
            Raw("1790000000000"),
            Raw("1790000000.25"),
            Raw("0"),
        ),
        form="jsonl",
    ),
    rows(
        "json_words_in_strings",
        each("bad_type", "quantity", "null", "None", "NaN", "true", "undefined"),
        "the string 'null' is a text, not a null",
        form="jsonl",
    ),
    rows(
        "json_not_a_number_as_strings",
        each("bad_type", "unit_price_usd", "NaN", "Infinity", "-Infinity", "INF"),
        form="jsonl",
    ),
    rows(
        "json_unicode_escapes_in_values",
        [
            fine({"quantity": 5}, quantity=Raw('"\\u0035"')),
            fine({"quantity": 12}, quantity=Raw('"1\\u0032"')),
            bad("bad_type", quantity=Raw('"\\u0660"')),
            bad("bad_type", quantity=Raw('"5\\u0000"')),
        ],
        form="jsonl",
    ),
    rows(
        "json_lone_surrogate_in_a_value",
        each("bad_type", "quantity", Raw('"\\ud800"'), Raw('"5\\udc00"')),
        "grammatically JSON, so the value is of the wrong type; as text it cannot be encoded: malformed is defensible",
        form="jsonl",
    ),
    rows(
        "json_ranges",
        [
            bad("discount_out_of_range", discount=Raw("1.0001")),
            bad("discount_out_of_range", discount=Raw("-0.01")),
            fine({"discount": "1"}, discount=1),
            fine({"discount": "0"}, discount=0),
            bad("quantity_out_of_range", quantity=10**9),
            bad("amount_out_of_range", quantity=2, unit_price_usd=Decimal(50_000_000_000_000)),
            bad("wrong_hour", ordered_at=at("%Y-%m-%dT%H:15:00", hours=1)),
        ],
        form="jsonl",
    ),
)

PARQUET_TEXT = (
    rows(
        "parquet_text_with_bad_values",
        [
            bad("bad_type", quantity="2.7"),
            bad("bad_type", unit_price_usd="12,50"),
            bad("null_value", discount=None),
            bad("null_value", order_id=""),
            bad("bad_type", ordered_at="soon"),
            bad("wrong_hour", ordered_at=at("%Y-%m-%d %H:15:00", hours=1)),
            fine({"quantity": 3}, quantity="3.0"),
            bad("discount_out_of_range", discount="1.0001"),
            bad("bad_type", unit_price_usd="NaN"),
        ],
        form="parquet",
    ),
    rows(
        "parquet_text_with_times",
        [
            *quarter("%Y-%m-%dT%H:%M:%S+02:00", hours=2),
            *quarter("%Y-%m-%d %H:%M:%S"),
            bad("bad_type", ordered_at="2026-02-30T07:15:00Z"),
            bad("wrong_hour", ordered_at="9999-12-31T23:59:59Z"),
        ],
        form="parquet",
    ),
)

ROW_CASES: tuple[FileCase, ...] = NUMBERS_AS_TEXT + RANGES + FAULTS + JSON_VALUES + PARQUET_TEXT
