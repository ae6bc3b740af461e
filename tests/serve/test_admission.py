"""Admission of requests: counts and rates, under a simulated clock."""

from __future__ import annotations

from contextlib import ExitStack, suppress

import pytest

from agentcho.serve.api_errors import ApiError
from agentcho.serve.config import ServeLimits
from agentcho.serve.web.admission import Admission, KeyLimits
from agentcho.serve.web.app import Site
from agentcho.serve.web.keys import ApiKey, ApiKeys

FREE = KeyLimits()


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def refused(admission: Admission, tenant: str = "red", key: str = "k", bounds: KeyLimits = FREE) -> ApiError:
    with pytest.raises(ApiError) as error, admission.admitted(tenant, key, bounds):
        pass
    return error.value


def test_a_full_server_says_503_and_takes_more_when_one_ends() -> None:
    admission = Admission(ServeLimits(requests=2))
    with ExitStack() as stack:
        for tenant in ("red", "blue"):
            stack.enter_context(admission.admitted(tenant, "", FREE))
        assert (refused(admission).status, refused(admission).retry_after) == (503, 1)
    assert admission.running == 0
    with admission.admitted("red", "", FREE):
        assert admission.running == 1


def test_a_tenant_and_a_key_have_bounds_of_their_own_and_no_neighbour_notices() -> None:
    admission = Admission(ServeLimits(tenant_requests=2))
    with admission.admitted("red", "a", KeyLimits(1)):
        assert refused(admission, key="a", bounds=KeyLimits(1)).status == 429
        with admission.admitted("red", "b", KeyLimits(1)):
            assert refused(admission, key="c").status == 429
            with admission.admitted("blue", "d", FREE):
                assert admission.running == 3


def test_without_keys_only_the_limit_of_the_server_or_a_limit_that_was_given_applies() -> None:
    keys = ApiKeys([ApiKey(sha256="0" * 64, tenant="red")])
    for site, taken in (
        (Site((), ApiKeys(), ServeLimits()), 256),
        (Site((), keys, ServeLimits()), 64),
        (Site((), ApiKeys(), ServeLimits(tenant_requests=3)), 3),
        (Site((), keys, ServeLimits(tenant_requests=3)), 3),
    ):
        with ExitStack() as stack:
            for _ in range(taken):
                stack.enter_context(site.admission.admitted("", "", FREE))
            assert refused(site.admission, "").status == (503 if taken == 256 else 429)


def test_who_is_refused_waits_about_as_long_as_a_request_of_its_tenant_takes() -> None:
    clock = Clock()
    admission = Admission(ServeLimits(tenant_requests=1), clock)
    for seconds in (8, 12):
        with admission.admitted("red", "", FREE):
            clock.now += seconds
    with admission.admitted("red", "", FREE), admission.admitted("blue", "", FREE):
        assert refused(admission).retry_after == 9
        assert refused(admission, "blue").retry_after == 1
        clock.now += 1000
    with admission.admitted("red", "", FREE):
        assert refused(admission).retry_after == 60


def test_a_request_that_is_not_timed_shortens_no_wait() -> None:
    clock = Clock()
    admission = Admission(ServeLimits(requests=1), clock)
    with admission.admitted("red", "k", FREE):
        clock.now += 20
    for _ in range(8):
        with admission.admitted("red", "k", FREE, timed=False):
            pass
    with admission.admitted("red", "k", FREE):
        assert refused(admission).retry_after == 20


def test_what_was_refused_or_failed_counts_for_nothing() -> None:
    admission = Admission(ServeLimits(tenant_requests=1, tenant_per_minute=2))
    with suppress(ZeroDivisionError), admission.admitted("red", "", FREE):
        assert {refused(admission).message.endswith("at once") for _ in range(5)} == {True}
        raise ZeroDivisionError
    with admission.admitted("red", "", FREE):
        assert admission.running == 1


def test_a_rate_is_filled_evenly_and_says_when_there_is_one_more() -> None:
    clock = Clock()
    admission = Admission(ServeLimits(tenant_per_minute=2), clock)
    for _ in range(2):
        with admission.admitted("red", "", FREE):
            pass
    assert (refused(admission).status, refused(admission).retry_after) == (429, 30)
    with admission.admitted("blue", "", FREE):
        pass
    clock.now += 30
    with admission.admitted("red", "", FREE):
        pass
    assert refused(admission).retry_after == 30


def test_a_key_with_a_rate_leaves_its_tenant_s_other_keys_alone_and_nobody_waits_longer_than_a_minute() -> None:
    admission = Admission(ServeLimits(), Clock())
    slow = KeyLimits(per_minute=1)
    with admission.admitted("red", "a", slow):
        pass
    assert refused(admission, key="a", bounds=slow).retry_after == 60
    with admission.admitted("red", "b", slow):
        pass


def test_a_server_that_ends_takes_no_more() -> None:
    admission = Admission(ServeLimits())
    admission.drain()
    error = refused(admission)
    assert (error.status, error.code, error.retry_after) == (503, "shutting_down", 5)


def test_a_server_that_ends_waits_for_what_is_under_way_and_for_nothing_else() -> None:
    idle = Admission(ServeLimits())
    idle.drain()
    assert idle.drained.is_set()
    busy = Admission(ServeLimits())
    with busy.admitted("red", "", FREE):
        busy.drain()
        assert not busy.drained.is_set()
    assert busy.drained.is_set()
