"""Records of a text by the simplest rules, which need the whole text: what the streaming parsers are compared with."""

from collections.abc import Sequence

from dagster_tidemark.lakehouse.readers import text
from dagster_tidemark.lakehouse.readers.text import (
    BLANKS,
    NEVER_CLOSED,
    NO_END,
    NOT_CLOSED,
    Record,
    charset_of,
    in_a_list,
    is_list,
    is_terminated,
    lines_of,
    opened,
)


def records_of(body: bytes, *, encoding: str, multiline: bool, json: bool) -> list[Record]:
    """Return the records of a text in their order, without blank ones."""
    lines = lines_of(body, charset_of(encoding, body))
    if multiline:
        lines = documents_of(lines) if json else quoted_together(lines)
    elif not json:
        lines = [Record(text, fault or (None if is_terminated(text) else NOT_CLOSED)) for text, fault in lines]
    return [line for line in lines if line.text.strip(BLANKS)]


def quoted_together(lines: Sequence[Record]) -> list[Record]:
    """Return CSV records: a line continues in the next one while a quote is open."""
    records: list[Record] = []
    held: list[Record] = []
    for line in lines:
        is_open = not is_terminated(f'"{line.text}' if held else line.text)
        held.append(line)
        if not is_open:
            records.append(joined(held, None, NEVER_CLOSED))
            held = []
    return [*records, joined(held, NEVER_CLOSED, NEVER_CLOSED)] if held else records


def documents_of(lines: Sequence[Record]) -> list[Record]:
    """Return JSON documents: a line continues in the next one while a bracket is open. So are elements of a list."""
    lines = [line for line in lines if line.text.strip(BLANKS)]
    in_list = bool(lines) and is_list(lines[0].text)
    ends = True
    if in_list:
        lines[0] = Record(lines[0].text.replace("[", "", 1), lines[0].fault)
        last = lines[-1].text.rstrip(BLANKS)
        ends = last.endswith("]")
        lines[-1] = Record(last.removesuffix("]"), lines[-1].fault)
    records: list[Record] = []
    held: list[Record] = []
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
        records[-1] = Record(records[-1].text, NO_END)
    return [Record(in_a_list(r.text), r.fault) for r in records if r.text.strip(BLANKS).strip(",")]


def joined(lines: Sequence[Record], fault: str | None, too_long: str) -> Record:
    """Return lines as one record, up to the largest number of lines."""
    if len(lines) > text.LONGEST_RECORD:
        lines, fault = lines[: text.LONGEST_RECORD], too_long
    faults = [line.fault for line in lines if line.fault]
    return Record("\n".join(line.text for line in lines), faults[0] if faults else fault)
