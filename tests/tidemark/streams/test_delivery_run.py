"""Deliveries, on the local cloud and a real Spark server."""

import io
import json
import threading
from collections.abc import Collection, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagster_tidemark.lakehouse.append import Appendable, open_lake
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.inlets import QueueInlet
from dagster_tidemark.sources.notification_queue import QueueOutlet
from dagster_tidemark.streams.deliveries.verdict import Verdicts, _Loading
from tests.tidemark.storage_faults import Fault, faults
from tests.tidemark.streams import partner as toys
from tests.tidemark.streams.partner import Partner, csv, line

_IN_TURN = "order_id, line_number, customer_id, product_id, store_id, quantity, unit_price_usd, discount, ordered_at"


@pytest.fixture
def partner(cloud: Settings, spark_server: Settings) -> Partner:
    return Partner(toys.declared(toys.new_name()), cloud)


def findings(answer: Mapping[str, Any]) -> dict[str, str]:
    return {file["key"]: file["finding"] for file in answer["files"]}


def parquet(first: int, count: int) -> bytes:
    names = toys.HEADER.split(",")
    rows = [line(first + n, quantity=n + 1).split(",") for n in range(count)]
    values = dict(zip(names, zip(*rows, strict=True), strict=True))
    kinds = {"unit_price_usd": pa.decimal128(9, 2), "discount": pa.float64()}
    columns = {
        name: pa.array(of).cast(kinds.get(name, pa.int32())) if name != "ordered_at" else pa.array(of)
        for name, of in values.items()
    }
    target = io.BytesIO()
    pq.write_table(pa.table(columns), target)
    return target.getvalue()


def test_complete_delivery_loads_the_rows_duckdb_reads_from_its_files(partner: Partner, tmp_path: Path) -> None:
    as_json = [dict(zip(toys.HEADER.split(","), line(n, quantity=-n).split(","), strict=True)) for n in (1, 2, 3)]
    files = {
        "a b+ü.csv": csv(line(10), line(10, number=2), line(11)),
        "large.csv": csv(*(line(1000 + n) for n in range(30_000))),  # which Spark scans
        "deep/er/b.parquet": parquet(20, 5),
        "c.jsonl": "\n".join(map(json.dumps, as_json)).encode(),
    }
    said = [partner.put("d-1", path, body) for path, body in files.items()]
    said[0] |= {"key": partner.key("d-1", "a b+ü.csv")}  # the whole key
    said[1].pop("size")
    partner.put("d-1", "left.csv", b"whatever")
    partner.post("d-1", *said)

    answer = partner.answer()

    assert (answer["status"], answer["rows"], answer["unlisted"]) == ("loaded", 30_011, ["left.csv"])
    rows = {file["key"]: file["rows"] for file in answer["files"]}
    assert rows == {"a b+ü.csv": 3, "large.csv": 30_000, "deep/er/b.parquet": 5, "c.jsonl": 3}
    lake = duckdb.connect()
    for path, body in files.items():
        (tmp_path / Path(path).name).write_bytes(body)
    expected = lake.execute(
        f"""SELECT order_id::BIGINT, line_number::BIGINT, customer_id::BIGINT, product_id::BIGINT, store_id::BIGINT,
            quantity::BIGINT, unit_price_usd::DECIMAL(18,4), discount::DECIMAL(18,8), ordered_at::TIMESTAMPTZ,
            round(quantity::DECIMAL(9,0) * unit_price_usd::DECIMAL(18,4) * (1 - discount::DECIMAL(9,8)), 4)
                ::DECIMAL(18,4) AS revenue_usd
        FROM (SELECT {_IN_TURN} FROM read_csv('{tmp_path}/*.csv', all_varchar=true)
              UNION ALL BY NAME SELECT {_IN_TURN} FROM read_parquet('{tmp_path}/*.parquet')
              UNION ALL BY NAME SELECT {_IN_TURN} FROM read_json('{tmp_path}/*.jsonl'))
        ORDER BY ALL"""
    ).fetchall()
    found = Appendable(open_lake(partner.settings), partner.of.table).rows()
    lake.register("found", found)
    assert lake.execute(f"SELECT {_IN_TURN}, revenue_usd FROM found ORDER BY ALL").fetchall() == expected
    lineage = lake.execute("SELECT DISTINCT delivery_id, source_file, loaded_by FROM found").fetchall()
    assert sorted(lineage) == sorted(("d-1", partner.key("d-1", path), "7") for path in files)
    [(asset, metadata)] = partner.heard.materializations
    assert asset == partner.of.asset
    assert (metadata["delivery_id"], metadata["rows"], metadata["files"]) == ("d-1", 30_011, 4)
    assert partner.queue.receive(0) == [] and partner.quarantined() == []


