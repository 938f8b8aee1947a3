"""Studies: methods x grid x seeds on one data set, planned, carried out, continued, searched."""

from ns3l.study.description import Cell, Study, study
from ns3l.study.estimate import Estimate, measure
from ns3l.study.execute import StudyResult, execute
from ns3l.study.plan import Planned, StudyPlan, plan_of

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
    "study",
]
