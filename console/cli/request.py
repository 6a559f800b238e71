"""Request ids: one for each thing a user asks, the same on every try of it."""

import os
import time

from schemas.ids import make_request_id


def new_request_id() -> str:
    return make_request_id(time.time_ns() // 1_000_000, os.urandom(8))
