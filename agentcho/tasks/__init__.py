"""Tasks that games draw: questions with checkable answers, words that a text must use, requests with secrets.

They make outcomes comparable: every game of the same number has the same task in every mode.
"""

from agentcho.tasks.private import Vault, Vignette
from agentcho.tasks.sets import TaskSet, task_set
from agentcho.tasks.task import Concepts, Problem, Task

__all__ = ["Concepts", "Problem", "Task", "TaskSet", "Vault", "Vignette", "task_set"]
