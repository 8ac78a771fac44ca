"""Feed `orders` as CSV: encodings, line ends, separators, quotes, headers, and files that are something else."""

import gzip

from tests.proof.hostile.corpus_material import (
    BOM,
    DUPLICATE_COLUMN,
    EMPTY,
    HTML,
    JUNK,
    MEGABYTE,
    MISSING_COLUMN,
    NO_ROWS,
    ONE_MALFORMED,
    PNG,
    SURE,
    UNREADABLE,
    XLSX,
    XML,
    Table,
    archive,
    fixed,
)
from tests.proof.hostile.corpus_model import (
    ALL,
    COLUMNS,
    HEADER,
    Content,
    FileCase,
    Outcome,
    csv,
    headed,
    join,
    jsonl,
    keeps,
    line,
    lines,
    one,
    parquet,
    text,
    with_line,
)


def with_extra(value: str, name: str = "note") -> Content:
    """The good CSV file with a column nobody asked for."""
    return lambda start: csv(start, extra={name: value})


def columns_in_order(*order: str) -> Content:
    """The good CSV file with its columns in another order."""
    return lambda start: join([line(order), *(line(text(start, number)[c] for c in order) for number in (1, 2, 3))])


def without(column: str) -> Content:
    """The good CSV file without a column."""
    return columns_in_order(*(c for c in COLUMNS if c != column))


def every_line(change: str, header: str | None = None) -> Content:
    """The good CSV file with every line put into a pattern, the header into another one if given."""
    return lambda start: join(
        (header or change if index == 0 else change).format(part) for index, part in enumerate(lines(start))
    )


