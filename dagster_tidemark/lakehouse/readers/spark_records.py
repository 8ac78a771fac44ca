"""Large text files as records, in Spark: each as text, with what is wrong with it as one.

What a record is, is said in `text`; here the same is done to lines that lie on many machines. Lines are read as bytes,
because Spark's own decoding puts U+FFFD where a byte is none of its text, and says nothing. Does not belong here: the
values of a record (`csv_text`, `json_text`).
"""

from collections.abc import Callable, Iterable, Sequence

from pyspark.sql import Column, DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.readers import text
from dagster_tidemark.lakehouse.readers.spark_place import position

Place = Callable[[Column, Column], list[Column]]
"""From block and row to the columns that say where a record stands (`files.PLACE`)."""

CORRUPT = "_corrupt_record"
TOLERANT = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
"""A record that Spark's readers cannot take is kept beside the others."""

_BYTES = "ISO-8859-1"  # each byte a character, and back
_NOWHERE = {"sep": "\u2603", "quote": "\u2604", "escape": "\u2605"}  # in no line that is read so
_NOT_BLANK = r"[^\x00-\x20]"
_BLANKS = "".join(map(chr, range(33)))
_UTF8 = (
    r"([\x00-\x7F]+|[\xC2-\xDF][\x80-\xBF]|\xE0[\xA0-\xBF][\x80-\xBF]|[\xE1-\xEC\xEE\xEF][\x80-\xBF]{2}"
    r"|\xED[\x80-\x9F][\x80-\xBF]|\xF0[\x90-\xBF][\x80-\xBF]{2}|[\xF1-\xF3][\x80-\xBF]{3}|\xF4[\x80-\x8F][\x80-\xBF]{2}"
    r"|[\x80-\xFF])"
)


def csv_lines(spark: SparkSession, paths: Sequence[str], charset: str, place: Place) -> DataFrame:
    """The lines of CSV files as records, without headers and blank lines: PLACE, `_record`, `_fault`."""
    # Spark's CSV reader knows which line of many files is a first one; to take lines apart is left for later.
    raw = spark.read.schema("line STRING").options(header=True, encoding=_BYTES, **_NOWHERE).csv(list(paths))
    record, is_text = _decoded_characters(F.col("line"), charset)
    found = raw.select(*place(*position()), record.alias("_record"), is_text.alias("_is_text"))
    return found.select("source_file", "_block", "_row", "_record", _fault_of_line(charset).alias("_fault"))


def csv_records(spark: SparkSession, paths: Sequence[str], charset: str, place: Place, *, multiline: bool) -> DataFrame:
    """The same, of records over several lines and of any encoding; each file is put in order as a whole."""
    lines = _lines(spark, paths, charset, place)
    lines = _quoted_together(lines, charset) if multiline else lines.withColumn("_fault", _fault_of_line(charset))
    numbered = lines.where(F.col("_record").rlike(_NOT_BLANK)).withColumn("_number", F.row_number().over(_in_order()))
    at = F.col("_number").cast("bigint") - 2  # behind the header
    block = F.lit(0).cast("bigint")
    return numbered.where("_number > 1").select(
        "source_file", block.alias("_block"), at.alias("_row"), "_record", "_fault"
    )


def json_lines(spark: SparkSession, paths: Sequence[str], charset: str, place: Place) -> DataFrame:
    """The lines of JSON files as records, without blank ones: PLACE, `_part`, `_record`, `_fault`."""
    lines = _lines(spark, paths, charset, place).where(F.col("_record").rlike(_NOT_BLANK))
    return lines.select(*_ORDER, "_record", F.when(~F.col("_is_text"), text.not_valid(charset)).alias("_fault"))


def json_documents(
    spark: SparkSession, paths: Sequence[str], charset: str, place: Place, *, is_list: bool
) -> DataFrame:
    """The documents of JSON files, over several lines each, as records; of a list its elements."""
    lines = json_lines(spark, paths, charset, place)
    if is_list:
        lines = lines.withColumns(
            {"_first": F.row_number().over(_in_order()) == 1, "_last": F.row_number().over(_backwards()) == 1}
        )
        lines = lines.withColumn(
            "_record",
            F.when(F.col("_first"), F.regexp_replace("_record", r"^([^\[]*)\[", "$1")).otherwise(F.col("_record")),
        )
        ends = F.col("_record").rlike(r"\][\x00-\x20]*$")
        lines = lines.withColumn("_cut", F.col("_last") & ~ends)
        lines = lines.withColumn(
            "_record",
            F.when(F.col("_last"), F.regexp_replace("_record", r"\][\x00-\x20]*$", "")).otherwise(F.col("_record")),
        )
    else:
        lines = lines.withColumn("_cut", F.lit(False))
    bare = F.regexp_replace("_record", text.JSON_STRING, "")
    opened = F.length(F.regexp_replace(bare, r"[^{\[]", "")) - F.length(F.regexp_replace(bare, r"[^}\]]", ""))
    lines = lines.withColumn("_depth", F.sum(opened).over(_so_far()))
    # A bracket too many closes nothing: depths are counted from the lowest so far.
    lowest = F.least(F.lit(0), F.min("_depth").over(_so_far()))
    lines = lines.withColumn("_open", (F.col("_depth") - lowest).cast("int"))
    documents = _grouped(lines, text.NO_END)
    if is_list:
        trimmed = F.btrim("_record", F.lit(_BLANKS))
        piece = F.regexp_replace(F.regexp_replace(trimmed, "^,", ""), ",$", "")
        documents = documents.where(F.btrim("_record", F.lit(_BLANKS + ",")) != "")
        documents = documents.withColumn("_record", F.concat(F.lit("["), piece, F.lit("]")))
    return documents.where(F.col("_record").rlike(_NOT_BLANK))


