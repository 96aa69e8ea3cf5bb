"""Which base URL a call goes to."""

from collections import Counter

import pytest

from components.models.endpoints import Endpoints

URLS = tuple(f"http://engine-{number}/v1" for number in range(4))
ROLLOUTS = tuple(f"run-{number:05d}-00" for number in range(2_000))


def test_rollouts_spread_evenly_over_the_urls() -> None:
    endpoints = Endpoints(URLS)
    counts = Counter(endpoints.pick(rollout) for rollout in ROLLOUTS)
    assert set(counts) == set(URLS)
    assert min(counts.values()) > 0.8 * len(ROLLOUTS) / len(URLS)


def test_a_rollout_keeps_to_its_url_whatever_the_order_of_the_config() -> None:
    one, other = Endpoints(URLS), Endpoints(URLS[::-1])
    assert [one.pick(rollout) for rollout in ROLLOUTS] == [other.pick(rollout) for rollout in ROLLOUTS]


def test_a_resting_url_moves_only_its_own_rollouts_and_spreads_them_over_all_others() -> None:
    endpoints = Endpoints(URLS)
    before = {rollout: endpoints.pick(rollout) for rollout in ROLLOUTS}
    endpoints.unreachable(URLS[0])
    after = {rollout: endpoints.pick(rollout) for rollout in ROLLOUTS}
    moved = {rollout for rollout in ROLLOUTS if before[rollout] != after[rollout]}
    assert moved == {rollout for rollout in ROLLOUTS if before[rollout] == URLS[0]}
    assert {after[rollout] for rollout in moved} == set(URLS[1:])


def test_a_url_is_asked_again_when_its_rest_is_over_or_it_answered() -> None:
    rested = Endpoints(URLS, rest_s=0.0)
    rested.unreachable(URLS[0])
    assert not rested.rests(URLS[0])
    endpoints = Endpoints(URLS)
    endpoints.unreachable(URLS[0])
    assert endpoints.rests(URLS[0])
    endpoints.answered(URLS[0])
    assert not endpoints.rests(URLS[0])


def test_when_all_rest_the_one_whose_rest_ends_first_is_asked() -> None:
    endpoints = Endpoints(URLS)
    for url in (*URLS[2:], *URLS[:2]):
        endpoints.unreachable(url)
    assert endpoints.all_rest()
    assert endpoints.pick("any-rollout") == URLS[2]


def test_without_affinity_the_urls_are_asked_as_configured() -> None:
    assert Endpoints(URLS).order("") == URLS


def test_a_model_without_a_url_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one base URL"):
        Endpoints(())
