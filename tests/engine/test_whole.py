"""Forced texts fed in strides after their first token, and shapes with random weights."""

from __future__ import annotations

import pytest
import torch

from agentcho import Decode, Engine, Sampling
from agentcho.errors import ModelNotFound, RequestError
from agentcho.protocol.call import Prefill, Shadow
from agentcho.runner.model.model import find


@pytest.mark.parametrize("stride", [2, 3, 1000])
def test_a_text_fed_in_strides_is_the_one_fed_token_by_token(llama: Engine, stride: int) -> None:
    parent = llama.prefill("before it")
    words = tuple(llama.framing.content.encode("some words that are forced"))
    made = [
        llama.decode("To Bob: ", parents=[parent], forced=words, stride=each, sampling=Sampling(max_tokens=1))
        for each in (1, stride)
    ]
    one, other = (llama.message(id) for id in made)
    assert one == other
    assert other.stopped == "forced"
    for (k, v), (k2, v2) in zip(*(llama.cached(id) for id in made), strict=True):
        torch.testing.assert_close(k, k2, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(v, v2, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("stride", [2, 3, 5, 1000])
def test_every_row_of_a_text_fed_in_strides_is_kept(llama: Engine, stride: int) -> None:
    parent = llama.prefill("before it")
    words = tuple(llama.framing.content.encode("some words that are forced"))
    said = [llama.decode("To Bob: ", parents=[parent], forced=words, logits=True, stride=n) for n in (1, stride)]
    one, other = (llama.logits(id) for id in said)
    assert len(one) == len(words) + 1
    torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    llama.release([parent, *said])


def test_it_takes_two_steps_and_its_shadow_goes_along(llama: Engine) -> None:
    (public,) = llama.submit([Prefill("public")])
    llama.step()
    words = tuple(llama.framing.content.encode("said at once"))
    call = Decode(parents=[public], forced=words, stride=16)
    said, shadow = llama.submit([call, Shadow(call, [public])])
    first, second = llama.step(), llama.step()
    assert [spoken.id for spoken in first.spoken] == [said]
    assert sorted(second.finished) == [said, shadow]
    assert llama.idle
    llama.release([public, said, shadow])


@pytest.mark.parametrize("options", [{"stride": 2}, {"stride": 0, "forced": (1,)}])
def test_what_cannot_go_in_strides_is_refused(llama: Engine, options: dict[str, object]) -> None:
    with pytest.raises(RequestError, match="stride"):
        llama.submit([Decode(**options)])  # type: ignore[arg-type]


def test_a_shape_has_a_name_and_random_weights() -> None:
    source = find("shape:qwen3-0.6b")
    assert source.random
    assert (source.config.model_type, source.config.num_hidden_layers) == ("qwen3", 28)
    with pytest.raises(ModelNotFound, match=r"qwen3-0\.6b, llama-3\.2-1b, llama-3\.1-8b"):
        find("shape:qwen3-600b")