def shown(characters: Column) -> Column:
    """A text that is perhaps none, so that a person can read it."""
    return F.when(F.is_valid_utf8(characters), characters).otherwise(
        _escaped(F.decode(characters.cast("binary"), _BYTES))
    )


def is_no_text(columns: Iterable[str]) -> Column:
    """Whether any of these columns holds bytes that are no text."""
    # Not one `or` in the other: an expression that is nested a hundred deep is none to Spark Connect.
    return F.coalesce(*(F.when(~F.is_valid_utf8(c), F.lit(True)) for c in columns), F.lit(False))


def faults(why: Column) -> list[Column]:
    """What is wrong with records, as the columns that say so (`files.columns_of_rows`)."""
    return [F.when(why.isNotNull(), F.col("_record")).alias("_malformed"), why.alias("_why")]


_ORDER = ("source_file", "_block", "_row", "_part")


def _in_order() -> WindowSpec:
    return Window.partitionBy("source_file").orderBy("_block", "_row", "_part")


def _backwards() -> WindowSpec:
    return Window.partitionBy("source_file").orderBy(F.desc("_block"), F.desc("_row"), F.desc("_part"))


def _so_far() -> WindowSpec:
    return _in_order().rowsBetween(Window.unboundedPreceding, Window.currentRow)


def _lines(spark: SparkSession, paths: Sequence[str], charset: str, place: Place) -> DataFrame:
    """Every line of these files: PLACE, `_part`, `_record` and `_is_text`."""
    if charset.startswith("utf-16"):
        java = charset.upper().replace("-LE", "LE").replace("-BE", "BE")
        raw = spark.read.options(lineSep="\n", encoding=java).text(list(paths))
        content = F.col("value").cast("binary")
        as_bytes = F.decode(content, _BYTES)
        low, high = (r"[\s\S]", "") if charset == "utf-16-le" else ("", r"[\s\S]")
        unit, first, second = (f"{low}[{part}]{high}" for part in (r"^\xD8-\xDF", r"\xD8-\xDB", r"\xDC-\xDF"))
        is_text = as_bytes.rlike(f"^(?:{unit}|{first}{second})*+$")
        decoded = F.regexp_replace(F.decode(content, java), "^\ufeff", "")
        record = F.when(is_text, decoded).otherwise(F.replace(as_bytes, F.lit("\0"), F.lit("")))
        found = raw.select(*place(*position()), record.alias("_line"), is_text.alias("_is_text"))
        parts = F.split(F.regexp_replace("_line", r"\r$", ""), r"\r")
        return found.select("source_file", "_block", "_row", "_is_text", F.posexplode(parts).alias("_part", "_record"))
    raw = spark.read.text(list(paths))
    if charset == "utf-8":
        record, is_text = shown(F.col("value")), F.is_valid_utf8("value")
    else:
        record, is_text = _decoded_characters(F.decode(F.col("value").cast("binary"), _BYTES), charset)
    return raw.select(*place(*position()), F.lit(0).alias("_part"), record.alias("_record"), is_text.alias("_is_text"))


def _decoded_characters(line: Column, charset: str) -> tuple[Column, Column]:
    """A line whose characters are bytes as text that can be read, and whether it is text in that encoding."""
    is_ascii = F.octet_length(line) == F.length(line)
    if charset == "utf-8":
        decoded = F.encode(line, _BYTES).cast("string")
        is_text = F.is_valid_utf8(decoded)
        return F.when(is_ascii, line).when(is_text, decoded).otherwise(_escaped(line)), is_ascii | is_text
    characters = {b: bytes([b]).decode(charset, errors="replace") for b in range(128, 256)}
    known = {chr(b): c for b, c in characters.items() if c != "\ufffd"}
    decoded = F.translate(line, "".join(known), "".join(known.values())) if known else line
    unknown = "".join(rf"\x{b:02X}" for b, c in characters.items() if c == "\ufffd")
    if not unknown:
        return F.when(is_ascii, line).otherwise(decoded), F.lit(True)
    is_text = is_ascii | ~line.rlike(f"[{unknown}]")
    pieces = F.regexp_extract_all(line, F.lit(f"(?s)([{unknown}]|[^{unknown}]+)"), F.lit(1))
    escaped = F.array_join(
        F.transform(
            pieces,
            lambda piece: F.when(piece.rlike(f"[{unknown}]"), _hexadecimal(piece)).otherwise(
                F.translate(piece, "".join(known), "".join(known.values())) if known else piece
            ),
        ),
        "",
    )
    return F.when(is_ascii, line).when(is_text, decoded).otherwise(escaped), is_text


