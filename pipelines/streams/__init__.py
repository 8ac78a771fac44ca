"""What comes as messages: one module a stream. A module that is added here is found; nothing else names it."""

import sys

from dagster_tidemark import declared
from dagster_tidemark.streams import Deliveries, Stream

_HERE = sys.modules[__name__]

STREAMS: list[Stream | Deliveries] = [*declared(_HERE, Stream), *declared(_HERE, Deliveries)]
"""Every declared stream."""
