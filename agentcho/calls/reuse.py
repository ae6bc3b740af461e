"""Ways of reusing what was encoded elsewhere, as calls ask for them, and by their names.

Which tokens of a message a repair encodes anew, and how what was encoded side by side is weighed. Does not know:
calls, how anything is computed.
"""

from __future__ import annotations

import re
from math import ceil
from typing import Literal, NamedTuple, cast

from agentcho.calls.anchored import Anchored


class First(NamedTuple):
    """For `Repair`: the first `tokens` tokens of a message, framing included; all of them where it has fewer."""

    tokens: int

    def places(self, length: int) -> tuple[int, ...]:
        """The indices of these tokens in a message of `length`."""
        return tuple(range(min(length, self.tokens)))

    @property
    def tag(self) -> str:
        """What names it in the keys of stored encodings. It never changes, whatever the class is called."""
        return f"First(tokens={self.tokens!r})"


class Ends(NamedTuple):
    """For `Repair`: the `first` and the `last` tokens of a message, framing included; all of them where it has no more.
    Neither is below 0, and together they are at least 1. What follows a message looks most at where it begins and, for
    what it comes to, at where it ends."""

    first: int
    last: int

    def places(self, length: int) -> tuple[int, ...]:
        """The indices of these tokens in a message of `length`."""
        return tuple(i for i in range(length) if i < self.first or i >= length - self.last)

    @property
    def tag(self) -> str:
        """What names it in the keys of stored encodings. It never changes, whatever the class is called."""
        return f"Ends(first={self.first!r}, last={self.last!r})"


class Most(NamedTuple):
    """For `Repair`: the `share` (above 0, at most 1) of a message's tokens whose values deviate most, at an early
    layer, from those of the message encoded anew (CacheBlend, arXiv 2405.16444). At least one token."""

    share: float

    @property
    def tag(self) -> str:
        """What names it in the keys of stored encodings. It never changes, whatever the class is called."""
        return f"Most(share={self.share!r})"


class Blend(NamedTuple):
    """For `Repair`: as `Most`, and filtered layer by layer (the whole of CacheBlend, arXiv 2405.16444): of the tokens
    that are encoded anew at one layer, those whose values deviate most go on to be so at the next, fewer each time.
    From the second layer to the last their share falls evenly, by as much above `share` first as it is below at last,
    so that `share` is its mean. The first layer is everybody's: its keys and values depend on no context."""

    share: float

    @property
    def first(self) -> float:
        """The share of tokens that are encoded anew at the second layer."""
        return self.share + self._spread

    @property
    def _spread(self) -> float:
        return min(self.share / 2, 1 - self.share)

    def anew(self, length: int, layer: int, layers: int) -> int:
        """How many of `length` tokens are encoded anew at `layer` of `layers`, counted from 0; at least one."""
        fallen = max(0, layer - 1) / (layers - 2) if layers > 2 else 0
        return max(1, min(length, ceil((self.first - 2 * self._spread * fallen) * length)))

    @property
    def tag(self) -> str:
        """What names it in the keys of stored encodings. It never changes, whatever the class is called."""
        return f"Blend(share={self.share!r})"


JUDGE: Literal["full"] = "full"
"""What `reuse="judge"` of a view encodes anew of each message of others that the call reads: all of it. Nothing less
that was measured keeps the choices that judges make (`agentcho bench judge`)."""
Choose = First | Ends | Most | Blend | Anchored
"""Which tokens of a message a `Repair` encodes anew."""


class Ape(NamedTuple):
    """Adaptive parallel encoding (APE, arXiv 2502.05431): how a call weighs what it attends to of parents that were
    encoded side by side, each without the others. With s the scores of their keys, those of all such parents together,
    each weight exp(s) becomes exp(s / `temperature`) times (the sum of all exp(s / `temperature`)) to the power of
    `scale` - 1, beside exp(s) of every other key. Both are above 0; the paper has them at 1 or less, and 1 and 1
    change nothing.

    What all of them share, because they were encoded over it where it stands, is no part of them (the paper's shared
    prefix); nor is what was encoded over all of them, nor the call's own tokens.
    """

    temperature: float
    scale: float


ROTATE = "rotate"
IN_PLACE = "in-place"
APE = "ape"
WAYS = (ROTATE, IN_PLACE, APE)
"""Every way of reading what is reused, as it is usually asked for. What is repaired is read by the first."""
USUAL_APE = Ape(0.9, 0.9)
"""What APE is without figures of its own."""


def parsed_way(text: str) -> Ape | Literal["rotate", "in-place"]:
    """`rotate`, `in-place`, `ape` or `ape:0.9,0.8` as what a reuse policy takes. ValueError: it is none."""
    kind, colon, value = text.partition(":")
    if text in (ROTATE, IN_PLACE):
        return cast(Literal["rotate", "in-place"], text)
    if text == APE:
        return USUAL_APE
    found = re.fullmatch(r"(\d*\.?\d+),(\d*\.?\d+)", value)
    if kind == APE and colon and found and float(found[1]) > 0 and float(found[2]) > 0:
        return Ape(float(found[1]), float(found[2]))
    raise ValueError(
        f"{text!r} is none of rotate, in-place and ape:TEMPERATURE,SCALE (two numbers above 0, as ape:0.9,0.9)"
    )


REPAIRS = ("epic:16", "top-k:0.15", "cacheblend:0.15", "kvcomm", "full")
"""Every published kind of repair, as it is usually asked for; `epic:16` is `first-k:16`."""
ALL = "all"
"""What stands for all of `REPAIRS` and all of `WAYS` where ways of reuse are compared."""
FIRST, ENDS = ("first-k", "epic"), "ends"
SHARES: dict[str, type[Most] | type[Blend] | type[Anchored]] = {
    "top-k": Most,
    "cacheblend": Blend,
    "kvcomm": Anchored,
}


def parsed_repair(text: str) -> Choose | Literal["full"]:
    """`first-k:16`, `epic:16`, `ends:8,8`, `top-k:0.15`, `cacheblend:0.15`, `kvcomm`, `kvcomm:0.3` or `full` as what an
    engine takes; `epic` is `first-k` by its name in the field (LegoLink of EPIC, arXiv 2410.15332). ValueError: it is
    none."""
    kind, _, value = text.partition(":")
    if text == "full":
        return "full"
    if kind in FIRST and value.isdecimal() and int(value) >= 1:
        return First(int(value))
    if kind == ENDS and (found := re.fullmatch(r"(\d{1,9}),(\d{1,9})", value)) and int(found[1]) + int(found[2]) >= 1:
        return Ends(int(found[1]), int(found[2]))
    if kind in SHARES and re.fullmatch(r"0?\.\d+|1(\.0+)?", value) and float(value) > 0:
        return SHARES[kind](float(value))
    if text == "kvcomm":
        return Anchored()
    known = (
        "first-k:TOKENS, epic:TOKENS, ends:FIRST,LAST, top-k:SHARE, cacheblend:SHARE, kvcomm, kvcomm:THRESHOLD and full"
    )
    raise ValueError(f"{text!r} is none of {known} (a share or threshold is above 0, at most 1)")
