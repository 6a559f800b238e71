"""A failure in plain words: what it usually means, and what to do next."""

_BY_SIGNAL = {
    9: (
        "Something outside killed it at once: most often the kernel, because the host ran out of memory.",
        "Look for `oom` in the host's kernel log; fewer data-loader workers or a smaller batch need less.",
    ),
    11: (
        "Native code touched memory that is not its own.",
        "Look at the last lines of the log; often a library and the driver do not fit.",
    ),
    6: (
        "The program ended itself on a failed check; NCCL and CUDA do this on errors they cannot survive.",
        "The lines before the end name the check.",
    ),
    7: (
        "A memory-mapped file or shared memory went away or is full.",
        "Look at the room in /dev/shm and at the mounts of the node.",
    ),
    15: ("It was asked to end, by someone other than the mesh.", "Look for what stops processes on that host."),
}
_BY_CLASS = {
    "storage_not_shared": (
        "The nodes have different checkpoints under one path: some ranks would resume, others begin elsewhere.",
        "Mount one network file system there on every node; `df` on each of the named nodes tells what is there now.",
    ),
    "checkpoint_path_in_use": (
        "Its checkpoint_path is another group's directory by another name: a link leads there.",
        "Wait for that group or stop it, then resubmit; or clone this one with a directory of its own.",
    ),
    "resume_missing": (
        "No node sees the path of training.resume_from_checkpoint, and no other checkpoint is taken in its place.",
        "Mount the share that holds it on the named node, or clone the group with another path.",
    ),
    "resume_incomplete": (
        "The checkpoint of training.resume_from_checkpoint is not whole: its save, or a copy of it, did not finish.",
        "See `heteroflow checkpoint probe` on the directory that holds it, then clone the group with a whole one.",
    ),
    "walltime": (
        "It ran for as long as training.deadline_s allowed; its ranks were given their grace to save.",
        "Resubmit it: it goes on from its newest checkpoint. Clone it to set a longer deadline_s.",
    ),
    "unschedulable": (
        "No place was found for it within training.max_wait_s.",
        "Ask for fewer or other cards, or submit it again later; `heteroflow queue` shows who waits for what.",
    ),
    "stalled": (
        "For long no rank took a step, printed, or read or wrote anything, and its cards were idle.",
        "Look at the last lines of every rank: the one that says less than the others is often the cause. Resubmit it.",
    ),
    "node_lost": (
        "A host with a rank of it was lost, and it had been restarted as often as training.recovery allows.",
        "See `heteroflow nodes` for that host, then resubmit it: it goes on from its newest checkpoint.",
    ),
    "gpu_oom": (
        "The card's memory is full.",
        "A smaller micro-batch, activation checkpointing or more sharding needs less.",
    ),
}
_BY_CODE = {
    1: ("The program ended with an error of its own.", "The last lines of the rank's log name it: l shows them."),
    2: ("The program did not understand its command line.", "Compare task.command with what the script takes."),
    126: ("The command is there but cannot be executed.", "Check the file's mode and its first line on that node."),
    127: ("The command was not found.", "Check task.command, and that the program is installed on every node."),
}


def advice(failure_class: str, exit_code: int | None, signal: int | None) -> tuple[str, str]:
    """(what it means, what to do)."""
    if failure_class in _BY_CLASS:
        return _BY_CLASS[failure_class]
    if signal is None and exit_code is not None and 128 < exit_code < 193:
        signal = exit_code - 128
    if signal in _BY_SIGNAL:
        return _BY_SIGNAL[signal]
    if exit_code in _BY_CODE:
        return _BY_CODE[exit_code]
    if signal is None and exit_code is None:
        return ("The rank ended without saying how.", "Its events below and the agent's log on its node know more.")
    return ("The program chose this exit code itself.", "Its documentation or the last lines of its log explain it.")
