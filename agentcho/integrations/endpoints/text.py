"""Accumulates the text of a streamed answer: what may be shown already, and where it ends."""

from __future__ import annotations

from collections.abc import Sequence


class Growing:
    """A text that grows piece by piece. Text that may turn out to be the call's header or a stop string is held back.
    The header, if the answer repeats it, is left out, and so is everything from a stop string on (from its end on if
    `kept`)."""

    def __init__(self, header: str, stops: Sequence[str], kept: bool = False) -> None:
        self._header = header.strip()
        self._spaced = header != header.rstrip()
        self._stops = stops
        self._kept = kept
        self._held = ""
        self._half = ""
        self.text = ""
        self.begun, self.cut = not self._header, False

    def add(self, piece: str) -> str:
        """Add a piece; return the text that becomes visible."""
        self._held += self._whole(piece)
        if not self.begun:
            self._leave_out_header(ended=False)
        return self._show(self._safe()) if self.begun else ""

    def end(self) -> str:
        """Finish after the last piece; return the text that becomes visible."""
        self._held += "\N{REPLACEMENT CHARACTER}" if self._half else ""
        self._half = ""
        if not self.begun:
            self._leave_out_header(ended=True)
        return self._show(len(self._held))

    def _whole(self, piece: str) -> str:
        """Return the complete characters of a piece. JSON may encode a character as two surrogates, which may come in
        separate pieces."""
        piece, self._half = self._half + piece, ""
        if piece and "\ud800" <= piece[-1] <= "\udbff":
            piece, self._half = piece[:-1], piece[-1]
        return piece.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def _leave_out_header(self, ended: bool) -> None:
        """Drop the header once it is known whether the answer repeats it as whole words."""
        bare = self._held.lstrip()
        if not ended and len(bare) <= len(self._header) and self._header.startswith(bare):
            return
        rest = bare.removeprefix(self._header)
        if bare.startswith(self._header) and not (rest[:1].isalnum() and self._header[-1].isalnum()):
            self._held = rest.lstrip(" ") if self._spaced else rest
        self.begun = True

    def _safe(self) -> int:
        """Return how many of the held characters cannot be part of an incomplete stop string."""
        for length in range(min(len(self._held), max(map(len, self._stops), default=1) - 1), 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stops):
                return len(self._held) - length
        return len(self._held)

    def _show(self, safe: int) -> str:
        ends = [(at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if self.cut or ends:
            at, stop = min(ends, default=(0, ""))
            shown, self._held = "" if self.cut else self._held[: at + len(stop) * self._kept], ""
            self.cut = True
        else:
            shown, self._held = self._held[:safe], self._held[safe:]
        self.text += shown
        return shown
