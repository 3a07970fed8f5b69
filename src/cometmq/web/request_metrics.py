"""How long requests took, as RocketMQ tells it, and who is connected."""

from enum import IntEnum

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.transport.latencies import Latencies, Way

from .exposition import Family, flag

_RESULTS = {Way.ANSWERED: "success", Way.HELD: "success", Way.ONEWAY: "oneway"}


def latency_family(latencies: Latencies | None) -> Family:
    return Family(
        "rocketmq_rpc_latency_milliseconds",
        "histogram",
        "Time from a request's arrival to its answer",
        [
            (
                {
                    "protocol_type": "remoting",
                    "request_code": _name(RequestCode, found.request),
                    "response_code": _name(ResponseCode, found.answer),
                    "is_long_polling": flag(found.way is Way.HELD),
                    "result": _RESULTS[found.way],
                },
                found.spread,
            )
            for found in latencies or ()
        ],
    )


def _name(codes: type[IntEnum], number: int) -> str:
    try:
        return codes(number).name.lower()
    except ValueError:
        return str(number)
