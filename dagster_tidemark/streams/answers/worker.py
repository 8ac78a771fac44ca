"""The reaction that answers requests: one answer per request id, even if several runs receive the request repeatedly.

Answers are committed before they are sent, and a commit fails if the table has changed since it was read. If two runs
answer at once, the second therefore finds the answer of the first. Only rows of the table are sent, so a stalled run
that resumes repeats the answers of other runs. There is no outbox: a request is acknowledged after its answer was
sent, and otherwise delivered again. Belongs here: the order of the steps. Does not belong here: the search for earlier
answers (`table`), and the computation of answers (the answerer).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from dagster_tidemark.errors import TidemarkError, Transient
from dagster_tidemark.lakehouse.append import Appendable
from dagster_tidemark.lakehouse.commits import until_committed
from dagster_tidemark.sources.notification_queue import MessageSink
from dagster_tidemark.streams.answers.declaration import ERROR, Answer, Answerer, Answering
from dagster_tidemark.streams.answers.table import AnswerTable, Row
from dagster_tidemark.streams.decode import Fault, readable
from dagster_tidemark.streams.shift_retries import is_of_the_world
from dagster_tidemark.streams.stream_declaration import Fields, Reaction, StreamContext
from dagster_tidemark.streams.user_rules import RuleFails, judged, raised

_LONGEST_KEY = 1_000  # characters; one call sends ten answers, and SQS accepts 256 KB per call
_PATIENCE_SECONDS = 60.0
_TRIED_ALONE = 3
"""If a batch has failed, its requests are tried singly. If this many fail because of a service, the rest must wait."""

_log = logging.getLogger(__name__)


class NotOneEach(TidemarkError):
    """The answerer has returned more or fewer answers than there were requests."""


class NotAnsweredYet(Transient):
    """The answerer cannot reach a service. The message names the service. A retry helps after the service recovers."""


@dataclass
class Answers(Reaction):
    """The reaction of one run that answers requests.

    Args:
        declared: The declaration of the answers.
        place: The stream whose messages are the requests, and its resources.
        outlet: The queue of the answers.
    """

    declared: Answering
    place: StreamContext
    outlet: MessageSink
    _answerer: Answerer | None = None
    _unsent: dict[str, Row] = field(default_factory=dict)
    _failing_since: float | None = None
    _answered: int = 0
    _errors: int = 0

    def __post_init__(self) -> None:
        declared = self.declared
        self._table = AnswerTable(Appendable(self.place.lake, declared.table), declared.key, declared.at)

    def react(self, rows: pa.Table) -> None:
        """Answer new requests, and prepare the answers to new and repeated requests for `publish`."""
        if self._answerer is None:
            self._answerer = self._made_answerer()
            self._keep_up()
        requests: dict[str, Fields] = {}
        for fields in rows.select(list(self.place.stream.fields)).to_pylist():
            requests.setdefault(fields[self.declared.key], fields)
        self._settle(requests, self._answers_to)

    def _made_answerer(self) -> Answerer:
        made = judged(self.declared.answer, self.place)
        if isinstance(made, Exception):
            stream = self.place.stream.name
            raise RuleFails(
                f"stream {stream}: its answerer cannot be created: {raised(made)}. The requests stay in the queue; "
                "correct the code and reload the code location"
            ) from made
        return made

    def refused(self, faults: Sequence[Fault]) -> Collection[str]:
        """Send the reason as the answer to rejected messages with a readable request id. Return their message ids."""
        keys = {fault.record.message_id: readable(fault.record.body, self.declared.key) for fault in faults}
        told = {each: key for each, key in keys.items() if key and len(key) <= _LONGEST_KEY}
        reasons = {told[each.record.message_id]: each.message for each in faults if each.record.message_id in told}
        self._settle(reasons, list)
        return told.keys()

    def publish(self) -> int:
        """Send the answers of received requests. Return their number."""
        bodies = [self._table.message(row) for row in self._unsent.values()]
        if not bodies:
            return 0
        self.outlet.send(bodies)
        self._unsent = {}
        return len(bodies)

    def look_after(self) -> None:
        """Refresh the table and the answerer's data, and expire old snapshots.

        Raises:
            Exception: the expiry failed.
        """
        self._keep_up()
        self._table.expire()

    def _keep_up(self) -> None:
        try:
            self._table.refresh()
            if self._answerer is not None:
                self._answerer([])
        except Exception as error:  # the next request meets the same fault, and reports it
            _log.debug("%s: %s", self.declared.table.name, error)

    def needs_since(self) -> int | None:
        """Return None: the queue delivers unanswered requests again."""
        return None

    def summary(self) -> Mapping[str, Mapping[str, int | float | str]]:
        """Return the number of answers since the last call, and the number of errors among them."""
        if not self._answered:
            return {}
        said: dict[str, int | float | str] = {"answered": self._answered, "with an error": self._errors}
        self._answered = self._errors = 0
        return {self.declared.table.name.replace(".", "/"): said}

    def _settle(self, wanted: Mapping[str, Any], decide: Callable[[list[Any]], Sequence[Answer]]) -> None:
        """Store an answer for each request that has none, and prepare all answers for `publish`.

        Args:
            wanted: The value that `decide` needs for each request, by request id.
            decide: Returns one answer for each given value.
        """
        short = {key: each for key, each in wanted.items() if len(key) <= _LONGEST_KEY}
        if len(short) < len(wanted):
            _log.warning("%d requests have an id that is too long to send, and get no answer", len(wanted) - len(short))
        if not short:
            return
        decided: dict[str, Answer] = {}

        def _added() -> dict[str, Row]:
            self._table.refresh()
            known = self._table.find(short)
            new = [key for key in short if key not in known]
            if undecided := [key for key in new if key not in decided]:
                decided.update(zip(undecided, decide([short[key] for key in undecided]), strict=True))
            # If this commit fails, another run may have answered some of the requests.
            added = self._table.add({key: decided[key] for key in new}) if new else {}
            self._unsent |= known | added
            return added

        added = until_committed(_added, self.declared.table.name)
        self._answered += len(added)
        self._errors += sum(row[ERROR] is not None for row in added.values())

    def _answers_to(self, requests: list[Fields]) -> Sequence[Answer]:
        try:
            return self._told(requests)
        except MemoryError:
            raise  # another process may have enough memory
        except Exception as error:  # user code may raise anything, perhaps because of a single request
            if len(requests) > 1:
                _log.warning("answering %d requests one by one, because the batch failed: %s", len(requests), error)
        found: list[Answer] = []
        failed = 0
        for request in requests:
            try:
                found += self._told([request])
            except MemoryError:
                raise
            except Exception as error:  # user code may raise anything; the error becomes the answer to this request
                failed += is_of_the_world(error)
                found.append(_reason(error))
                if failed == len(found) >= min(_TRIED_ALONE, len(requests)) and self._is_patient():
                    raise NotAnsweredYet(f"{self.declared.table.name}: {_reason(error)}") from error
        return found

    def _told(self, requests: list[Fields]) -> list[Answer]:
        assert self._answerer is not None
        found = list(self._answerer(requests))
        if len(found) != len(requests):
            raise NotOneEach(f"expected one answer for each of {len(requests)} requests, found {len(found)}")
        self._failing_since = None
        return found

    def _is_patient(self) -> bool:
        """Return True if the failure has lasted less than a minute, so that it is not yet sent as an answer."""
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        return now - self._failing_since < _PATIENCE_SECONDS


def _reason(error: Exception) -> str:
    said = str(error).strip().partition("\n")[0]
    return said if isinstance(error, TidemarkError) else f"cannot be answered: {type(error).__name__}: {said}"
