"""The task-group document: fields as data, one checker, one normal form."""

from schemas.task_group.check import Checked, accepted_task_group, check_task_group, task_findings
from schemas.task_group.document_schema import DOCUMENT
from schemas.task_group.encode import encode_document
from schemas.task_group.parent import ParentNamed, parent_of, with_inherited

__all__ = [
    "DOCUMENT",
    "Checked",
    "ParentNamed",
    "accepted_task_group",
    "check_task_group",
    "encode_document",
    "parent_of",
    "task_findings",
    "with_inherited",
]