def test_duplicate_delivery_message_is_loaded_once_and_answered_identically(partner: Partner) -> None:
    file = partner.put("d-1", "a.csv", csv(line(1)))
    partner.post("d-1", file)
    first = partner.answer()
    partner.s3.delete_object(Bucket=partner.settings.landing_bucket, Key=partner.key("d-1", "a.csv"))
    partner.post("d-1", file)
    assert partner.answer() == first
    assert first["rows"] == partner.commits() == len(partner.heard.materializations) == 1


@pytest.mark.parametrize(
    ("wrong", "finding", "said"),
    [
        ({"sha256": "0" * 64}, "wrong_checksum", "its sha256 is"),
        ({"sha256": None, "md5": "0" * 32}, "wrong_checksum", "its md5 is"),
        ({"size": 3}, "wrong_size", "the manifest says 3"),
        ({"key": "../d-2/a.csv"}, "outside", "leads out of the folder"),
        ({"key": "/a.csv"}, "outside", "leads out of the folder"),
        ({"key": "notes.txt"}, "no_data", "expected a file name that does not begin with"),
    ],
)
def test_delivery_with_a_file_not_as_listed_is_refused_as_a_whole(
    partner: Partner, wrong: dict[str, Any], finding: str, said: str
) -> None:
    good = partner.put("d-1", "good.csv", csv(line(1)))
    bad = partner.put("d-1", "bad.csv", csv(line(2))) | wrong
    partner.put("d-2", "a.csv", csv(line(3)))
    partner.post("d-1", good, bad)
    answer = partner.answer()
    assert (answer["status"], answer["rows"]) == ("refused", 0)
    assert sorted(findings(answer).values()) == ["as_listed", finding]
    assert said in answer["message"]
    assert partner.rows() == [] and partner.commits() == 0
    assert partner.quarantined() == [("d-1", finding, answer["message"])]
    assert partner.heard.materializations == [] and partner.queue.receive(0) == []


@pytest.mark.parametrize(
    ("body", "reasons", "first"),
    [
        (csv(line(2), line(3, quantity="many"), line(4, quantity=9_999_999_999)), 2, ("bad_type", 2)),
        (b"order_id,line_number\n1,2\n", 1, None),
        (parquet(30, 3)[:-9], 1, None),
        (csv(line(2), line(1)), 2, ("duplicate_key", None)),
    ],
)
def test_delivery_with_a_bad_row_or_file_is_refused_as_a_whole(
    partner: Partner, body: bytes, reasons: int, first: tuple[str, int | None] | None
) -> None:
    name = "bad.parquet" if body.startswith(b"PAR1") else "bad.csv"
    files = [partner.put("d-1", "good.csv", csv(line(1))), partner.put("d-1", name, body)]
    partner.post("d-1", *files)
    answer = partner.answer()
    assert answer["status"] == "refused" and sum(answer["reasons"].values()) == reasons, answer
    assert name in answer["message"]
    told = [(row["reason"], row["row"]) for row in answer["first_reasons"]]
    assert told[:1] == ([first] if first else [])
    assert partner.rows() == [] and len(partner.quarantined()) == 1


def test_delivery_without_any_row_is_refused(partner: Partner) -> None:
    partner.post("d-1", partner.put("d-1", "a.csv", csv()))
    answer = partner.answer()
    assert (answer["status"], answer["reasons"]) == ("refused", {"empty": 1})


def test_delivery_waits_for_files_that_arrive_after_its_message(partner: Partner) -> None:
    body = csv(line(1))
    partner.post("d-1", toys.listed("a.csv", body))
    run = partner.run()
    for _ in range(3):
        run.step()
    assert partner.sent() == []
    partner.put("d-1", "a.csv", body)
    assert partner.answer(run)["status"] == "loaded"


