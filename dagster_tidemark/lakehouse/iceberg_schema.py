"""Conversion of pyiceberg's tables to plain data, with the type names of Spark.

Does not belong here: reading tables.
"""

from pyiceberg.table import Table as IcebergTable
from pyiceberg.types import FixedType, IcebergType, ListType, MapType, StructType

from dagster_tidemark.lakehouse.table_changes import NOT_DECLARED, RETIRED, Stored
from dagster_tidemark.lakehouse.table_properties import ROW_KEY, generation_of, widened_columns

_WORDS = {"long": "bigint", "timestamptz": "timestamp", "timestamp": "timestamp_ntz", "uuid": "string"}


def stored_of(found: IcebergTable) -> Stored:
    """Convert a table of pyiceberg to plain data."""
    schema, head, schemas = found.schema(), found.current_snapshot(), found.schemas()
    # The schema of the head may be older than the schema of the table.
    written = schemas[head.schema_id].fields if head is not None and head.schema_id in schemas else ()
    names = {field.field_id: field.name for field in schema.fields}
    key = found.properties.get(ROW_KEY)
    docs = {field.name: field.doc or "" for field in schema.fields}
    return Stored(
        {field.name: spark_type(field.field_type) for field in schema.fields},
        required=tuple(field.name for field in schema.fields if field.required),
        from_files=tuple(name for name, doc in docs.items() if doc.startswith(NOT_DECLARED)),
        retired=tuple(name for name, doc in docs.items() if doc.startswith(RETIRED)),
        widened=tuple(widened_columns(found.properties)),
        written={field.name: spark_type(field.field_type) for field in written},
        partitioned_by=tuple(names[field.source_id] for field in found.spec().fields if field.source_id in names),
        generation=generation_of(found.properties),
        row_key=None if key is None else tuple(filter(None, key.split(","))),
    )


def spark_type(kind: IcebergType) -> str:
    """Return Spark's name of an Iceberg type."""
    match kind:
        case ListType():
            return f"array<{spark_type(kind.element_type)}>"
        case MapType():
            return f"map<{spark_type(kind.key_type)},{spark_type(kind.value_type)}>"
        case StructType():
            return f"struct<{','.join(f'{field.name}:{spark_type(field.field_type)}' for field in kind.fields)}>"
        case FixedType():
            return "binary"
    plain = str(kind).replace(" ", "")
    return _WORDS.get(plain, plain)
