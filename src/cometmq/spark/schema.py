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
"""As Spark's DDL names them."""


def ddl(columns: tuple[str, ...]) -> str:
    return ", ".join(f"{name} {SPARK_TYPES[name]}" for name in columns)
