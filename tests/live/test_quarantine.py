"""What was turned away, dealt with from the command line of a platform that runs."""

import json
from datetime import UTC, datetime, time
from pathlib import Path

import pytest

from pipelines.demo.plan import mishaps
from tests.live.conftest import Judge, Loaded
from tests.live.test_arrivals import order_file
from tests.live.waiting import eventually


@pytest.mark.proof  # two minutes; each command alone: lakehouse/test_handling.py
def test_quarantined_file_is_retried_and_patched_by_commands(loaded: Loaded, judge: Judge, tmp_path: Path) -> None:
    platform, day = loaded.platform, loaded.days[1]
    key, good = f"orders/dt={day}/hour=11/till 7.csv", order_file(day, 11, order_id=990_000_007)
    of_file = ("--asset", "core/orders", "--file", key)

    def loaded_by() -> list[str]:
        return [e["loaded_by"] for e in platform.table("ops.quarantine").to_pylist() if e["source_file"] == key]

    def is_loaded_by(code_versions: list[str]) -> None:
        assert loaded_by() == code_versions

    platform.put(key, good.replace(",0.5,", ",7,"))
    eventually(lambda: is_loaded_by(["1"]), seconds=60)
    shown = json.loads(platform.pipelines("quarantine", *of_file, "--json").stdout)
    [counted], [sample] = shown["counts"], shown["sample"]
    assert (counted["reason"], counted["rows"], counted["waived"]) == ("discount_out_of_range", 1, False)
    assert (sample["row_number"], sample["because"]) == (2, None)

    runs = len(platform.ui.runs_of("core/orders"))
    assert "1 partitions" in platform.pipelines("quarantine", "retry", *of_file).stdout
    eventually(lambda: is_loaded_by(["1"]), seconds=60)
    assert len(platform.ui.runs_of("core/orders")) > runs, "nobody but the automation started it"

    corrected = tmp_path / "corrected.csv"
    corrected.write_text(good)
    said = platform.pipelines("quarantine", "patch", key, str(corrected), "--because", "the till was broken").stdout
    assert said.strip() == f"stored as orders/dt={day}/hour=11/till 7.patch1.csv"
    judge("core.orders")
    lines = [row for row in platform.table("core.orders").to_pylist() if row["order_id"] == 990_000_007]
    assert sorted(row["line_number"] for row in lines) == [1, 2, 3]
    [counted] = json.loads(platform.pipelines("quarantine", *of_file, "--json").stdout)["counts"]
    assert counted["waived"]
    for name in (key, key.replace(".csv", ".patch1.csv")):
        platform.s3.delete_object(Bucket="landing", Key=name)
    judge()
    platform.quiet(calm=25)  # what is due a little later, by the contracts, is over too


@pytest.mark.proof  # two minutes
def test_bad_sample_files_are_reported_and_breach_no_contract(loaded: Loaded, judge: Judge) -> None:
    platform = loaded.platform
    bad = mishaps(datetime.combine(loaded.days[0], time(), UTC), 72, seed=0)
    whole, in_part = (file.key for file in bad)
    for file in bad:
        platform.put(file.key, file.content().decode())

    def is_counted() -> None:
        shown = json.loads(platform.pipelines("quarantine", "--asset", "core/orders", "--json").stdout)["counts"]
        waiting = {counted["reason"]: (counted["rows"], counted["files"]) for counted in shown if not counted["waived"]}
        assert waiting == {"missing_column": (0, 1), "bad_type": (2, 1), "discount_out_of_range": (1, 1)}

    eventually(is_counted, seconds=60)
    platform.quiet()
    (row,) = json.loads(platform.pipelines("status", "--asset", "core/orders", "--json", code=6).stdout)
    assert (row["state"], row["files_rejected"], row["rows_rejected"]) == ("met", [whole], 3)
    for key in (whole, in_part):
        platform.s3.delete_object(Bucket="landing", Key=key)
    judge()
    platform.quiet(calm=25)
