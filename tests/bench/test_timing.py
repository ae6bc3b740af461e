"""Work in threads that end with it: its result, its errors, and how Ctrl-C ends it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable

import pytest

from agentcho.lab.timing import alone, stoppable
from agentcho.protocol.progress import heard


def often(check: Callable[[], None]) -> None:
    for _ in range(10**7):
        check()


def there() -> threading.Thread:
    return threading.current_thread()


def test_work_is_done_in_a_thread_that_ends_with_it() -> None:
    for thread in (alone(there)(), stoppable(lambda check: there())):
        assert thread is not there()
        assert not thread.is_alive()


def test_what_it_raises_comes_out() -> None:
    def failing(check: Callable[[], None]) -> None:
        check()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        stoppable(failing)


@pytest.mark.skipif(sys.platform == "win32", reason="no signal can be sent to a thread")
def test_ctrl_c_ends_it_when_it_next_asks_and_not_before() -> None:
    asked: list[str] = []
    main = threading.main_thread().ident
    assert main is not None

    def work(check: Callable[[], None]) -> None:
        tell = heard(lambda what, done, of: asked.append(what), check)
        tell("before", 0, 1)
        signal.pthread_kill(main, signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            often(check)
        asked.append("ended")
        with pytest.raises(KeyboardInterrupt):
            tell("after", 1, 1)

    with pytest.raises(KeyboardInterrupt):
        stoppable(work)
    assert asked == ["before", "ended"]
