"""Messages that a reader has in two encodings, from which methods with anchors take offsets of keys and values."""

from __future__ import annotations

from typing import NamedTuple


class Encoded:
    """A call that makes an encoding, which later calls can name before it has an id: a `Prefill` or a `Repair`."""

    __slots__ = ()


class Anchor(NamedTuple):
    """A message that a reader has in two encodings. Each is an id, or the call that makes it.

    Args:
        real: The encoding in the reader's own prompt.
        base: The encoding as it is reused.
    """

    real: int | Encoded
    base: int | Encoded
