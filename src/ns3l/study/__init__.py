"""Studies: methods x grid x seeds on one data set, planned, carried out, continued."""

from ns3l.study.description import Cell, Study, study
from ns3l.study.estimate import Estimate, measure
from ns3l.study.execute import StudyResult, execute
from ns3l.study.plan import Planned, StudyPlan, plan_of
from ns3l.study.reproduce import reproduce, reproduction

__all__ = [
    "Cell",
    "Estimate",
    "Planned",
    "Study",
    "StudyPlan",
    "StudyResult",
    "execute",
    "measure",
    "plan_of",
    "reproduce",
    "reproduction",
    "study",
]