def test_delivery_with_missing_files_is_incomplete_until_posted_again(cloud: Settings, spark_server: Settings) -> None:
    partner = Partner(toys.declared(toys.new_name(), patience=timedelta(seconds=1)), cloud)
    body = csv(line(2))
    files = [partner.put("d-1", "a.csv", csv(line(1))), toys.listed("b.csv", body), toys.listed("c.csv", body)]
    partner.post("d-1", *files)
    answer = partner.answer()
    assert answer["status"] == "incomplete"
    assert findings(answer) == {"a.csv": "as_listed", "b.csv": "missing", "c.csv": "missing"}
    assert "b.csv" in answer["message"] and "c.csv" in answer["message"]
    assert [(of, reason) for of, reason, _ in partner.quarantined()] == [("d-1", "missing")]
    partner.put("d-1", "b.csv", body)
    partner.post("d-1", *files[:2])
    again = partner.answer()
    assert (again["status"], again["rows"], partner.quarantined()) == ("loaded", 2, [])


def test_correction_replaces_the_whole_delivery_and_the_later_message_wins(partner: Partner) -> None:
    first = [partner.put("d-1", "a.csv", csv(line(1))), partner.put("d-1", "b.csv", csv(line(2)))]
    partner.post("d-0", partner.put("d-0", "a.csv", csv(line(1))))
    partner.answer()
    partner.post("d-1", *first)
    held = partner.queue.receive(1)  # by somebody who is slow
    correction = partner.put("d-1", "c.csv", csv(line(1, quantity=7)))
    partner.post("d-1", *first)
    before = partner.answer()
    partner.post("d-1", correction)
    answer = partner.answer()
    assert (answer["status"], answer["replaces"], answer["unlisted"]) == (
        "loaded",
        before["manifest"],
        ["a.csv", "b.csv"],
    )
    assert "They replace the files loaded earlier" in answer["message"]
    assert partner.rows() == [("d-0", 1, 1, 3), ("d-1", 1, 1, 7)]
    partner.queue.extend(held, 0)
    late = partner.answer()
    assert (late["status"], late["rows"]) == ("superseded", 0)
    bad = partner.put("d-1", "bad.csv", csv(line(1, quantity="x")))
    partner.post("d-1", bad)
    refused = partner.answer()
    assert refused["status"] == "refused" and "loaded earlier for this delivery stay" in refused["message"]
    assert partner.rows() == [("d-0", 1, 1, 3), ("d-1", 1, 1, 7)]
    partner.post("d-1", *first)  # on second thoughts
    assert partner.answer()["rows"] == 2
    assert partner.commits() == 4


@pytest.mark.parametrize(
    ("body", "delivery_id"),
    [("complete!", None), ('{"delivery_id": "../x", "files": []}', None), ('{"delivery_id": "d-1"}', "d-1")],
)
def test_invalid_manifest_is_answered_and_quarantined(partner: Partner, body: str, delivery_id: str | None) -> None:
    partner.queue.send([body])
    answer = partner.answer()
    assert (answer["delivery_id"], answer["status"], answer["reasons"]) == (delivery_id, "refused", {"no_manifest": 1})
    assert partner.quarantined() == [(delivery_id, "no_manifest", answer["message"])]
    assert partner.queue.receive(0) == []


class DiesBeforeItAcknowledges(QueueInlet):
    def delete(self, message_ids: Collection[str]) -> None:
        self.close()


def test_redelivered_delivery_message_changes_nothing(partner: Partner) -> None:
    partner.post("d-1", partner.put("d-1", "a.csv", csv(line(1))))
    first = partner.answer(partner.run(inlet=DiesBeforeItAcknowledges))
    assert partner.answer() == first
    assert partner.commits() == 1


class LoadsWhenTheOtherDoes(Verdicts):
    barrier = threading.Barrier(2)
    met = False

    def _load(self, spark: Any, of: _Loading) -> Any:
        if not LoadsWhenTheOtherDoes.met:
            self.barrier.wait(60)
            LoadsWhenTheOtherDoes.met = True
        return super()._load(spark, of)


