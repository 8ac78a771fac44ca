"""SIGTERM in the middle of work leaves no process either. The last file: nothing runs after it."""

import signal
from collections.abc import Callable

from tests.live.conftest import Loaded
from tests.live.test_arrivals import order_file
from tests.live.waiting import eventually


def test_sigterm_during_a_run_leaves_no_process(loaded: Loaded, note: Callable[[str], None]) -> None:
    platform, day = loaded.platform, loaded.days[0]
    platform.put(f"orders/dt={day}/hour=09/last.csv", order_file(day, 9, order_id=990_000_201))

    def a_run_uses_spark() -> None:
        assert platform.spark_clients()

    eventually(a_run_uses_spark, seconds=30, every=0.05)
    stopped = platform.stop(signal.SIGTERM)
    note(f"SIGTERM in the middle of a run: {stopped.seconds:.1f} s")
    assert stopped.left == []
    assert stopped.exit_code == 0
    assert stopped.seconds < 15
