"""The task-group document: fields as data, one checker, one normal form."""

from schemas.task_group.check import Checked, accepted_task_group, check_task_group, task_findings
from schemas.task_group.document_schema import DOCUMENT
from schemas.task_group.encode import encode_document

__all__ = ["DOCUMENT", "Checked", "accepted_task_group", "check_task_group", "encode_document", "task_findings"]
