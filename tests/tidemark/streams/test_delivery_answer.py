"""An answer on the wire: short enough for a queue, and what is wrong is told first."""

import json
from datetime import UTC, datetime

from dagster_tidemark.streams.deliveries.answer import LONGEST, Answer, Status


def test_long_delivery_answer_lists_wrong_files_first_and_counts_the_rest() -> None:
    files = [{"key": f"{n:05}.csv" + "x" * 100, "finding": "as_listed"} for n in range(3000)]
    files[2500] = {"key": "wrong.csv", "finding": "wrong_size", "message": "it has 3 bytes"}
    answer = Answer("d-1", Status.REFUSED, "Nothing is loaded.", datetime.now(UTC), files=files)
    body = answer.body()
    said = json.loads(body)
    assert len(body) <= LONGEST
    assert said["files"][0]["key"] == "wrong.csv"
    assert said["left_out"] + len(said["files"]) == 3000


def test_short_delivery_answer_keeps_the_order_of_the_manifest() -> None:
    files = [{"key": "b.csv", "finding": "loaded", "rows": 1}, {"key": "a.csv", "finding": "loaded", "rows": 2}]
    said = json.loads(Answer("d-1", Status.LOADED, "All.", datetime.now(UTC), files=files, unlisted=["x"]).body())
    assert [file["key"] for file in said["files"]] == ["b.csv", "a.csv"]
    assert (said["unlisted"], "left_out" in said) == (["x"], False)
