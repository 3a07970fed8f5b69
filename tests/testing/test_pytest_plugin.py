"""The fixtures as a user has them: in a pytest of his own, with nothing but CometMQ installed."""

import importlib.metadata

import pytest

pytest_plugins = ["pytester"]

THREE_LINES = """
import socket

def test_sync(cometmq_broker):
    cometmq_broker.create_topic("orders")
    host, port = cometmq_broker.namesrv.split(":")
    socket.create_connection((host, int(port)), timeout=5).close()
"""


@pytest.fixture
def user(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project of its own, in a process of its own: warnings of any kind fail its tests."""
    pytester.makeini("[pytest]\naddopts = --strict-markers -W error\n")
    return pytester


def outcomes(user: pytest.Pytester, *options: str) -> dict[str, int]:
    return user.runpytest_subprocess(*options, timeout=120).parseoutcomes()


def test_the_plugin_is_known_to_pytest_by_its_entry_point() -> None:
    found = importlib.metadata.entry_points(group="pytest11", name="cometmq")
    assert [entry.value for entry in found] == ["cometmq.testing.pytest_plugin"]


def test_a_users_test_is_three_lines(user: pytest.Pytester) -> None:
    user.makepyfile(THREE_LINES)
    assert outcomes(user) == {"passed": 1}


def test_asynchronous_tests_use_the_same_fixture(user: pytest.Pytester) -> None:
    user.makeconftest(
        """
        import asyncio, inspect, pytest

        @pytest.hookimpl(tryfirst=True)
        def pytest_pyfunc_call(pyfuncitem):  # What pytest-asyncio and anyio do.
            if inspect.iscoroutinefunction(pyfuncitem.obj):
                names = inspect.signature(pyfuncitem.obj).parameters
                asyncio.run(pyfuncitem.obj(**{n: pyfuncitem.funcargs[n] for n in names}))
                return True
        """
    )
    user.makepyfile(
        """
        from cometmq.protocol.command import Request
        from cometmq.transport.dial import connect

        async def test_async(cometmq_broker):
            cometmq_broker.create_topic("orders")
            connection = await connect(cometmq_broker.namesrv)
            answer = await connection.request(Request(105, {"topic": "orders"}), 5)
            assert answer.code == 0
            assert cometmq_broker.address.encode() in answer.body
            connection.close()
        """
    )
    assert outcomes(user) == {"passed": 1}


def test_each_test_gets_a_fresh_broker_and_all_share_the_shared_one(user: pytest.Pytester) -> None:
    user.makepyfile(
        """
        import pytest

        seen, shared = set(), set()

        @pytest.mark.parametrize("turn", [1, 2])
        def test_turn(cometmq_broker, cometmq_shared_broker, turn):
            assert not any(path.exists() for path in seen)
            seen.add(cometmq_broker.directory)
            shared.add(cometmq_shared_broker.directory)
            assert (len(seen), len(shared)) == (turn, 1)
            assert cometmq_shared_broker.directory.exists()
        """
    )
    assert outcomes(user) == {"passed": 2}


def test_markers_say_how_the_broker_is_and_the_nearest_one_wins(user: pytest.Pytester) -> None:
    user.makepyfile(
        """
        import pytest

        pytestmark = pytest.mark.cometmq(
            brokers=3, settings={"brokerClusterName": "far", "traceTopicEnable": True}
        )

        @pytest.mark.cometmq(
            brokers=2, in_memory=True, through_proxy=True, settings={"brokerClusterName": "near"}
        )
        def test_marked(cometmq_broker):
            assert len(cometmq_broker.addresses) == 2
            assert cometmq_broker.proxy(1).address not in cometmq_broker.addresses
            topics = (cometmq_broker.directory / "broker-b" / "config" / "topics.json")
            cometmq_broker.stop_broker(1)
            assert '"near"' in topics.read_text()
            assert "RMQ_SYS_TRACE_TOPIC" in topics.read_text()

        def test_marked_by_its_module(cometmq_broker):
            assert len(cometmq_broker.addresses) == 3
        """
    )
    assert outcomes(user) == {"passed": 2}


def test_the_ini_file_says_how_all_brokers_are(user: pytest.Pytester) -> None:
    user.makeini(
        """
        [pytest]
        cometmq_brokers = 2
        cometmq_through_proxy = true
        cometmq_in_memory = true
        cometmq_flush = sync
        cometmq_settings =
            brokerClusterName = ours
            traceTopicEnable = true
        """
    )
    user.makepyfile(
        """
        import pytest

        def check(broker):
            assert len(broker.addresses) == 2
            assert broker.proxy().address
            broker.stop_broker(1)
            topics = broker.directory / "broker-b" / "config" / "topics.json"
            assert '"ours"' in topics.read_text()

        def test_fresh(cometmq_broker):
            check(cometmq_broker)

        def test_shared(cometmq_shared_broker):
            check(cometmq_shared_broker)

        @pytest.mark.cometmq(brokers=1)
        def test_marked(cometmq_broker):
            assert len(cometmq_broker.addresses) == 1
        """
    )
    assert outcomes(user) == {"passed": 3}


@pytest.mark.parametrize(
    ("ini", "marker", "complaint"),
    [
        ("cometmq_brokers = some", "", "*cometmq_brokers=some: a number is expected*"),
        ("cometmq_settings = nonsense", "", "*'nonsense' is not key=value*"),
        ("", "@pytest.mark.cometmq(2)", "*takes named options only*"),
        ("", "@pytest.mark.cometmq(broker=2)", "*unexpected keyword argument 'broker'*"),
        ("", "@pytest.mark.cometmq(settings={'brokerNam': 1})", "*brokerNam*brokerName*"),
    ],
)
def test_wrong_options_are_told(
    user: pytest.Pytester, ini: str, marker: str, complaint: str
) -> None:
    user.makeini(f"[pytest]\n{ini}\n")
    user.makepyfile(f"import pytest\n{marker}\ndef test_it(cometmq_broker): pass\n")
    result = user.runpytest_subprocess(timeout=120)
    assert result.parseoutcomes() == {"errors": 1}
    result.stdout.fnmatch_lines(complaint)


def test_fixtures_and_marker_introduce_themselves(user: pytest.Pytester) -> None:
    shown = user.runpytest_subprocess("--fixtures", timeout=120).stdout
    shown.fnmatch_lines(["cometmq_broker*", "*A fresh broker for this test.*"])
    shown.fnmatch_lines("cometmq_shared_broker [[]session scope[]]*")
    user.runpytest_subprocess("--markers", timeout=120).stdout.fnmatch_lines(
        "@pytest.mark.cometmq(brokers=1, *"
    )


def test_without_a_test_that_asks_for_it_nothing_of_cometmq_is_loaded(
    user: pytest.Pytester,
) -> None:
    user.makepyfile(
        """
        import sys

        def test_nothing_is_loaded():
            found = {name for name in sys.modules if name.startswith(("cometmq.", "msgspec"))}
            assert found == {"cometmq.testing", "cometmq.testing.pytest_plugin"}
        """
    )
    assert outcomes(user) == {"passed": 1}