def test_two_concurrent_shifts_load_a_delivery_once(partner: Partner) -> None:
    files = [partner.put("d-1", f"{n}.csv", csv(line(n))) for n in range(3)]
    one, two = (partner.run(verdicts=LoadsWhenTheOtherDoes) for _ in range(2))
    for run in (one, two):  # a message each
        partner.post("d-1", *files)
        batch = run.inlet.receive(None, 2)
        assert batch is not None and len(batch.records) == 1
    threads = [threading.Thread(target=run.step) for run in (one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert LoadsWhenTheOtherDoes.met
    answers = partner.sent()
    while len(answers) < 2:
        one.step()
        two.step()
        answers += partner.sent()
    assert answers[0] == answers[1] and answers[0]["rows"] == 3
    assert partner.commits() == 1


class OverwritesWhatWasVerified(Verdicts):
    partner: Partner

    def _load(self, spark: Any, of: _Loading) -> Any:
        self.partner.put("d-1", "a.csv", csv(line(1, quantity=666)))
        return super()._load(spark, of)


def test_delivery_file_overwritten_after_verification_is_not_loaded(partner: Partner) -> None:
    partner.post("d-1", partner.put("d-1", "a.csv", csv(line(1))))
    run = partner.run(verdicts=OverwritesWhatWasVerified)
    run.verdicts.partner = partner  # type: ignore[attr-defined]
    answer = partner.answer(run)
    assert (answer["status"], findings(answer)) == ("refused", {"a.csv": "wrong_size"})
    assert "it was overwritten" in answer["message"]
    assert partner.commits() == 0


@pytest.mark.parametrize(
    "fault",
    [
        Fault(agent="Boto3", status=503, code="SlowDown", times=8),
        pytest.param(
            Fault(agent="Boto3", lists=True, status=500, code="InternalError", times=8), marks=pytest.mark.proof
        ),
        Fault(agent="Boto3", status=200, times=2),  # cut in the middle
        pytest.param(  # while it is loaded
            Fault(agent="Boto3", skip=1, status=403, code="ExpiredToken", times=2), marks=pytest.mark.proof
        ),
    ],
)
def test_delivery_is_loaded_after_a_temporary_storage_failure(partner: Partner, fault: Fault) -> None:
    endpoint = str(partner.settings.aws_endpoint_url)
    partner.post("d-1", partner.put("d-1", "a.csv", csv(line(1))))
    run = partner.run()
    with faults(endpoint, fault):
        run.step()
        assert partner.sent() == []
        assert partner.answer(run)["status"] == "loaded"
    assert partner.quarantined() == []


def test_unsent_delivery_answer_is_sent_later_without_repeated_reports(partner: Partner) -> None:
    partner.post("d-1", partner.put("d-1", "a.csv", csv(line(1))))
    run, fails = partner.run(), [True, True]

    def connects() -> Any:
        if fails:
            fails.pop()
            raise ConnectionError("the queue of answers is away")
        return partner.answers

    run.outlet = QueueOutlet(connects)
    assert partner.answer(run)["status"] == "loaded"
    assert (partner.commits(), len(partner.heard.materializations), fails) == (1, 1, [])


class CannotLoadTheFirst(Verdicts):
    def _load(self, spark: Any, of: _Loading) -> Any:
        if of.manifest.delivery_id == "d-1":
            raise ValueError("a fault of ours")
        return super()._load(spark, of)


def test_delivery_that_fails_internally_is_returned_and_blocks_no_other(partner: Partner) -> None:
    for name in ("d-1", "d-2"):
        partner.post(name, partner.put(name, "a.csv", csv(line(1))))
    run = partner.run(verdicts=CannotLoadTheFirst)
    assert partner.answer(run)["delivery_id"] == "d-2"
    while not run.counts.failed:
        run.step()
    assert partner.sent() == [] and partner.quarantined() == []


def test_delivery_waits_while_spark_is_unavailable(partner: Partner) -> None:
    partner.post("d-1", partner.put("d-1", "a.csv", csv(line(1))))
    away = partner.run()
    away.verdicts.settings = partner.settings.model_copy(update={"spark_remote": "sc://127.0.0.1:1"})
    for _ in range(4):
        away.step()
    assert partner.sent() == [] and partner.quarantined() == []
    away.inlet.close()  # its shift ends
    assert partner.answer()["status"] == "loaded"
