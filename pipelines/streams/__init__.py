"""The streams of messages: one module per stream. A new module here is found without registration."""

import sys

from dagster_tidemark import declared
from dagster_tidemark.streams import Deliveries, Stream

_HERE = sys.modules[__name__]

STREAMS: list[Stream | Deliveries] = [*declared(_HERE, Stream), *declared(_HERE, Deliveries)]
"""Every declared stream."""
