"""Records of a text by the simplest rules, which need the whole text: what the streaming parsers are compared with."""

import re
from collections.abc import Sequence
from itertools import zip_longest

from dagster_tidemark.lakehouse.parsing.csv_dialect import Dialect
from dagster_tidemark.lakehouse.readers import text
from dagster_tidemark.lakehouse.readers.text import (
    BLANKS,
    CONTINUES,
    NEVER_CLOSED,
    NO_END,
    NOT_CLOSED,
    TextRecord,
    charset_of,
    in_a_list,
    is_list,
    lines_of,
    opened,
)

is_terminated = Dialect().is_terminated


def records_of(body: bytes, *, encoding: str, multiline: bool, json: bool) -> list[TextRecord]:
    """Return the records of a text in their order, without blank ones."""
    lines = lines_of(body, charset_of(encoding, body))
    if multiline:
        lines = documents_of(lines) if json else quoted_together(lines, ends_of(body, encoding))
    elif not json:
        lines = [TextRecord(text, fault or (None if is_terminated(text) else NOT_CLOSED)) for text, fault in lines]
        return with_halves([line for line in lines if line.text.strip(BLANKS)])
    return [line for line in lines if line.text.strip(BLANKS)]


def with_halves(records: list[TextRecord]) -> list[TextRecord]:
    """Mark the lines that continue a value of an earlier line: those between an open quote and its end."""
    found = list(records)
    for begin, record in enumerate(records):
        if is_terminated(record.text):
            continue
        for end in range(begin + 1, min(len(records), begin + 21)):
            text = records[end].text
            if '"' not in text:
                continue
            is_whole = all(re.fullmatch(r'[^"]*|"(?:[^"]|"")*"', value, re.S) for value in values_of(text))
            if is_whole or not is_terminated(text):
                ends_a_value = re.match(r'(?:[^"]|"")*"\s*(?:,|$)', text)
                middle = range(begin + 1, end) if not is_whole and ends_a_value else ()
            elif is_terminated(f'"{text}'):
                middle = range(begin + 1, end + 1)
            else:
                continue
            for at in middle:
                found[at] = TextRecord(found[at].text, found[at].fault or CONTINUES)
            break
    return found


def values_of(line: str) -> list[str]:
    """Return the parts of a line between the commas outside of quotes."""
    parts, is_open = [""], False
    for letter in line:
        is_open ^= letter == '"'
        if letter == "," and not is_open:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def ends_of(body: bytes, encoding: str) -> list[str]:
    """Return the line end after each line."""
    return re.findall("\r\n|\r|\n", body.decode(charset_of(encoding, body), errors="replace"))


def quoted_together(lines: Sequence[TextRecord], ends: Sequence[str]) -> list[TextRecord]:
    """Return CSV records: a line continues in the next one while a quote is open. Values keep their line ends."""
    records: list[TextRecord] = []
    held: list[TextRecord] = []
    between: list[str] = []
    for line, end in zip_longest(lines, ends[: len(lines) - 1], fillvalue="\n"):
        is_open = not is_terminated(f'"{line.text}' if held else line.text)
        held.append(line)
        between.append(end)
        if not is_open:
            records.append(joined(held, None, NEVER_CLOSED, between))
            held, between = [], []
    return [*records, joined(held, NEVER_CLOSED, NEVER_CLOSED, between)] if held else records


def documents_of(lines: Sequence[TextRecord]) -> list[TextRecord]:
    """Return JSON documents: a line continues in the next one while a bracket is open. So are elements of a list."""
    lines = [line for line in lines if line.text.strip(BLANKS)]
    in_list = bool(lines) and is_list(lines[0].text)
    ends = True
    if in_list:
        lines[0] = TextRecord(lines[0].text.replace("[", "", 1), lines[0].fault)
        last = lines[-1].text.rstrip(BLANKS)
        ends = last.endswith("]")
        lines[-1] = TextRecord(last.removesuffix("]"), lines[-1].fault)
    records: list[TextRecord] = []
    held: list[TextRecord] = []
    depth = 0
    for line in lines:
        held.append(line)
        depth = max(0, depth + opened(line.text))
        if not depth:
            records.append(joined(held, None, NO_END))
            held = []
    if held:
        records.append(joined(held, NO_END, NO_END))
    if not in_list:
        return records
    if not ends and records:
        records[-1] = TextRecord(records[-1].text, NO_END)
    return [TextRecord(in_a_list(r.text), r.fault) for r in records if r.text.strip(BLANKS).strip(",")]


def joined(
    lines: Sequence[TextRecord], fault: str | None, too_long: str, ends: Sequence[str] | None = None
) -> TextRecord:
    """Return lines as one record, up to the largest number of lines.

    Args:
        ends: The line end after each line; by default a line feed.
    """
    if len(lines) > text.LONGEST_RECORD:
        lines, fault = lines[: text.LONGEST_RECORD], too_long
    faults = [line.fault for line in lines if line.fault]
    between = ["\n"] * len(lines) if ends is None else ends[: len(lines)]
    whole = "".join(line.text + end for line, end in zip(lines, between, strict=True))
    return TextRecord(whole[: len(whole) - len(between[-1])], faults[0] if faults else fault)