def _escaped(line: Column) -> Column:
    """A line whose characters are bytes, those in UTF-8 decoded and every other one written \\xNN."""
    pieces = F.regexp_extract_all(line, F.lit(_UTF8), F.lit(1))

    def written(piece: Column) -> Column:
        decoded = F.encode(piece, _BYTES).cast("string")
        return F.when(F.is_valid_utf8(decoded), decoded).otherwise(_hexadecimal(piece))

    return F.array_join(F.transform(pieces, written), "")


def _hexadecimal(byte: Column) -> Column:
    return F.concat(F.lit("\\x"), F.lower(F.hex(F.encode(byte, _BYTES))))


def _fault_of_line(charset: str) -> Column:
    is_open = F.contains("_record", F.lit('"')) & ~F.col("_record").rlike(text.TERMINATED)
    return F.when(~F.col("_is_text"), text.not_valid(charset)).when(is_open, text.NOT_CLOSED)


def _quoted_together(lines: DataFrame, charset: str) -> DataFrame:
    """CSV records: a line goes on in the next one while a quote is open.

    A line leaves quotes closed, leaves them open, keeps them or turns them, depending on how it begins. So what holds
    after it follows from the last line that leaves no choice, and how often they were turned since.
    """
    has_quote = F.contains("_record", F.lit('"'))
    from_closed = F.when(has_quote, ~F.col("_record").rlike(text.TERMINATED)).otherwise(F.lit(False))
    # Within quotes a line is as one that begins with a quote.
    inside = F.concat(F.lit('"'), F.col("_record"))
    from_open = F.when(has_quote, ~inside.rlike(text.TERMINATED)).otherwise(F.lit(True))
    lines = lines.withColumns({"_from_closed": from_closed, "_from_open": from_open})
    turns = F.sum((F.col("_from_closed") & ~F.col("_from_open")).cast("int")).over(_so_far())
    lines = lines.withColumn("_turns", turns)
    decided = F.when(
        F.col("_from_closed") == F.col("_from_open"),
        F.struct(F.col("_from_closed").cast("int").alias("open"), F.col("_turns").alias("turns")),
    )
    last = F.last(decided, ignorenulls=True).over(_so_far())
    lines = lines.withColumn("_decided", last)
    since = F.col("_turns") - F.coalesce(F.col("_decided.turns"), F.lit(0))
    lines = lines.withColumn("_open", ((F.coalesce(F.col("_decided.open"), F.lit(0)) + since) % 2).cast("int"))
    fault = F.when(~F.col("_is_text"), text.not_valid(charset))
    return _grouped(lines.withColumns({"_fault": fault, "_cut": F.lit(False)}), text.NEVER_CLOSED)


def _grouped(lines: DataFrame, never_closed: str) -> DataFrame:
    """Lines as records that end where nothing is open (`_open` = 0)."""
    begins = (F.coalesce(F.lag("_open").over(_in_order()), F.lit(0)) == 0).cast("int")
    lines = lines.withColumn("_begins", begins).withColumn("_record_number", F.sum("_begins").over(_so_far()))
    within = Window.partitionBy("source_file", "_record_number").orderBy("_block", "_row", "_part")
    lines = lines.withColumn("_line_number", F.row_number().over(within))
    is_kept = F.col("_line_number") <= text.LONGEST_RECORD
    line = F.struct("_line_number", F.col("_record").alias("text"))
    groups = lines.groupBy("source_file", "_record_number").agg(
        *(F.min_by(c, "_line_number").alias(c) for c in ("_block", "_row", "_part")),
        F.sort_array(F.collect_list(F.when(is_kept, line))).alias("lines"),
        F.min_by("_fault", F.when(is_kept & F.col("_fault").isNotNull(), F.col("_line_number"))).alias("_fault"),
        F.max("_line_number").alias("count"),
        F.max_by("_open", "_line_number").alias("_open"),
        F.max("_cut").alias("_cut"),
    )
    fault = F.coalesce(
        F.when(F.col("_cut"), never_closed),
        "_fault",
        F.when((F.col("count") > text.LONGEST_RECORD) | (F.col("_open") > 0), never_closed),
    )
    record = F.array_join(F.transform("lines", lambda held: held["text"]), "\n")
    return groups.select(*_ORDER, record.alias("_record"), fault.alias("_fault"))
