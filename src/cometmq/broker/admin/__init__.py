"""The requests with which a broker is looked at and changed: what `mqadmin` and the Java admin API
use. One file a subject; what they act on lives in the broker's own modules."""

from cometmq.transport.connection import Handler

from ..context import Context
from ..delays import Delays
from ..inbox import Inbox
from ..timers.timers import Timers
from .clean_up import CleanUp
from .connections import Connections
from .figures import Figures
from .group_requests import GroupRequests
from .offset_requests import OffsetRequests
from .progress import Progress
from .queue_entries import QueueEntries
from .raft_requests import RaftRequests
from .relays import Relays
from .replication_requests import ReplicationRequests
from .settings_requests import SettingsRequests
from .subscriptions import Subscriptions
from .topic_requests import TopicRequests


def admin_handlers(
    context: Context, inbox: Inbox, delays: Delays, timers: Timers | None = None
) -> dict[int, Handler]:
    parts = (
        TopicRequests(context), GroupRequests(context), Progress(context), Subscriptions(context),
        Connections(context), Relays(context), OffsetRequests(context, delays),
        Figures(context, inbox, delays), SettingsRequests(context), QueueEntries(context),
        CleanUp(context), ReplicationRequests(context, timers), RaftRequests(context),
    )  # fmt: skip
    return {code: handler for part in parts for code, handler in part.handlers().items()}
