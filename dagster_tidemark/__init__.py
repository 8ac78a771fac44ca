"""Tidemark: declarative automation over PySpark assets. Names that are not exported here are private.

A code location declares feeds (`Feed`) and tables (`Table`), loads feeds into tables (`feed_assets`), derives tables
from tables (`table_asset`), and passes them to `build_definitions`, or to `extend` if it has other assets too. The
contracts that its assets declare determine when runs are due. Four more modules are public: `streams` (messages,
alerts, answers, deliveries), `models`, `formats` (user-defined file formats) and `testing`. `__init__.pyi` lists the
module of each name.
"""

import lazy_loader

from dagster_tidemark import garbage_collector
from dagster_tidemark.dagster_range import raise_if_unsupported

# Imported on first use: a schema does not need Dagster, a transform does not need boto3, and `tidemark env` neither.
_imported, _, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    try:
        with garbage_collector.paused():
            return _imported(name)
    except ImportError as error:
        raise_if_unsupported(error)
        raise


def __dir__() -> list[str]:
    # `dg` looks for components by `dir`, and imports every listed name, so the other names are not listed.
    return [*globals(), "FeedComponent", "TableComponent"]
