"""Spark looks for packages of such names and registers their `DefaultSource`: `rocketmq`.

Whatever goes wrong here is only told: an error would leave Spark without all other sources, too.
"""

import warnings

try:
    from cometmq.spark.data_source import RocketMQDataSource as DefaultSource
except Exception as error:  # noqa: BLE001 - see above
    warnings.warn(f'format("rocketmq") is not available: {error}', stacklevel=1)

__all__ = ["DefaultSource"]
