"""A run at deliveries in a process of its own, without Dagster: `python -m tests.tidemark.streams.deliverer NAME`.

It works until it has answered a message. Its settings are the environment's; told to, it dies or stops at a boundary
(`failpoints`).
"""

import logging
import sys

from dagster_tidemark.settings import load_settings
from dagster_tidemark.sources import sqs
from tests.tidemark.streams import partner

HOLD_SECONDS = 2
"""What a killed process had in hand is somebody else's so soon."""


def main(name: str) -> None:
    logging.basicConfig(level=logging.INFO)
    sqs.HOLD_SECONDS = HOLD_SECONDS

    def ends() -> str | None:
        return "a message is answered" if run.counts.commits else None

    run = partner.delivering(partner.declared(name), load_settings(), ends=ends)
    run.work()


if __name__ == "__main__":
    main(sys.argv[1])
