"""Three days of files that land at once become all tables, in a few runs each."""

from collections.abc import Callable

from tests.live.conftest import TABLES, Judge, Loaded
from tests.live.platform import statuses


def test_every_table_is_as_the_oracle_says(loaded: Loaded, judge: Judge) -> None:
    assert len(set(loaded.platform.table("marts.sales_hourly")["hour"].to_pylist())) == 72
    judge(*TABLES, seconds=0)


def test_a_first_load_takes_at_most_three_runs_a_table(loaded: Loaded, note: Callable[[str], None]) -> None:
    runs = loaded.runs
    assert statuses(runs) == {"SUCCESS"}
    for table in TABLES:
        mine = [run for run in runs if table.replace(".", "/") in run.assets]
        note(f"first load, {table}: {len(mine)} runs, {', '.join(f'{run.seconds:.0f} s' for run in mine)}")
        assert 1 <= len(mine) <= 3, f"{table}: {mine}"
    last = max(run.created + (run.seconds or 0) for run in runs)
    note(f"first load: {last - runs[0].created:.0f} s from the first run to the end of the last")
