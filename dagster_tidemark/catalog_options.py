"""Options of the Iceberg catalog, by Iceberg's own names, and their translations for Spark and pyiceberg.

Belongs here: names, translations and validation. Does not belong here: the variables (`settings`) and any connection.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

TYPES = ("jdbc", "rest", "glue", "hive")
PYICEBERG = "PYICEBERG_CATALOG__LAKE__"
"""Prefix of pyiceberg's variables for the catalog `lake`."""

_JDBC = ("jdbc:sqlite:", "jdbc:postgresql:")
_OF_SPARK = ("io-impl", "cache-enabled", "jdbc.schema-version")
_OF_PYICEBERG = ("py-io-impl",)


def flat(given: object) -> dict[str, str]:
    """Return options by Iceberg's names: `{"s3": {"access_key_id": "a"}}` becomes `{"s3.access-key-id": "a"}`.

    Environment variables give the first form. As in pyiceberg's variables, `__` is a dot and `_` a hyphen.

    Raises:
        ValueError: the options are not a mapping to text.
    """
    if not isinstance(given, Mapping):
        raise ValueError("expected a mapping of catalog options")
    return dict(_flat(given, ""))


def _flat(given: Mapping[Any, object], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in given.items():
        option = f"{prefix}{name}".replace("_", "-")
        if isinstance(value, Mapping):
            yield from _flat(value, f"{option}.")
        elif isinstance(value, bool):
            yield option, str(value).lower()
        elif isinstance(value, str | int | float):
            if value != "":
                yield option, str(value).strip()  # a secret that is read from a file often ends with a line break
        else:
            raise ValueError(f"{option}: expected text, found {type(value).__name__}")


def is_location(warehouse: str) -> bool:
    """Return True for a folder or a bucket; False for the name that a REST catalog gives a warehouse."""
    return warehouse.lower().startswith(("/", "file:", "~", ".")) or "://" in warehouse


def merged(given: Mapping[str, str], uri: str, warehouse: str, *, default: str) -> tuple[dict[str, str], str, str]:
    """Return the remaining options, the URI, and the folder or bucket. An empty folder means the default.

    Args:
        given: The options of `TIDEMARK_CATALOG`.
        uri: `TIDEMARK_CATALOG_URI`, the short form of the option `uri`.
        warehouse: `TIDEMARK_WAREHOUSE`.
        default: The URI of a JDBC catalog for which none is given.

    Raises:
        ValueError: an option contradicts another one or is missing; the message names the variable.
    """
    options, kind, named = dict(given), given.get("type", "jdbc"), given.get("warehouse", "")
    if kind not in TYPES:
        raise ValueError(f"TIDEMARK_CATALOG__TYPE={kind}: expected one of {', '.join(TYPES)}")
    long_uri = options.pop("uri", "")
    if long_uri and uri and long_uri != uri:
        raise ValueError("TIDEMARK_CATALOG__URI and TIDEMARK_CATALOG_URI differ: set only one of them")
    uri = uri or long_uri
    if kind == "jdbc":
        _require_readable(uri)
        if named and warehouse and named != warehouse:
            raise ValueError("TIDEMARK_CATALOG__WAREHOUSE and TIDEMARK_WAREHOUSE differ: set only one of them")
        options.pop("warehouse", None)
        uri, warehouse = uri or default, warehouse or named
        if not uri.startswith(_JDBC):
            raise ValueError(
                f"TIDEMARK_CATALOG_URI={without_login(uri)}: the URI of a jdbc catalog begins with "
                f"{' or '.join(_JDBC)}; for another catalog set TIDEMARK_CATALOG__TYPE"
            )
        return options, uri, warehouse
    if uri.startswith("jdbc:"):
        raise ValueError(f"TIDEMARK_CATALOG_URI={without_login(uri)}: expected the URI of a {kind} catalog")
    if kind in ("rest", "hive") and not uri:
        raise ValueError(f"TIDEMARK_CATALOG__URI is not set, and TIDEMARK_CATALOG__TYPE={kind} needs it")
    warehouse = warehouse or (named if is_location(named) else "")
    if not warehouse:
        raise ValueError(
            f"TIDEMARK_WAREHOUSE is not set, and TIDEMARK_CATALOG__TYPE={kind} needs it: the folder or bucket where "
            "models are kept"
        )
    return options, uri, warehouse


def _require_readable(uri: str) -> None:
    """Raise ValueError if host and port of a URI cannot be read. Its own message may quote a part of the password."""
    try:
        _ = urlsplit(uri.removeprefix("jdbc:")).port
    except ValueError:
        raise ValueError(
            f"TIDEMARK_CATALOG_URI={without_login(uri)}: host and port cannot be read; expected "
            "scheme://host:port/name with special characters of a login as %XX"
        ) from None


def without_login(uri: str) -> str:
    """Return a URI for messages: without user, password and query."""
    bare = uri.partition("?")[0]
    scheme, slashes, rest = bare.partition("://")
    if not slashes:
        return bare
    place = rest.rpartition("@")[2]
    # If a password has a `?`, user and password look like host and port here.
    is_login = re.match(r"[^/,\[]*:(?!\d*([/,]|$))", place) is not None
    return f"{scheme}{slashes}{'***' if is_login else place}"


def for_spark(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options for `spark.sql.catalog.lake.*`. The URI is without its password (`jdbc_login`).

    Args:
        options: The options of the catalog, with `type`.
    """
    # A long-lived server must see the commits of other processes at once.
    found = {"cache-enabled": "false"} | {name: value for name, value in options.items() if name not in _OF_PYICEBERG}
    if options["type"] == "jdbc":
        found |= {"uri": jdbc_login(options["uri"])[0], "jdbc.schema-version": "V1"}
    return found


def for_pyiceberg(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of `pyiceberg.catalog.load_catalog`."""
    found = {name: value for name, value in options.items() if name not in _OF_SPARK}
    if options["type"] == "jdbc":
        found |= {"type": "sql", "uri": sqlalchemy_uri(options["uri"])}
    if "client.region" in found:
        found.setdefault("s3.region", found["client.region"])
    return found


def variables_of_pyiceberg(options: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make pyiceberg read the same catalog under the name `lake`."""
    return {
        PYICEBERG + name.upper().replace(".", "__").replace("-", "_"): value
        for name, value in for_pyiceberg(options).items()
    }


def as_variable(options: Mapping[str, str]) -> str | None:
    """Return options as the text of `TIDEMARK_CATALOG`; None if there are none."""
    return json.dumps(dict(sorted(options.items()))) if options else None


def jdbc_login(uri: str) -> tuple[str, str | None]:
    """Return a JDBC URI without its password, and the line of a pgpass file that holds it."""
    bare, question, query = uri.partition("?")
    values = parse_qs(query)
    password = values.pop("password", [None])[0]
    if password is None:
        return uri, None
    parts = urlsplit(bare.removeprefix("jdbc:"))
    user = values.get("user", ["*"])[0]
    fields = (parts.hostname or "*", str(parts.port or 5432), parts.path.lstrip("/") or "*", user, password)
    line = ":".join(field.replace("\\", "\\\\").replace(":", "\\:") for field in fields)
    rest = urlencode(values, doseq=True)
    return bare + (f"{question}{rest}" if rest else ""), line


def sqlalchemy_uri(catalog_uri: str) -> str:
    """Return the catalog's JDBC URI in the form of SQLAlchemy, which pyiceberg uses."""
    bare = catalog_uri.removeprefix("jdbc:")
    if bare.startswith("sqlite:"):
        path, _, query = bare.removeprefix("sqlite:").partition("?")
        timeout_ms = parse_qs(query).get("busy_timeout", ["30000"])[0]
        return f"sqlite:///{path}?timeout={int(timeout_ms) // 1000}"
    parts = urlsplit(bare)
    query_values = parse_qs(parts.query)
    user = urlencode({"": query_values.pop("user", [""])[0]})[1:]
    password = urlencode({"": query_values.pop("password", [""])[0]})[1:]
    login = f"{user}:{password}@" if password else f"{user}@" if user else ""
    rest = urlencode(query_values, doseq=True)
    return f"postgresql+psycopg2://{login}{parts.netloc}{parts.path}" + (f"?{rest}" if rest else "")
