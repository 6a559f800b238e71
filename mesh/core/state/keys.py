"""Keys of rows. Numbers are padded so that key order is number order."""


def attempt_prefix(group_id: str, attempt: int) -> str:
    return f"{group_id}/{attempt:04d}/"


def task_key(group_id: str, attempt: int, rank: int) -> str:
    return f"{group_id}/{attempt:04d}/{rank:05d}"


def hold_key(node: str, group_id: str, attempt: int, rank: int) -> str:
    return f"{node}/{group_id}/{attempt:04d}/{rank:05d}"


def hold_task_key(key: str) -> str:
    """The key of the task whose cards a hold keeps."""
    return key.split("/", 1)[1]


def ended_key(ended_ms: int, group_id: str) -> str:
    return f"{ended_ms:015d}/{group_id}"


def ended_of_key(key: str) -> tuple[int, str]:
    """(ended_ms, group_id)."""
    ended_ms, _, group_id = key.partition("/")
    return int(ended_ms), group_id


def event_key(group_id: str, seq: int) -> str:
    return f"{group_id}/{seq:08d}"


def save_key(group_id: str, seq: int) -> str:
    return f"{group_id}/{seq:08d}"


def request_key(client: str, request_id: str) -> str:
    return f"{client}/{request_id}"


def audit_key(number: int) -> str:
    return f"{number:012d}"


def request_queue_key(idx: int) -> str:
    return f"{idx:020d}"
