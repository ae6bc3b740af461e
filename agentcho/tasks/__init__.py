"""Tasks that games draw: questions with checkable answers, words that a text must use, requests with secrets."""

from agentcho.tasks.private import Vault, Vignette
from agentcho.tasks.sets import TaskSet, task_set
from agentcho.tasks.task import Concepts, Problem, Task

__all__ = ["Concepts", "Problem", "Task", "TaskSet", "Vault", "Vignette", "task_set"]
