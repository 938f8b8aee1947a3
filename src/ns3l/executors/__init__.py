"""Executors: where the runs of a study are carried out. The numbers of a run are the same everywhere."""

from ns3l.executors.local import Local
from ns3l.executors.processes import Processes
from ns3l.executors.ray import Ray
from ns3l.executors.task import Assignment, Executor, Outcome, Task

__all__ = ["EXECUTORS", "Assignment", "Executor", "Local", "Outcome", "Processes", "Ray", "Task"]

EXECUTORS: dict[str, type[Executor]] = {"local": Local, "processes": Processes, "ray": Ray}
