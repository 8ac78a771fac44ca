"""Answers to partners: the status of a delivery, the finding for each file, and a sentence.

Belongs here: the text, and the JSON format. Does not belong here: the verdict (`verdict`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from dagster_tidemark.lakehouse.loading.all_or_none import BadRow, Refusal
from dagster_tidemark.lakehouse.readers.files import FileFault
from dagster_tidemark.planner.wording import counted
from dagster_tidemark.sources.manifests import DeliveryManifest
from dagster_tidemark.streams.deliveries.files import Checked, CheckedFile
from dagster_tidemark.streams.deliveries.table import LoadedDelivery

LONGEST = 200_000
"""Largest answer in bytes: SQS accepts 256 KB. A longer one omits files, correct ones first, and gives their number."""

_NO_MANIFEST = "no_manifest"
_SHOWN = 3  # files that a sentence names


class Status(StrEnum):
    """Outcome of a delivery."""

    LOADED = "loaded"
    REFUSED = "refused"
    INCOMPLETE = "incomplete"
    SUPERSEDED = "superseded"


@dataclass(frozen=True)
class Answer:
    """An answer to a message.

    Args:
        delivery_id: The id of the delivery; None if the message has no readable id.
        status: The outcome.
        message: The outcome in one or two sentences.
        posted_at: The time when the message was sent. For a loaded delivery, this is the message that caused the load.
        manifest: The digest of the delivery's manifest.
        rows: The number of the delivery's rows in the table.
        files: The finding for each file.
        unlisted: Files in the folder that the manifest does not list.
        reasons: The number of refused files or rows, by reason.
        first_reasons: The first refused rows.
        replaces: The digest of the earlier manifest whose rows were replaced.
    """

    delivery_id: str | None
    status: Status
    message: str
    posted_at: datetime
    manifest: str | None = None
    rows: int = 0
    files: Sequence[Mapping[str, Any]] = ()
    unlisted: Sequence[str] = ()
    reasons: Mapping[str, int] = field(default_factory=dict)
    first_reasons: Sequence[Mapping[str, Any]] = ()
    replaces: str | None = None

    @property
    def is_refusal(self) -> bool:
        """True if the files are not loaded, and the partner must correct something."""
        return self.status in (Status.REFUSED, Status.INCOMPLETE)

    def body(self) -> str:
        """Return the JSON text of the answer."""
        said = {
            "delivery_id": self.delivery_id,
            "status": str(self.status),
            "message": self.message,
            "rows": self.rows,
            "manifest": self.manifest,
            "replaces": self.replaces,
            "posted_at": self.posted_at.isoformat(),
            "reasons": dict(self.reasons),
            "first_reasons": list(self.first_reasons),
        }
        files, unlisted, left_out = list(self.files), list(self.unlisted), 0
        while True:
            lists = {"files": files, "unlisted": unlisted, **({"left_out": left_out} if left_out else {})}
            body = json.dumps(said | lists)
            if len(body) <= LONGEST or not (files or unlisted):
                return body
            # Files with faults come first, so that they are omitted last.
            files.sort(key=lambda file: not ({"message", "bad_rows"} & file.keys()))
            kept, half = len(files) // 2, len(unlisted) // 2
            left_out += len(files) - kept + len(unlisted) - half
            files, unlisted = files[:kept], unlisted[:half]


def no_manifest(delivery_id: str | None, why: str, posted_at: datetime) -> Answer:
    """Return the answer to a message that is not a manifest."""
    return Answer(delivery_id, Status.REFUSED, f"Nothing is loaded: {why}.", posted_at, reasons={_NO_MANIFEST: 1})


def loaded(manifest: DeliveryManifest, standing: LoadedDelivery, unlisted: Collection[str]) -> Answer:
    """Return the answer for a loaded manifest. It is derived from the table: repeated messages get the same answer."""
    by_file = {listed.path: standing.rows.get(manifest.key_of(listed), 0) for listed in manifest.files}
    rows = sum(standing.rows.values())
    said = f"{counted(len(by_file), 'file')}, {counted(rows, 'row')}: all are loaded."
    if standing.replaces:
        said += f" They replace the files loaded earlier for this delivery (manifest {standing.replaces[:12]})."
    return Answer(
        manifest.delivery_id,
        Status.LOADED,
        said + _beside(unlisted),
        standing.posted_at,
        standing.manifest,
        rows,
        [{"key": path, "finding": "loaded", "rows": count} for path, count in by_file.items()],
        sorted(unlisted),
        replaces=standing.replaces,
    )


def superseded(manifest: DeliveryManifest, standing: LoadedDelivery, posted_at: datetime) -> Answer:
    """Return the answer to a message whose delivery was already loaded for a later message."""
    said = (
        f"Nothing is changed: a later message of this delivery ({standing.posted_at.isoformat()}), with another "
        f"manifest ({standing.manifest[:12]}), is loaded."
    )
    return Answer(manifest.delivery_id, Status.SUPERSEDED, said, posted_at, manifest.digest)


def not_loaded(
    manifest: DeliveryManifest,
    checked: Checked,
    posted_at: datetime,
    standing: LoadedDelivery | None,
    patience: timedelta = timedelta(0),
    refusal: Refusal | None = None,
) -> Answer:
    """Return the answer for files that are missing, differ from the manifest, or cannot be loaded.

    Args:
        patience: How long the delivery could wait for missing files.
        refusal: The reasons why files that match the manifest cannot be loaded.
    """
    refusal = refusal or Refusal()
    found = {fault.file.key: fault for fault in refusal.faults}
    keys = [manifest.key_of(each.listed) for each in checked.files]
    reports = [
        _report(each, found.get(key), refusal.bad_rows.get(key)) for each, key in zip(checked.files, keys, strict=True)
    ]
    faults = [(each.listed.path, fault) for each, (_, fault) in zip(checked.files, reports, strict=True) if fault]
    is_incomplete = checked.is_incomplete and not checked.is_wrong
    said = f"Nothing is loaded: {_named(faults)}."
    if is_incomplete:
        late = counted(sum(each.is_waited_for for each in checked.files), "file")
        said += f" {late} did not arrive within {patience.total_seconds() / 60:g} minutes."
        said += " Send the message again when all files are uploaded."
    if standing is not None:
        said += f" The files loaded earlier for this delivery stay (manifest {standing.manifest[:12]})."
    return Answer(
        manifest.delivery_id,
        Status.INCOMPLETE if is_incomplete else Status.REFUSED,
        said + _beside(checked.unlisted),
        posted_at,
        manifest.digest,
        files=[report for report, _ in reports],
        unlisted=checked.unlisted,
        reasons=Counter(str(each.finding) for each in checked.files if each.message) + refusal.reasons,
        first_reasons=[_first_reason(bad, manifest.folder) for bad in refusal.first],
    )


def _report(each: CheckedFile, fault: FileFault | None, bad: Mapping[str, int] | None) -> tuple[dict[str, Any], str]:
    """Return the finding for a file, and its fault as text; the text is empty if there is none."""
    report: dict[str, Any] = {"key": each.listed.path}
    if bad:
        count, reasons = sum(bad.values()), ", ".join(f"{number} {reason}" for reason, number in sorted(bad.items()))
        rows = {"finding": "bad_rows", "bad_rows": count, "reasons": dict(bad)}
        return report | rows, f"{counted(count, 'bad row')} ({reasons})"
    finding, message = (fault.reason, fault.message) if fault else (str(each.finding), each.message)
    return report | {"finding": finding} | ({"message": message} if message else {}), message


def _first_reason(bad: BadRow, folder: str) -> dict[str, Any]:
    key = bad.key.removeprefix(folder)
    return {"key": key, "row": bad.row_number, "reason": bad.reason, "message": bad.message}


def _named(faults: Sequence[tuple[str, str]]) -> str:
    said = "; ".join(f"{path}: {why}" for path, why in faults[:_SHOWN])
    return said + (f"; and {counted(len(faults) - _SHOWN, 'more file')}" if len(faults) > _SHOWN else "")


def _beside(unlisted: Collection[str]) -> str:
    if not unlisted:
        return ""
    names = ", ".join(sorted(unlisted)[:_SHOWN]) + (", ..." if len(unlisted) > _SHOWN else "")
    return (
        f" {counted(len(unlisted), 'file')} in the folder {'is' if len(unlisted) == 1 else 'are'} not listed: {names}."
    )
