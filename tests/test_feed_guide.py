"""The kinds of files in docs/feeds.md: each declaration reads its file, and the rows are those on the page."""

import json
import re
from types import ModuleType

import pytest
import yaml

from dagster_tidemark import Feed
from dagster_tidemark.components.attributes import FileForm
from dagster_tidemark.sources.feed import require_readable
from tests import pages
from tests.tidemark.lakehouse.parsing.declared import rows_of

GUIDE = pages.page("feeds.md").partition("## Kinds of files")[2].partition("## What a file may be")[0]
KINDS = dict(re.findall(r"^### (.+?)\n(.*?)(?=^### |\Z)", GUIDE, re.M | re.S))


@pytest.mark.parametrize("kind", KINDS)
def test_file_kinds_guide_example_gives_the_rows_shown(kind: str) -> None:
    text = KINDS[kind]
    (name,) = re.findall(r"^`([\w.]+)`:$", text, re.M)
    (body,) = pages.blocks(text, "text")
    (code,) = pages.blocks(text, "python")
    (shown,) = pages.blocks(text, "json")
    module = ModuleType("guide")
    exec(compile(code, "docs/feeds.md", "exec", dont_inherit=True), vars(module))
    (feed,) = (value for value in vars(module).values() if isinstance(value, Feed))
    require_readable(feed)
    assert feed.is_named_like_data(f"{feed.prefix}{name}")
    options = {"format": feed.format, "names": feed.names, "encoding": feed.encoding, "multiline": feed.multiline}
    found = rows_of(body.encode(feed.encoding), feed.columns, key=name, **options)
    width = len(feed.columns)
    assert all(row[width:] == (None, None) for row in found), found
    rows = [
        dict(zip(feed.columns, (None if value is None else str(value) for value in row[:width]), strict=True))
        for row in found
    ]
    assert rows == [json.loads(line) for line in shown.splitlines()]


def test_file_kinds_guide_component_options_are_parsed() -> None:
    (text,) = pages.blocks(GUIDE, "yaml")
    form = FileForm.model_validate(yaml.safe_load(text)["format"]).format
    assert form.options == {"separator": ";", "decimal": ",", "times": {"booked_on": "dd.MM.yy"}}
