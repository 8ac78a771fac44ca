"""A copied working tree that a proof edits, and what the runs of a platform on it have computed."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.live.platform import Platform
from tests.live.ui import values

Edits = Mapping[str, Sequence[tuple[str, str]]]
"""By path the texts to replace, each of which stands there once, and their replacements."""


def edit(project: Path, edits: Edits) -> None:
    """Make these edits."""
    for name, replaced in edits.items():
        for old, new in replaced:
            text = (project / name).read_text()
            assert text.count(old) == 1, f"{name}: {old}"
            (project / name).write_text(text.replace(old, new))


def computed_since(platform: Platform, asset: str, since: float) -> set[str]:
    """Return the partitions that runs have computed since. Runs that only report a publish do not count."""
    published = {run.id for run in platform.ui.runs() if "tidemark/published" in run.tags}
    return {
        str(e["partition"])
        for e in platform.ui.materializations(asset)
        if float(e["timestamp"]) / 1000 > since and e["runId"] not in published and values(e)
    }
