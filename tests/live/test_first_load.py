"""Files of three days that land at once become all tables, in a few runs each."""

from collections.abc import Callable

from tests.live.conftest import Judge, Loaded
from tests.live.platform import statuses
from tests.oracle import TABLES


def test_every_table_equals_the_oracle_after_the_first_load(loaded: Loaded, judge: Judge) -> None:
    assert len(set(loaded.platform.table("marts.sales_hourly")["hour"].to_pylist())) == len(loaded.hours)
    judge(*TABLES, seconds=0)


def test_first_load_takes_at_most_three_runs_per_table(loaded: Loaded, note: Callable[[str], None]) -> None:
    runs = loaded.runs
    assert statuses(runs) == {"SUCCESS"}
    for table in TABLES:
        mine = [run for run in runs if table.replace(".", "/") in run.assets]
        note(f"first load, {table}: {len(mine)} runs, {', '.join(f'{run.seconds:.0f} s' for run in mine)}")
        assert 1 <= len(mine) <= 3, f"{table}: {mine}"
    last = max(run.created + (run.seconds or 0) for run in runs)
    note(f"first load: {last - runs[0].created:.0f} s from the first run to the end of the last")


def test_tick_log_has_one_line_per_requested_run(loaded: Loaded) -> None:
    ticks = loaded.platform.ui.tick_logs("tidemark", "catch_up")
    told = [(len(runs), [line for line in lines if "first data of" in line]) for runs, lines in ticks]
    assert any(runs for runs, _ in told)
    assert all(len(lines) == runs for runs, lines in told), "one each, and none where nothing was asked for"
    hours = f"{loaded.hours[0]} to {loaded.hours[-1]} ({len(loaded.hours)} partitions)"
    assert [line for _, lines in told for line in lines if line.startswith("core/orders, ") and hours in line]
