"""Draws arithmetic stories from the task generator for training."""

from __future__ import annotations

from agentcho.tasks.arithmetic import Story, draw_story

from .grammar import Writer


def draw_task(writer: Writer) -> Story:
    """A story of two to four steps, mostly three, as in the shipped scenarios."""
    return draw_story(writer.random, writer.random.choice((2, 3, 3, 3, 4)))
