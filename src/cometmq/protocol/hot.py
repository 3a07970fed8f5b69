"""The hot functions: compiled where the extension was built, plain Python elsewhere.

`COMETMQ_PURE=1` forces plain Python. Both are byte-identical; only their speed differs.
"""

import os

if os.environ.get("COMETMQ_PURE", "") not in ("", "0"):
    COMPILED = False
else:
    try:
        from . import _compiled

        COMPILED = True
    except ImportError:
        COMPILED = False

if COMPILED:
    from ._compiled import ColumnBuilder as ColumnBuilder  # noqa: PLC0414 - for others

    encode_record = _compiled.encode_record
    encode_rows = _compiled.encode_rows
    text_properties = _compiled.text_properties
    decode_batch = _compiled.decode_batch
    offset_ids = _compiled.offset_ids
    append_records = _compiled.append_records
    append_sends = _compiled.append_sends
    check_record = _compiled.check_record
    split_records = _compiled.split_records
    scan_records = _compiled.scan_records
    select_records = _compiled.select_records
    join_slices = _compiled.join_slices
    index_insert = _compiled.index_insert
    index_lookup = _compiled.index_lookup
    index_count_below = _compiled.index_count_below
    index_relink = _compiled.index_relink
    property_columns = _compiled.property_columns
else:
    from . import _reference, batch, columns, express, message_id
    from .columns import ColumnBuilder as ColumnBuilder  # noqa: PLC0414 - for others

    encode_record = _reference.encode_record
    encode_rows = _reference.encode_rows
    text_properties = _reference.text_properties
    decode_batch = batch.decode_batch
    offset_ids = message_id.offset_ids
    append_records = _reference.append_records
    append_sends = express.append_sends
    check_record = _reference.check_record
    split_records = _reference.split_records
    scan_records = _reference.scan_records
    select_records = _reference.select_records
    join_slices = _reference.join_slices
    index_insert = _reference.index_insert
    index_lookup = _reference.index_lookup
    index_count_below = _reference.index_count_below
    index_relink = _reference.index_relink
    property_columns = columns.property_columns
