"""Tidemark: declarative automation over PySpark assets. This is its public face; what is not in it is private.

A code location declares feeds (`Feed`) and tables (`Table`), loads feeds into tables (`feed_assets`), derives tables
from tables (`table_asset`), and hands all of them to `build_definitions`, or to `extend` beside assets of others. What
is due when follows from the contracts that its assets declare. Four more modules are public: `streams` (messages,
alerts, answers, deliveries), `models`, `formats` (file formats of one's own) and `testing`. `__init__.pyi` says where
each name comes from.
"""

import lazy_loader

from dagster_tidemark.dagster_range import raise_if_unsupported

# Imported when first asked for: a schema needs no Dagster, a transform no boto3, and `tidemark env` neither.
_imported, _, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    try:
        return _imported(name)
    except ImportError as error:
        raise_if_unsupported(error)
        raise


def __dir__() -> list[str]:
    # `dg` looks for components by `dir`. It imports what it finds there, so the other names are not listed.
    return [*globals(), "FeedComponent", "TableComponent"]
