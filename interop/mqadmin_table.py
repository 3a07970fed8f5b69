"""Every command of mqadmin 5.5.0, and the table of them in docs/compatibility.md.

A test names the commands it proves with `@pytest.mark.mqadmin(...)`. `Recorder` gathers what became
of them and writes the table, if all commands ran against both systems; it holds no times, so that
the same results give the same table.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import pytest

from interop import systems
from interop.document import write_table

Reporting = Generator[None, pytest.TestReport, pytest.TestReport]

COLUMNS = ("command", "what it does", "CometMQ", "Apache RocketMQ 5.5.0")
MARKER = "mqadmin(*commands): the commands of mqadmin that a test proves"

CONTAINER = "broker containers"
CONTROLLER = "the controller"
REPLICATION = "what a master has flushed, kept at its slaves"
POP = "pop consumption"
STATIC = "static topics"
ROCKSDB = "RocksDB stores"
COLD = "cold data flow control"
ACL = "users and access control"
LITE = "lite topics"


@dataclass(frozen=True)
class Command:
    """A command in our own words; `lacks` names what CometMQ has not, `needs` what a plain
    RocketMQ broker has not either."""

    name: str
    does: str
    lacks: str = ""
    needs: str = ""


COMMANDS = (
    Command("updateTopic", "make a topic or change its queues, permission, order, attributes"),
    Command("updateTopicList", "the same for all topics in a file"),
    Command("deleteTopic", "remove a topic from brokers and NameServers"),
    Command("updateSubGroup", "make a consumer group or change its settings"),
    Command("updateSubGroupList", "the same for all groups in a file"),
    Command("setConsumeMode", "have a group pull or pop", POP),
    Command("deleteSubGroup", "remove a consumer group, and its offsets if asked"),
    Command("updateBrokerConfig", "change a setting of running brokers"),
    Command("updateTopicPerm", "change who may read and write a topic"),
    Command("topicRoute", "which brokers have the queues of a topic"),
    Command("topicStatus", "first and last offset and last message's time of every queue"),
    Command("topicClusterList", "which clusters have a topic"),
    Command("addBroker", "start a broker inside a container", CONTAINER, "a container"),
    Command("removeBroker", "stop a broker inside a container", CONTAINER, "a container"),
    Command("resetMasterFlushOffset", "tell a slave how far its master has flushed", REPLICATION),
    Command("brokerStatus", "counters and times of a broker"),
    Command("queryMsgById", "a message by its place; resend it or hand it to one consumer"),
    Command("queryMsgByKey", "messages by key or tag"),
    Command("queryMsgByUniqueKey", "messages by the id that the client gave them"),
    Command("queryMsgByOffset", "the message at an offset of a queue"),
    Command("queryMsgTraceById", "what producer and consumers reported about a message"),
    Command("printMsg", "the messages of a topic"),
    Command("printMsgByQueue", "the messages of one queue, and how many of each tag"),
    Command("sendMsgStatus", "send to a broker and say how it went"),
    Command("brokerConsumeStats", "how far every group of a broker has come"),
    Command("producerConnection", "the producers of a group and a topic"),
    Command("consumerConnection", "the consumers of a group and what they subscribe to"),
    Command("consumerProgress", "how far groups have come, queue by queue"),
    Command("consumerStatus", "what the consumers of a group are doing, asked of themselves"),
    Command("cloneGroupOffset", "give a group the offsets of another"),
    Command("producer", "all producers of a broker"),
    Command("clusterList", "the brokers of all clusters with version and load"),
    Command("topicList", "all topics, or topics with their clusters and groups"),
    Command("updateKvConfig", "set a value in the NameServer"),
    Command("deleteKvConfig", "remove a value from the NameServer"),
    Command("wipeWritePerm", "stop writes to a broker, in the NameServer"),
    Command("addWritePerm", "allow writes to a broker again"),
    Command("resetOffsetByTime", "have a group go on at a time or an offset"),
    Command("skipAccumulatedMessage", "have a group go on behind everything there is"),
    Command("updateOrderConf", "set, show or remove the ordered queues of a topic"),
    Command("cleanExpiredCQ", "remove queue files whose messages are gone"),
    Command("deleteExpiredCommitLog", "remove log files that are over their time"),
    Command("cleanUnusedTopic", "remove the queue files of topics that are gone"),
    Command("startMonitoring", "watch all groups and log their lag"),
    Command("statsAll", "messages in, out and waiting, by topic and group"),
    Command("allocateMQ", "how queues would be shared among consumers"),
    Command("checkMsgSendRT", "how long sends to a topic take"),
    Command("clusterRT", "how long sends to every broker take, again and again"),
    Command("getNamesrvConfig", "the settings of NameServers"),
    Command("updateNamesrvConfig", "change a setting of running NameServers"),
    Command("getBrokerConfig", "the settings of brokers"),
    Command("getConsumerConfig", "the settings of a consumer group"),
    Command("queryCq", "the entries of a queue as they are stored"),
    Command("sendMessage", "send one message"),
    Command("consumeMessage", "read messages from a queue"),
    Command("updateStaticTopic", "make a topic whose queues never change", STATIC),
    Command("remappingStaticTopic", "move the queues of such a topic", STATIC),
    Command("exportMetadata", "topics and groups into a file"),
    Command("exportConfigs", "the main settings of a cluster's brokers into a file"),
    Command("exportMetrics", "sizes and rates of a cluster's brokers into a file"),
    Command("exportMetadataInRocksDB", "print a RocksDB of settings", ROCKSDB, "such a directory"),
    Command("exportPopRecord", "pop records from RocksDB into the log", POP),
    Command("haStatus", "how far slaves are behind"),
    Command("getSyncStateSet", "which replicas are in step", CONTROLLER, "a controller"),
    Command("getBrokerEpoch", "the terms of a replica", CONTROLLER, "a controller"),
    Command("getControllerMetaData", "who leads the controllers", CONTROLLER, "a controller"),
    Command("getControllerConfig", "the settings of controllers", CONTROLLER, "a controller"),
    Command("updateControllerConfig", "change a setting of them", CONTROLLER, "a controller"),
    Command("electMaster", "make a replica the master", CONTROLLER, "a controller"),
    Command("cleanBrokerMetadata", "forget replicas that are gone", CONTROLLER, "a controller"),
    Command("dumpCompactionLog", "print a compacted log", "compacted topics", "such a file"),
    Command("getColdDataFlowCtrInfo", "which groups read old data, and how fast", COLD),
    Command("updateColdDataFlowCtrGroupConfig", "limit a group's reads of old data", COLD),
    Command("removeColdDataFlowCtrGroupConfig", "remove that limit", COLD),
    Command("setCommitLogReadAheadMode", "switch the read-ahead of log files", COLD),
    Command("createUser", "make a user", ACL, "access control to be on"),
    Command("updateUser", "change a user", ACL, "access control to be on"),
    Command("deleteUser", "remove a user", ACL, "access control to be on"),
    Command("getUser", "show a user", ACL, "access control to be on"),
    Command("listUser", "show all users", ACL, "access control to be on"),
    Command("copyUser", "copy users to another broker", ACL, "access control to be on"),
    Command("createAcl", "allow or deny something", ACL, "access control to be on"),
    Command("updateAcl", "change such a rule", ACL, "access control to be on"),
    Command("deleteAcl", "remove such a rule", ACL, "access control to be on"),
    Command("getAcl", "show the rules for a user", ACL, "access control to be on"),
    Command("listAcl", "show all rules", ACL, "access control to be on"),
    Command("copyAcl", "copy rules to another broker", ACL, "access control to be on"),
    Command("rocksDBConfigToJson", "settings from RocksDB as JSON", ROCKSDB),
    Command(
        "checkRocksdbCqWriteProgress", "compare queues in RocksDB with those in files", ROCKSDB
    ),
    Command("switchTimerEngine", "keep timed messages in files or in RocksDB", ROCKSDB),
    Command("getBrokerLiteInfo", "counts of lite topics", LITE),
    Command("getParentTopicInfo", "the lite topics below a topic", LITE, "a lite topic"),
    Command("getLiteTopicInfo", "offsets and consumers of a lite topic", LITE, "a lite topic"),
    Command("getLiteClientInfo", "the lite topics of a consumer", LITE, "a lite topic"),
    Command("getLiteGroupInfo", "how far a group has come in lite topics", LITE, "a lite topic"),
    Command("triggerLiteDispatch", "wake the consumers of lite topics", LITE, "a lite topic"),
)


class Recorder:
    """A pytest plugin: what became of every command, by system."""

    def __init__(self) -> None:
        self._failures: dict[tuple[str, str], list[str]] = {}

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", MARKER)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Reporting:
        report = yield
        marker = item.get_closest_marker("mqadmin")
        if marker and isinstance(item, pytest.Function):
            self._add(item, report, marker.args)
        return report

    def _add(
        self, item: pytest.Function, report: pytest.TestReport, commands: tuple[str, ...]
    ) -> None:
        if report.skipped or (report.passed and report.when != "call"):
            return
        system = item.callspec.params["system"]
        assert isinstance(system, systems.System)
        for command in commands:
            failures = self._failures.setdefault((command, system.name), [])
            if report.failed:
                failures.append(item.originalname)

    def pytest_sessionfinish(self) -> None:
        wanted = {(command.name, system) for command in COMMANDS for system in systems.SYSTEMS}
        if wanted <= self._failures.keys():
            write_table("mqadmin", COLUMNS, self._rows())

    def _rows(self) -> list[list[str]]:
        return [
            [
                f"`{command.name}`",
                command.does,
                *(self._outcome(command, system) for system in ("cometmq", "rocketmq")),
            ]
            for command in COMMANDS
        ]

    def _outcome(self, command: Command, system: str) -> str:
        failures = self._failures[command.name, system]
        if failures:
            return f"**fails**: {failures[0]}"
        if not command.lacks:
            return "pass"
        if system == "cometmq":
            return f"not in CometMQ: {command.lacks}"
        return f"needs {command.needs}" if command.needs else "runs"
