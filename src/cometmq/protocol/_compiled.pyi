from ._reference import check_record as check_record
from ._reference import encode_record as encode_record
from ._reference import index_count_below as index_count_below
from ._reference import index_insert as index_insert
from ._reference import index_lookup as index_lookup
from ._reference import index_relink as index_relink
from ._reference import scan_records as scan_records
from ._reference import select_records as select_records
