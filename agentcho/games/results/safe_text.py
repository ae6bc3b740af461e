"""Makes text of models safe to show.

Nothing in it can move the cursor, or recolour or reorder the terminal. Must not depend on rich.
"""

from __future__ import annotations

import unicodedata

DIRECTION = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def visible(text: str) -> str:
    """Replace control characters, direction marks, lone surrogates and noncharacters of a text by visible signs.

    Newlines and tabs stay. ESC becomes ␛, U+202E becomes \\u202e; all other text is unchanged.
    """
    return "".join(char if char in "\n\t" else _sign(char) for char in text)


def inline(text: str) -> str:
    """Make a text visible in one line, so that a name cannot look like another line of the output."""
    return visible(text.replace("\n", "␊").replace("\t", "␉"))


def _sign(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if char in DIRECTION or code & 0xFFFE == 0xFFFE or unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"}:
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    return char
