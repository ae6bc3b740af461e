"""Draws the arithmetic stories of the task generator for training. Does not know: debates, models."""

from __future__ import annotations

from agentcho.tasks.arithmetic import Story, draw_story

from .grammar import Writer


def draw_task(writer: Writer) -> Story:
    """A story of two to four steps, mostly three: what the shipped scenarios ask."""
    return draw_story(writer.random, writer.random.choice((2, 3, 3, 3, 4)))