CSV_FILES: Table = (
    # Encodings
    ("utf8_bom", lambda s: BOM + csv(s), ALL, SURE),
    ("utf8_bom_and_crlf", lambda s: BOM + join(lines(s), "\r\n"), ALL, SURE),
    (
        "utf8_bom_twice",
        lambda s: BOM * 2 + csv(s),
        MISSING_COLUMN,
        "the second BOM belongs to the first column's name, which is then missing; a lenient reader drops both",
    ),
    (
        "utf16_with_bom",
        lambda s: csv(s).decode().encode("utf-16"),
        UNREADABLE,
        "a reader that looks at the BOM could decode UTF-16; the design names no encoding, so UTF-8 is assumed",
    ),
    (
        "utf16_le_without_bom",
        lambda s: csv(s).decode().encode("utf-16-le"),
        UNREADABLE,
        "every second byte is NUL: not text; taken as UTF-8 it could be missing_column",
    ),
    ("utf16_be_without_bom", lambda s: csv(s).decode().encode("utf-16-be"), UNREADABLE, "as utf16_le_without_bom"),
    ("utf32_with_bom", lambda s: csv(s).decode().encode("utf-32"), UNREADABLE, "as utf16_with_bom"),
    (
        "latin1_byte_in_an_extra_column",
        lambda s: csv(s, extra={"note": "Müller"}).decode().encode("latin-1"),
        UNREADABLE,
        "not UTF-8, hence no text; but only a column nobody reads is hit, so keeping the rows is defensible",
    ),
    (
        "nul_byte_in_a_value",
        with_line("4,1,14,24,34,\x002,19.99,0.1,x"),
        keeps(1, 2, 3, bad_type=1),
        "NUL is valid UTF-8, so the row is bad_type; a check for binary content could turn the file away",
    ),
    (
        "latin1_byte_in_one_line",
        lambda s: csv(s) + line(text(s, 4).values()).encode().replace(b"14,", b"M\xfcller,") + b"\n",
        ONE_MALFORMED,
        SURE,
    ),
    (
        "character_cut_in_two",
        lambda s: csv(s) + line(text(s, 4).values()).encode().replace(b"14,", b"\xc3,") + b"\n",
        ONE_MALFORMED,
        SURE,
    ),
    (
        "surrogate_written_as_utf8",
        lambda s: csv(s) + line(text(s, 4).values()).encode().replace(b"14,", b"\xed\xa0\x80,") + b"\n",
        ONE_MALFORMED,
        SURE,
    ),
    ("replacement_character_in_an_extra_column", with_extra("\ufffd"), ALL, SURE),
    ("non_ascii_in_an_extra_column", with_extra("Grüße 你好 🧾 עברית"), ALL, SURE),
    # Line ends
    ("crlf", lambda s: join(lines(s), "\r\n"), ALL, SURE),
    (
        "lone_cr",
        lambda s: join(lines(s), "\r"),
        ALL,
        "line ends are not named; old spreadsheets write a lone CR, and readers know it",
    ),
    ("mixed_line_ends", lambda s: ("{}\r\n{}\n{}\r\n{}".format(*lines(s))).encode(), ALL, SURE),
    ("no_newline_at_the_end", lambda s: join(lines(s), end=False), ALL, SURE),
    ("crlf_without_the_last", lambda s: join(lines(s), "\r\n", end=False), ALL, SURE),
    ("blank_lines_between", lambda s: join(lines(s), "\n\n"), ALL, SURE),
    ("blank_lines_at_the_end", lambda s: csv(s) + b"\n\r\n\n", ALL, SURE),
    (
        "blank_line_before_the_header",
        lambda s: b"\n" + csv(s),
        ALL,
        "the first line that is not blank is taken for the header",
    ),
    (
        "lines_of_blanks_between",
        lambda s: join(lines(s), "\n   \t\n"),
        ALL,
        "a line of blanks is taken for a blank line; as a row it would be malformed",
    ),
    (
        "separators_of_other_worlds_in_a_value",
        with_extra("a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg"),
        ALL,
        "only CR and LF end a line; these are line ends to some programming languages",
    ),
    (
        "control_z_at_the_end",
        lambda s: csv(s) + b"\x1a",
        ONE_MALFORMED,
        "the end-of-file mark of DOS is a line with one field",
    ),
    # Separators
    ("semicolons", lambda s: csv(s).replace(b",", b";"), MISSING_COLUMN, SURE),
    ("tabs", lambda s: csv(s).replace(b",", b"\t"), MISSING_COLUMN, SURE),
    ("pipes", lambda s: csv(s).replace(b",", b"|"), MISSING_COLUMN, SURE),
    (
        "semicolons_under_a_comma_header",
        lambda s: join([HEADER, *(part.replace(",", ";") for part in lines(s)[1:])]),
        keeps(malformed=3),
        SURE,
    ),
    ("excel_sep_line_first", lambda s: b"sep=,\n" + csv(s), MISSING_COLUMN, SURE),
    ("trailing_comma_in_rows_only", every_line("{},", "{}"), keeps(malformed=3), SURE),
    (
        "trailing_comma_in_every_line",
        every_line("{},"),
        ALL,
        "a new column without a name: ignored like any new column",
    ),
    (
        "three_trailing_commas_in_every_line",
        every_line("{},,,"),
        ALL,
        "three columns without a name: ignored; strictly they are duplicates of one another",
    ),
    (
        "trailing_comma_in_the_header_only",
        every_line("{}", "{},"),
        keeps(malformed=3),
        "the rows have a field less than the header",
    ),
    ("decimal_comma_unquoted", with_line("4,1,14,24,34,2,19,99,0.1,2026-10-05T07:15:00Z"), ONE_MALFORMED, SURE),
    # Lines that are no rows
    ("line_with_too_few_fields", with_line("4,1,14"), ONE_MALFORMED, SURE),
    ("line_with_one_field_less", with_line("4,1,14,24,34,2,19.99,0.1"), ONE_MALFORMED, SURE),
    (
        "line_with_one_field_more",
        with_line("4,1,14,24,34,2,19.99,0.1,2026-10-05T07:15:00Z,surplus"),
        ONE_MALFORMED,
        SURE,
    ),
    ("line_of_a_million_bytes", with_line("x" * MEGABYTE), ONE_MALFORMED, SURE),
    ("line_of_a_million_commas", with_line("," * MEGABYTE), ONE_MALFORMED, SURE),
    ("extra_value_of_a_million_bytes", with_extra("x" * MEGABYTE), ALL, SURE),
    (
        "report_lines_around_the_rows",
        lambda s: csv(s) + b"--------\n(3 rows affected)\n# end of export\n",
        keeps(1, 2, 3, malformed=3),
        SURE,
    ),
    ("comment_line_between", with_line("# second page"), ONE_MALFORMED, SURE),
    ("total_line_at_the_end", lambda s: csv(s) + b"TOTAL,,,,,6,59.97,,\n", keeps(1, 2, 3, bad_type=1), SURE),
    ("header_again_between", with_line(HEADER), keeps(1, 2, 3, bad_type=1), SURE),
    ("html_line_between", with_line("<br/>"), ONE_MALFORMED, SURE),
    (
        "formula_injection",
        with_line('"=HYPERLINK(""http://x"",""y"")",1,14,24,34,2,19.99,0.1,2026-10-05T07:15:00Z'),
        keeps(1, 2, 3, bad_type=1),
        SURE,
    ),
    ("last_line_cut_short", lambda s: csv(s) + b"4,1,14,24,3", ONE_MALFORMED, SURE),
    # Quotes
    (
        "everything_quoted",
        lambda s: join(",".join(f'"{cell}"' for cell in part.split(",")) for part in lines(s)),
        ALL,
        SURE,
    ),
    ("comma_in_quotes", with_extra("one, two, three"), ALL, SURE),
    ("doubled_quotes_in_quotes", with_extra('12" pizza, "extra" cheese'), ALL, SURE),
    (
        "newline_in_quotes",
        with_extra("first line\nsecond line"),
        ALL,
        "RFC 4180 allows it; the design counts positions by line, which would make two malformed lines of each row",
    ),
    ("crlf_in_quotes", with_extra("first line\r\nsecond, line"), ALL, "as newline_in_quotes"),
    (
        "backslash_before_the_closing_quote",
        with_extra("C:\\exports,\\"),
        ALL,
        "RFC 4180 has no backslash escape; some readers do",
    ),
    (
        "backslash_escaped_quote",
        with_line('4,1,14,24,34,2,19.99,"0\\"1",2026-10-05T07:15:00Z'),
        keeps(1, 2, 3, bad_type=1),
        "nine fields to every lenient reader, one of them no number; strictly no RFC 4180 (malformed)",
    ),
    (
        "quote_inside_an_unquoted_value",
        lambda s: join([HEADER + ",note", *(part + ',12" disc' for part in lines(s)[1:])]),
        ALL,
        "RFC 4180 forbids it, every reader takes it",
    ),
    (
        "quote_never_closed_in_the_last_line",
        lambda s: csv(s) + b'"4,1,14,24,34,2,19.99,0.1,2026-10-05T07:15:00Z\n',
        ONE_MALFORMED,
        SURE,
    ),
    (
        "quote_never_closed_in_the_middle",
        with_line('"4,1,14,24,34,2,19.99,0.1,2026-10-05T07:15:00Z'),
        ONE_MALFORMED,
        "by RFC 4180 the quote swallows the rest of the file (row 1 and one malformed); by line it costs one line",
    ),
    (
        "quote_never_closed_in_the_last_field",
        with_line('4,1,14,24,34,2,19.99,0.1,"2026-10-05T07:15:00Z'),
        ONE_MALFORMED,
        SURE,
    ),
    (
        "quote_never_closed_that_swallows_much",
        lambda s: join([HEADER, '"', *lines(s)[1:]]),
        ONE_MALFORMED,
        "as quote_never_closed_in_the_middle",
    ),
    (
        "blank_before_a_quote",
        with_line('4,1,14,24,34, "x, y",19.99,0.1,2026-10-05T07:15:00Z'),
        ONE_MALFORMED,
        "by RFC 4180 a quote after a blank opens nothing, so the comma splits; a lenient reader says bad_type",
    ),
    # Headers
    ("columns_in_reverse_order", columns_in_order(*reversed(COLUMNS)), ALL, SURE),
    ("columns_in_alphabetical_order", columns_in_order(*sorted(COLUMNS)), ALL, SURE),
    ("header_quoted", headed(",".join(f'"{column}"' for column in COLUMNS)), ALL, SURE),
    (
        "header_in_capitals",
        headed(HEADER.upper()),
        ALL,
        "case of column names is not named; SQL does not care, so kept",
    ),
    ("header_in_mixed_case", headed(HEADER.title()), ALL, "as header_in_capitals"),
    (
        "header_with_blanks_around",
        headed(HEADER.replace(",", " , ")),
        ALL,
        "blanks around a column's name are not named; kept",
    ),
    ("header_with_blanks_for_underscores", headed(HEADER.replace("_", " ")), MISSING_COLUMN, SURE),
    ("header_in_camel_case", headed(HEADER.title().replace("_", "")), MISSING_COLUMN, SURE),
    ("header_of_another_language", headed(HEADER.replace("quantity", "menge")), MISSING_COLUMN, SURE),
    ("header_with_a_letter_of_another_script", headed(HEADER.replace("store", "st\u043ere")), MISSING_COLUMN, SURE),
    ("header_with_an_invisible_character", headed(HEADER.replace("discount", "discount\u200b")), MISSING_COLUMN, SURE),
    ("header_missing", lambda s: join(lines(s)[1:]), MISSING_COLUMN, SURE),
    ("header_after_a_title", lambda s: b"Orders of Monday,,,\n" + csv(s), MISSING_COLUMN, SURE),
    ("header_behind_a_hash", headed("#" + HEADER), MISSING_COLUMN, SURE),
    ("header_cut_short", headed("order_id,line_number,cust"), MISSING_COLUMN, SURE),
    ("first_column_missing", without("order_id"), MISSING_COLUMN, SURE),
    ("last_column_missing", without("ordered_at"), MISSING_COLUMN, SURE),
    ("column_twice", every_line("{},7", HEADER + ",quantity"), DUPLICATE_COLUMN, SURE),
    ("column_twice_with_equal_values", every_line("{},2", HEADER + ",quantity"), DUPLICATE_COLUMN, SURE),
    (
        "column_twice_in_other_case",
        every_line("{},7", HEADER + ",Quantity"),
        DUPLICATE_COLUMN,
        "if case does not count the two are one; if it does, the second is a new column and the rows stay",
    ),
    (
        "column_twice_and_another_missing",
        headed(HEADER.replace("store_id", "product_id")),
        Outcome({}, {"missing_column": 1}),
        "missing_column and duplicate_column at once, no order given for files; chosen in the order of the list",
    ),
    (
        "extra_column_twice",
        every_line("{},a,b", HEADER + ",note,note"),
        ALL,
        "a duplicate of a column nobody reads: ignored",
    ),
    (
        "extra_columns_named_like_the_tables_own",
        every_line("{},x,x,x,x,x,x,x", HEADER + ",hour,dt,revenue_usd,source_file,source_version,arrived_at,loaded_by"),
        ALL,
        SURE,
    ),
    (
        "extra_columns_named_like_a_readers_own",
        every_line("{},x,x,x,x,x,x,x", HEADER + ",_metadata,_corrupt_record,value,content,reason,row_number,row_index"),
        ALL,
        SURE,
    ),
    (
        "extra_columns_with_odd_names",
        every_line("{},1,2,3,4,5,6", HEADER + ',a.b,`tick`,"q""q",é,1,select *'),
        ALL,
        SURE,
    ),
    (
        "thirty_thousand_extra_columns",
        every_line("{}" + ",x" * 30_000, "{}," + ",".join(f"c{i}" for i in range(30_000))),
        ALL,
        "a reader's limit on columns may turn the file away; new columns are to be ignored",
    ),
    ("header_name_of_a_million_bytes", with_extra("x", "n" * MEGABYTE), ALL, SURE),
    # Nothing in it
    ("no_byte", fixed(b""), EMPTY, SURE),
    ("one_newline", fixed(b"\n"), EMPTY, SURE),
    ("blank_lines_only", fixed(b"\n\r\n\n\n"), EMPTY, SURE),
    ("blanks_and_tabs_only", fixed(b"   \n\t\t\n  "), EMPTY, "a line of blanks counts as blank"),
    ("bom_only", fixed(BOM), EMPTY, "three bytes, no text: nothing but a blank line"),
    ("bom_and_blank_lines", fixed(BOM + b"\n\n"), EMPTY, "as bom_only"),
    ("header_only", fixed(HEADER.encode() + b"\n"), NO_ROWS, SURE),
    ("header_only_without_newline", fixed(BOM + HEADER.encode()), NO_ROWS, SURE),
    ("header_and_blank_lines", fixed(HEADER.encode() + b"\n\n\r\n\n"), NO_ROWS, SURE),
    # Something else
    ("random_bytes_as_csv", fixed(JUNK), UNREADABLE, SURE),
    ("zero_bytes_as_csv", fixed(b"\0" * 4096), UNREADABLE, SURE),
    ("picture_as_csv", fixed(PNG), UNREADABLE, SURE),
    ("spreadsheet_as_csv", fixed(XLSX), UNREADABLE, SURE),
    ("zip_as_csv", fixed(archive("orders.csv")), UNREADABLE, SURE),
    ("gzip_as_csv", lambda s: gzip.compress(csv(s), mtime=0), UNREADABLE, SURE),
    ("parquet_as_csv", parquet, UNREADABLE, SURE),
    ("json_lines_as_csv", jsonl, MISSING_COLUMN, SURE),
    ("html_error_page_as_csv", fixed(HTML.encode()), MISSING_COLUMN, SURE),
    ("xml_error_as_csv", fixed(XML.encode()), MISSING_COLUMN, SURE),
    ("one_word_as_csv", fixed(b"null"), MISSING_COLUMN, SURE),
    (
        "binary_junk_after_good_rows",
        lambda s: csv(s) + JUNK,
        UNREADABLE,
        "a part of it is text: rows and malformed lines, or no text at all; chosen no text",
    ),
)


CSV_CASES: tuple[FileCase, ...] = tuple(
    one(name, "file.csv", content, outcome, unsure) for name, content, outcome, unsure in CSV_FILES
)
