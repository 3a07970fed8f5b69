"""The columns of a message, and their Arrow types. A read may ask for any subset, in any order."""

COLUMNS = (
    "topic", "brokerName", "queueId", "queueOffset", "msgId", "bornTimestamp", "storeTimestamp",
    "keys", "tags", "body", "reconsumeTimes",
)  # fmt: skip
ON_REQUEST = ("bornHost", "storeHost", "sysFlag", "physicalOffset", "properties")
SPARK_TYPES = {
    "topic": "string",
    "brokerName": "string",
    "queueId": "int",
    "queueOffset": "bigint",
    "msgId": "string",
    "bornTimestamp": "timestamp",
    "storeTimestamp": "timestamp",
    "keys": "string",
    "tags": "string",
    "body": "binary",
    "reconsumeTimes": "int",
    "bornHost": "string",
    "storeHost": "string",
    "sysFlag": "int",
    "physicalOffset": "bigint",
    "properties": "map<string,string>",
}
"""As Spark calls them."""
_DDL_TYPES = {"timestamp": "timestamp_ltz"}
"""Where DDL must say more: what `timestamp` means in it is a setting of the session."""


def ddl(columns: tuple[str, ...]) -> str:
    types = ((name, SPARK_TYPES[name]) for name in columns)
    return ", ".join(f"{name} {_DDL_TYPES.get(kind, kind)}" for name, kind in types)
