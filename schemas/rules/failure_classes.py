"""Which classes of failure are the infrastructure's: what a group may ask to be restarted after.

A class that another try cannot mend (a program's own error, a document that cannot work, memory that is too small) is
not among them, and neither is one that nobody has named: restarting those costs card-hours and hides the fault."""

NODE_LOST = "node_lost"
UNSCHEDULABLE = "unschedulable"
WALLTIME = "walltime"
STALLED = "stalled"

INFRASTRUCTURE = (
    "container_create",
    "cuda_init",
    "driver_mismatch",
    "gpu_hardware",
    "image_pull_transient",
    "nccl_init",
    "nccl_timeout",
    "port_conflict",
    "rendezvous_timeout",
    "storage_io",
)
