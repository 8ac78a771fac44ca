"""Output of previews: differences of rows and of the quarantine, check results, and the result of a publish.

Belongs here: the text, the JSON and the exit code. Does not belong here: building and publishing (`cli.plan_preview`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from dagster_tidemark.lakehouse.row_diff import Example, RowDiff
from dagster_tidemark.preview.manifest import PreviewManifest, TablePreview
from dagster_tidemark.preview.publish import Published

ROWS_DIFFER = 2
NOT_PREVIEWED = 7
"""Exit codes of a preview.

`ROWS_DIFFER`: rows differ or a check failed. `NOT_PREVIEWED`: a change that `plan` lists was not previewed.
"""

_LONGEST = 24  # maximum characters shown of a value, so that the table fits into 80 columns


def exit_code(manifest: PreviewManifest, diffs: Mapping[str, RowDiff], checks: Sequence[Any]) -> int:
    """Return the exit code of a preview.

    `NOT_PREVIEWED` if a planned asset is missing, else `ROWS_DIFFER` if rows differ or a check failed, else 0.
    """
    if manifest.left_out:
        return NOT_PREVIEWED
    differs = any(diff.differs for diff in diffs.values()) or any(t.differs_in_quarantine for t in manifest.tables)
    differs = differs or any(map(manifest.fails_because_of_it, checks))
    return ROWS_DIFFER if differs else 0


def as_dict(manifest: PreviewManifest, diffs: Mapping[str, RowDiff], checks: Sequence[Any]) -> dict[str, Any]:
    """Return a preview as JSON. Sums are text. An unpartitioned asset has one partition, which is null."""
    return {
        "id": manifest.id,
        "branch": manifest.branch if manifest.tables else None,
        "assets": [
            {
                "key": own.asset,
                "partitions": own.partitions,
                "planned": own.planned,
                **_figures(diffs[own.asset]),
                "quarantine": {why: {"before": one, "after": other} for why, (one, other) in own.turned_away.items()},
                "checks": [_check(check) for check in checks if check.asset_key.to_user_string() == own.asset],
            }
            for own in manifest.tables
        ],
        "left_out": manifest.left_out,
        "is_complete": not manifest.left_out,
    }


def shown(manifest: PreviewManifest, diffs: Mapping[str, RowDiff], checks: Sequence[Any], name: str = "") -> Group:
    """Return a preview for a terminal of 80 columns."""
    lines: list[Any] = []
    for own in manifest.tables:
        diff = diffs[own.asset]
        lines.append(Text(f"{own.asset}{_partitions(own)}", style="bold"))
        rows = f"{diff.rows_before:,} rows -> {diff.rows_after:,}"
        lines.append(Text(f"  {rows}: {diff.added:,} added, {diff.removed:,} removed, {diff.changed:,} changed"))
        for example in diff.examples.get("", ()):
            lines.append(Text(f"  {'removed' if example.before else 'added'}: {_key(example)}"))
        changed = [c for c, t in diff.totals.items() if c in diff.columns or t.before != t.after]
        if columns := list(dict.fromkeys([*diff.columns, *changed])):
            lines.append(_columns(diff, columns))
        for reason, (before, after) in own.turned_away.items():
            lines.append(Text(f"  in quarantine, {reason}: {before:,} -> {after:,}"))
        for check in (check for check in checks if check.asset_key.to_user_string() == own.asset):
            is_error = check.severity is dg.AssetCheckSeverity.ERROR
            state = "passed" if check.passed else "failed" if is_error else "warns"
            if state == "failed" and not manifest.fails_because_of_it(check):
                state = "failed, no worse than before this change"
            because = f": {check.description}" if check.description else ""
            lines.append(Text(f"  check {check.check_name} {state}{because}"))
    lines += [Text(f"{asset}: not previewed, {why}") for asset, why in manifest.left_out.items()]
    if manifest.left_out:
        lines.append(
            Text(f"{'not all' if manifest.tables else 'none'} of this change was previewed: see above", "bold")
        )
    if not manifest.tables:
        if not manifest.left_out:
            lines.append(Text("nothing to preview: no partition would run because of this code"))
    elif any(map(manifest.fails_because_of_it, checks)):
        lines.append(Text("a check failed, so the preview cannot be published: correct the code and preview again"))
    else:
        of = f" {name}" if name else ""
        lines.append(Text(f"tidemark plan --publish{of} publishes it to the tables; --discard{of} drops it"))
        lines.append(Text("it expires in two days"))
    return Group(*lines)


def told(found: Published) -> Group:
    """Return the result of a publish, for a terminal."""
    lines = []
    for asset, partitions in found.partitions.items():
        how = "fast-forwarded" if asset in found.forwarded else "copied"
        lines.append(Text(f"{asset}: {_count(partitions)} published, {how if partitions else 'none'}"))
    for asset, left in found.left.items():
        lines.append(Text(f"{asset}: {_count(left)} changed in the meantime and will be rebuilt"))
    return Group(*lines)


def _figures(diff: RowDiff) -> dict[str, Any]:
    names = ("rows_before", "rows_after", "added", "removed", "changed")
    return {
        **{name: getattr(diff, name) for name in names},
        "columns": {
            column: {"rows": rows, "examples": [vars(example) for example in diff.examples[column]]}
            for column, rows in diff.columns.items()
        },
        "only_in_one": [vars(example) for example in diff.examples.get("", ())],
        "totals": {
            column: {side: None if (of := getattr(total, side)) is None else str(of) for side in ("before", "after")}
            for column, total in diff.totals.items()
        },
    }


def _check(check: Any) -> dict[str, Any]:
    return {
        "name": check.check_name,
        "passed": check.passed,
        "severity": check.severity.value,
        "description": check.description,
    }


def _columns(diff: RowDiff, columns: Sequence[str]) -> RichTable:
    found = RichTable(box=SIMPLE_HEAD, collapse_padding=True)
    found.add_column("column")
    for title in ("rows", "sum before", "sum after"):
        found.add_column(title, justify="right")
    found.add_column("for example")
    for column in columns:
        total = diff.totals.get(column)
        sums = ("", "") if total is None else (_number(total.before), _number(total.after))
        examples = "\n".join(map(_changed, diff.examples.get(column, ())))
        found.add_row(column, f"{diff.columns.get(column, 0):,}", *sums, examples)
    return found


def _number(value: Any) -> str:
    return "" if value is None else f"{value:,}" if not isinstance(value, float) else f"{value:,.6g}"


def _changed(example: Example) -> str:
    return f"{_key(example)}: {_short(example.before)} -> {_short(example.after)}"


def _key(example: Example) -> str:
    return " ".join(_short(value) for value in example.key.values())


def _short(value: str | None) -> str:
    if value is None:
        return "null"
    return value if len(value) <= _LONGEST else f"{value[: _LONGEST - 3]}..."


def _partitions(own: TablePreview) -> str:
    keys = sorted(str(p) for p in own.partitions if p is not None)
    of = f" of {own.planned}" if own.planned > len(keys) else ""
    if len(keys) < 2:
        return "".join(f" {key}{of and f', 1{of} planned partitions'}" for key in keys)
    return f" {len(keys)}{of} partitions, {keys[0]} to {keys[-1]}"


def _count(partitions: Sequence[str | None]) -> str:
    return "all of it" if None in partitions else f"{len(partitions)} partitions"
