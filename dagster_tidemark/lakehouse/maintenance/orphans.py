"""Guard of the removal of orphan files: what else is in the folder of a table, and which files were orphans before.

Iceberg's procedure removes each file below the table's folder that no snapshot of this table needs. Other tables below
the folder would lose all their files. Its age of a file is the age of its content, so a file that was replaced a
minute ago may count as old. Therefore a file is removed only if an earlier search has found it, too.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from urllib.parse import urlsplit

from dagster_tidemark.errors import Terminal

MOST_CANDIDATES = 20_000
"""Maximum number of orphan files that are kept from one search to the next. The rest waits for a later search."""


class OrphansRefused(Terminal):
    """Error if the folder of a table may hold files of others. No orphan file is removed from it."""


@dataclass(frozen=True)
class OrphanSearch:
    """An earlier search for orphan files.

    Args:
        at: Its time (Unix seconds).
        files: Hashes of the found files.
    """

    at: float
    files: frozenset[str] = field(default_factory=frozenset)


def require_own_folder(table: str, locations: Mapping[str, str], others: Iterable[str] = ()) -> None:
    """Raise if another table of the catalog, or another folder of the lake, is in the folder of a table.

    Args:
        locations: The folder of each table of the catalog.
        others: Other folders of the lake, such as that of the models.

    Raises:
        OrphansRefused: the folders overlap. The message names the other table.
    """
    own = plain(locations[table])
    named = {f"table {name}": location for name, location in locations.items() if name != table}
    for name, location in [*named.items(), *((f"the folder {each}", each) for each in others)]:
        if plain(location).startswith(own):
            raise OrphansRefused(
                f"{table}: expected a folder of its own, but {name} is in {locations[table]}: no orphan files are "
                "removed; move one of the two, for example with Iceberg's rewrite_table_path"
            )


def plain(location: str) -> str:
    """Return a folder without scheme and with one slash at the end, so that equal folders have equal texts.

    Schemes are left out, because `s3://`, `s3a://` and `s3n://` name the same folder.
    """
    parts = urlsplit(location)
    path = "/".join(filter(None, f"{parts.netloc}/{parts.path}".split("/")))
    return f"/{path}/"


def hashed(files: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each file with a short hash of its path, which is cheap to keep."""
    for file in files:
        yield blake2b(plain(file).encode(), digest_size=8).hexdigest(), file


def next_search(before: OrphanSearch | None, candidates: Iterable[str], now: float, held_since: float) -> OrphanSearch:
    """Return the search that the next one compares with: the earlier one as long as its files must stay, else this one.

    If each search replaced the earlier one, frequent searches would remove nothing.

    Args:
        before: The last kept search.
        candidates: Hashes of the files that this search leaves.
        now: Time of this search (Unix seconds).
        held_since: Files that a search at this time or later found first stay (Unix seconds).
    """
    if before is not None and before.at >= held_since:
        return before
    return OrphanSearch(now, frozenset(candidates))


def removable(found: Collection[str], before: OrphanSearch | None, held_since: float) -> tuple[list[str], list[str]]:
    """Return the files to remove, and the hashes of the other files, which the next search may remove.

    Args:
        found: The orphan files that this search has found.
        before: The last search.
        held_since: Files that a search at this time or later found first stay (Unix seconds).
    """
    may_go = before.files if before is not None and before.at < held_since else frozenset[str]()
    gone = [file for hash, file in hashed(found) if hash in may_go]
    stays = [hash for hash, _ in hashed(found) if hash not in may_go]
    return gone, stays[:MOST_CANDIDATES]
