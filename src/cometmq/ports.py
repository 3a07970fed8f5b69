"""Where servers listen unless told otherwise, as RocketMQ's do. Apart from their settings, so that
commands can name them without loading a server.
"""

from typing import Final

NAMESRV_PORT: Final = 9876
BROKER_PORT: Final = 10911
