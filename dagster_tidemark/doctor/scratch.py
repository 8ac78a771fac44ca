"""Names of the tables that checks create, and the removal of what an interrupted check has left.

Each check creates a new namespace with one table, and drops both.
"""

import shutil
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceNotEmptyError, NoSuchNamespaceError, NoSuchTableError

from dagster_tidemark.doctor.bucket import client
from dagster_tidemark.settings import Settings

PREFIX = "tidemark_doctor_"
_SECONDS_OF_A_CHECK = 600


def scratch_namespace() -> str:
    """Return a name that no other check has. It holds the time, so a later check knows how old it is."""
    return f"{PREFIX}{int(time.time())}_{uuid.uuid4().hex[:8]}"


def drop(lake: Catalog, settings: Settings, namespace: str) -> None:
    """Drop a check's namespace with its tables and their files."""
    with suppress(NoSuchNamespaceError):
        for identifier in lake.list_tables(namespace):
            with suppress(NoSuchTableError):  # another doctor drops it too
                location = lake.load_table(identifier).location()
                lake.purge_table(identifier)
                with suppress(BotoCoreError, ClientError):  # the catalog gives keys that only pyiceberg has
                    drop_markers(location, namespace, client("s3", settings))
        with suppress(NamespaceNotEmptyError):
            lake.drop_namespace(namespace)
    if "://" not in settings.warehouse:  # a bucket has no empty folders
        for folder in (namespace, f"{namespace}.db"):
            shutil.rmtree(Path(settings.warehouse) / folder, ignore_errors=True)


def drop_markers(location: str, namespace: str, s3: Any) -> None:
    """Delete the empty objects for folders, which pyarrow writes when it deletes the last file of a folder.

    Args:
        location: The folder of a dropped table. Other places than S3 have no such objects.
        namespace: The namespace of the check. Nothing is deleted if the location does not name it.
    """
    place = urlsplit(location)
    if place.scheme not in ("s3", "s3a", "s3n") or f"/{namespace}" not in place.path:
        return
    prefix = f"{place.path.strip('/')}/"
    for each in s3.list_objects_v2(Bucket=place.netloc, Prefix=prefix).get("Contents", ()):
        s3.delete_object(Bucket=place.netloc, Key=each["Key"])


def drop_old(lake: Catalog, settings: Settings) -> int:
    """Drop what checks have left that were killed, or that never got an answer. Return the number of namespaces."""
    old = [
        name for (name, *_) in lake.list_namespaces() if name.startswith(PREFIX) and _age(name) > _SECONDS_OF_A_CHECK
    ]
    for namespace in old:
        drop(lake, settings, namespace)
    return len(old)


def _age(namespace: str) -> float:
    begun = namespace.removeprefix(PREFIX).partition("_")[0]
    return time.time() - int(begun) if begun.isdecimal() else 0.0
