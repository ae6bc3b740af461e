"""Messages that a reader has in two encodings, from which methods with anchors take offsets of keys and values.

Does not know: calls, methods.
"""

from __future__ import annotations

from typing import NamedTuple


class Encoded:
    """A call that makes an encoding which calls after it can name before it has an id: a `Prefill` or a `Repair`."""

    __slots__ = ()


class Anchor(NamedTuple):
    """A message that a reader has in two encodings, each an id or the call that makes it: `real`, in the reader's own
    prompt, and `base`, as it is reused."""

    real: int | Encoded
    base: int | Encoded
