"""Tasks that games draw: questions with checkable answers, and words that a text must use."""

from agentcho.tasks.sets import TaskSet, task_set
from agentcho.tasks.task import Concepts, Problem, Task

__all__ = ["Concepts", "Problem", "Task", "TaskSet", "task_set"]
