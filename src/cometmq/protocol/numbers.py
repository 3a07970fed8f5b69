"""Java's `int` and `long` as types of fields: what is larger is refused where it is decoded.

Beyond that nothing here can hold it: not the records, not the files, not the other end.
"""

from typing import Annotated

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
