"""Tests that take half a second or more. `make quick` leaves them out; their names are in `long_tests.txt`.

To write the list again:

    .venv/bin/python -m pytest -n 3 --no-loadscope-reorder --durations=0 --durations-min=0.5 | tee test.log
    .venv/bin/python -m tests.long_tests test.log

A name that no test has any more does no harm.
"""

import re
import sys
from pathlib import Path

_LIST = Path(__file__).with_suffix(".txt")
_SECONDS = 0.5
_LINE = re.compile(r"([\d.]+)s (?:call|setup) +(tests/\S+?\.py::\w+)")


def long_tests() -> frozenset[str]:
    """Return the names of the long tests, as pytest writes them, without an example."""
    return frozenset(_LIST.read_text().split())


def found_in(log: str) -> list[str]:
    """Return the names of the long tests in what pytest printed."""
    return sorted({name for seconds, name in _LINE.findall(log) if float(seconds) >= _SECONDS})


if __name__ == "__main__":
    _LIST.write_text("\n".join(found_in(Path(sys.argv[1]).read_text(errors="replace"))) + "\n")
