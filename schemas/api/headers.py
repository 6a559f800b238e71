"""Headers of requests and answers."""

HEADER_INDEX = "X-HeteroFlow-Index"
HEADER_AGE_MS = "X-HeteroFlow-Age-Ms"
HEADER_NODE = "X-HeteroFlow-Node"
HEADER_REQUEST_ID = "Idempotency-Key"
