"""JSON texts in Spark: the objects in them, and what Spark's own reader of JSON would be silent about.

Belongs here: expressions. Does not belong here: which lines are led through them (`json_text`).
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from dagster_tidemark.sources.feed import Feed

STRICT = {"allowSingleQuotes": "false"}
"""What Spark's reader allows in JSON by itself, and JSON does not."""

_NUMBERS = (
    r'("(?:[^"\\]|\\.)*+")|([:\[,][ \t\n\r]*+)'
    r"(-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)(?=[ \t\n\r]*+[,}\]])"
)
_NUMBER = "\ufdd0"
"""What a number in quotes begins with: a character that Unicode has set aside for such use."""
_SOMETHING_BEHIND = r"[}\]][ \t\r]*+[^ \t\r}\]]"
"""What a line has with more than one object in it, and others too."""
_SURROGATE = r"\\u[dD][89a-fA-F]"
_ESCAPES = (
    r"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u(?![dD][89a-fA-F])|\\[^u])"
    r"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)


def struct_of(feed: Feed) -> str:
    """The type of an object, as far as a feed declares it."""
    return "struct<" + ", ".join(f"`{c}`: string" for c in feed.columns) + ">"


def objects_of(text: Column, feed: Feed) -> Column:
    """The objects in a text, by themselves or in a list; null where it is something else, or more than that."""
    # In quotes a number stays as it was written. U+0001 and U+0002 stand in no JSON.
    marked = F.regexp_replace(text, _NUMBERS, "$1$2\u0001$3\u0002")
    quoted = F.replace(marked, F.lit("\u0001\u0002"), F.lit(""))
    quoted = F.replace(F.replace(quoted, F.lit("\u0001"), F.lit(f'"{_NUMBER}')), F.lit("\u0002"), F.lit('"'))
    exact = F.when(_is_marked(text), text).otherwise(quoted)
    # In brackets, so that what stands behind the first object is seen; and before a null, which is not reached where a
    # bracket too many ends the list.
    wrapped = F.concat(F.lit("["), exact, F.lit(",null]"))
    objects = F.from_json(wrapped, f"array<{struct_of(feed)}>", STRICT)
    lists = F.from_json(wrapped, f"array<array<{struct_of(feed)}>>", STRICT)
    is_list = F.ltrim(text).startswith("[")
    found = F.when(is_list, F.when(_is_one(lists), lists[0])).otherwise(
        F.when(_is_one(objects), F.slice(objects, 1, 1))
    )
    return found


def is_odd(text: Column, feed: Feed) -> Column:
    """Whether Spark's own reader takes more or less out of a line than there is, and says nothing."""
    has_more = text.rlike(_SOMETHING_BEHIND) & objects_of(text, feed).isNull()
    return text.rlike(_SURROGATE) | has_more


def _is_marked(text: Column) -> Column:
    return text.rlike(r"[\x01\x02\uFDD0]|\\u[fF][dD][dD]0")


def without_marks(value: Column, text: Column) -> Column:
    """A value of the objects in a text, with the numbers in it as they were."""
    nested = F.regexp_replace(value, f'"{_NUMBER}([^"]*)"', "$1")
    bare = F.when(value.startswith(_NUMBER), F.substr(value, F.lit(2))).otherwise(nested)
    return F.when(_is_marked(text), value).otherwise(bare)


def _is_one(parsed: Column) -> Column:
    return (F.size(parsed) == 2) & F.get(parsed, 1).isNull()


def without_halves(text: Column) -> Column:
    """A JSON text without the escapes that are half of a character."""
    return F.regexp_replace(text, _ESCAPES, "$1")
