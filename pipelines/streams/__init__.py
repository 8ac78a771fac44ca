"""What comes in as messages: one module a stream. A module that is added here is found; nothing else names it."""

import sys

from pipelines.tidemark import Stream, declared

STREAMS = declared(sys.modules[__name__], Stream)
"""Every declared stream."""
