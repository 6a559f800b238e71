"""The mesh of the pictures: 24 hosts, a few trainings, one of each trouble."""

from typing import Any

from tests.snapshots.canned_mesh import (
    NOW_MS,
    CannedMesh,
    H,
    M,
    S,
    cards_now,
    event_row,
    gid,
    group_now,
    group_row,
    loss_curve,
    node_row,
    task_rows,
)

LLAMA, QWEN, DPO, WHISPER, SWEEP, RECOVERING, LONG_WAIT, HOSTILE = range(1, 9)


def names(first: int, last: int) -> list[str]:
    return [f"gpu-{at:02d}" for at in range(first, last + 1)]


def example_mesh() -> CannedMesh:
    mesh = CannedMesh()
    voters = [f"gpu-0{at}" for at in range(1, 6)]
    facts = [{"raft_id": at, "node": node, "voter_addr": f"10.0.0.{at}:7461"} for at, node in enumerate(voters, 1)]
    mesh.rows.append(("meta", "cluster", {"cluster_id": "9c41f2d07ab3", "epoch": 1, "profile": "lan", "voters": facts}))
    for at, node in enumerate(names(1, 24), 1):
        changed: dict[str, Any] = {"api_addr": f"10.0.0.{at}:7460"}
        if node in voters:
            changed["voter_addr"] = f"10.0.0.{at}:7461"
        if node == "gpu-05":
            changed |= {"state": "lost", "lost_ms": NOW_MS - 58 * M, "reason": "silent for 50 s"}
        kind = "A100" if at > 20 else "H100"
        mesh.rows.append(("node", node, node_row(node, kind=kind, **changed)))
    mesh.rows += groups()
    for _, key, row in list(mesh.rows):
        if _ == "task" and row["status"] == "running":
            group, attempt, rank = key.split("/")
            hold = {"gpus": row["gpus"], "port": 0, "state": "held"}
            mesh.rows.append(("hold", f"{row['node']}/{group}/{attempt}/{rank}", hold))
    mesh.rows.append(
        ("hold", f"gpu-24/{gid(SWEEP)}/0001/00000", {"gpus": ["gpu-24-0", "gpu-24-1"], "state": "releasing"})
    )
    mesh.status = status(facts)
    mesh.logs[gid(LLAMA)] = log_of(LLAMA)
    mesh.curves[gid(LLAMA)] = {
        "state": "live",
        "tags": {"train/loss": loss_curve(12_400, 20, 2), "train/lr": loss_curve(12_400, 200, 2)},
    }
    llama = [("gpu-03", 8, 96.0), ("gpu-07", 8, 95.0)]
    qwen = [(node, 8, 88.0 - at * 4) for at, node in enumerate(names(8, 15))]
    mesh.telemetry = {
        "groups": [
            group_now(LLAMA, 2, 12_400, 1.1304, 2.0, ranks=llama),
            group_now(QWEN, 1, 3_120, 2.0113, 4.0, ranks=qwen),
        ],
        "nodes": [{"node_id": node, "cards": cards_now(node, cards, util)} for node, cards, util in [*llama, *qwen]],
    }
    mesh.alerts = []
    mesh.gossip = gossip()
    mesh.curves[gid(QWEN)] = {"state": "no_log", "tags": {}}
    return mesh


def groups() -> list[tuple[str, str, Any]]:
    rows: list[tuple[str, str, Any]] = []

    def add(number: int, *arguments: Any, **changed: Any) -> None:
        rows.append(("group", gid(number), group_row(number, *arguments, **changed)))

    add(
        LLAMA,
        "llama3-8b-sft-math",
        "running",
        2,
        8,
        attempt=2,
        restarts=1,
        nodes=["gpu-03", "gpu-07"],
        started_ms=NOW_MS - 58 * M,
        master={"addr": "10.0.0.3", "port": 20001},
        resume={"path": "/data/ckpt/1", "step": 9200},
    )
    rows.extend(llama_history())
    add(
        QWEN,
        "qwen2-moe-pretrain",
        "running",
        8,
        8,
        nodes=names(8, 15),
        started_ms=NOW_MS - 51 * H,
        created_ms=NOW_MS - 52 * H,
        user="platform",
        tenant="base",
    )
    rows.extend(task_rows(QWEN, 1, names(8, 15), 8, started_ms=NOW_MS - 51 * H, bound_ms=NOW_MS - 51 * H - 40 * S))
    rows.append(event_row(QWEN, 1, NOW_MS - 51 * H, "running", "Attempt 1 is running: 8 of 8 ranks started."))
    add(DPO, "llama3-70b-dpo", "starting", 4, 8, nodes=names(16, 19), created_ms=NOW_MS - 3 * M)
    rows.extend(task_rows(DPO, 1, names(16, 19), 8, status="claimed", started_ms=None, bound_ms=NOW_MS - 41 * S))
    add(
        RECOVERING,
        "vlm-align-r3",
        "recovering",
        2,
        8,
        nodes=["gpu-05", "gpu-06"],
        user="chen",
        started_ms=NOW_MS - 12 * H,
        failure={
            "class": "node_lost",
            "rank": None,
            "exit_code": None,
            "signal": None,
            "text": "gpu-05 was lost; 1 of 2 ranks is proved gone",
            "at_ms": NOW_MS - 30 * S,
        },
    )
    add(
        WHISPER,
        "whisper-ft-zh",
        "pending",
        1,
        8,
        user="wu",
        created_ms=NOW_MS - 12 * M,
        pending_reason={
            "code": "insufficient_gpus",
            "text": "needs 1 node x 8 GPUs H100: 0 of 24 fit (19 too few free GPUs, 4 other type, 1 lost)",
            "details": {"nodes": 24, "lost": 1, "gpu_type": 4, "too_few_gpus": 19},
        },
    )
    add(
        LONG_WAIT,
        "llama3-405b-probe",
        "pending",
        64,
        8,
        user="platform",
        priority=1,
        created_ms=NOW_MS - 3 * H,
        pending_reason={
            "code": "cluster_too_small",
            "text": "needs 64 nodes x 8 GPUs, and the whole mesh has 24 such nodes; it waits until nodes join",
            "details": {},
        },
    )
    add(
        SWEEP,
        "rm-sweep/lr=1e-5",
        "failed",
        1,
        8,
        nodes=["gpu-24"],
        user="wu",
        started_ms=NOW_MS - 61 * M,
        ended_ms=NOW_MS - 52 * M,
        failure={
            "class": "exit_code",
            "rank": 0,
            "exit_code": 1,
            "signal": None,
            "text": "Rank 0 on gpu-24 exited 1.",
            "at_ms": NOW_MS - 52 * M,
        },
    )
    rows.extend(
        task_rows(
            SWEEP,
            1,
            ["gpu-24"],
            8,
            status="exited",
            exit_code=1,
            started_ms=NOW_MS - 61 * M,
            bound_ms=NOW_MS - 62 * M,
            ended_ms=NOW_MS - 52 * M,
        )
    )
    rows.append(
        event_row(SWEEP, 1, NOW_MS - 62 * M, "bound", "Attempt 1 was placed on gpu-24; the agents are claiming.")
    )
    rows.append(event_row(SWEEP, 2, NOW_MS - 52 * M, "root_failure", "Rank 0 on gpu-24 exited 1.", rank=0))
    for number, (name, state) in enumerate(
        (("bert-distill", "completed"), ("训练任务一-微调", "completed"), ("nightly-eval", "stopped")), 20
    ):
        add(
            number,
            name,
            state,
            1,
            4,
            nodes=["gpu-20"],
            user="chen",
            started_ms=NOW_MS - 9 * H,
            ended_ms=NOW_MS - (number - 15) * H,
            created_ms=NOW_MS - 10 * H,
        )
    return rows


def llama_history() -> list[tuple[str, str, Any]]:
    """Lost a host, went back to the queue, resumed."""
    begun, lost = NOW_MS - 6 * H, NOW_MS - 61 * M
    old = {"bound_ms": begun - 30 * S, "started_ms": begun, "ended_ms": lost, "released": True}
    first = task_rows(LLAMA, 1, ["gpu-03", "gpu-05"], 8, status="exited", exit_code=None, signal=15, **old)
    first[1][2].update(status="lost", signal=None, reason="host lost")
    again = task_rows(LLAMA, 2, ["gpu-03", "gpu-07"], 8, bound_ms=NOW_MS - 59 * M, started_ms=NOW_MS - 58 * M)
    events = [
        event_row(LLAMA, 1, begun - 40 * S, "submitted", "Submitted by lin: 2 nodes x 8 GPUs."),
        event_row(
            LLAMA, 2, begun - 30 * S, "bound", "Attempt 1 was placed on gpu-03, gpu-05; the agents are claiming."
        ),
        event_row(LLAMA, 3, begun, "running", "Attempt 1 is running: 2 of 2 ranks started."),
        event_row(LLAMA, 4, lost, "node_lost", "Host gpu-05 was lost.", node="gpu-05"),
        event_row(LLAMA, 5, lost, "recovering", "Attempt 1 ended: gpu-05 was lost.", node="gpu-05"),
        event_row(LLAMA, 6, NOW_MS - 60 * M, "requeued", "Every rank of attempt 1 is gone; it waits at its old place."),
        event_row(
            LLAMA,
            7,
            NOW_MS - 59 * M,
            "bound",
            "Attempt 2 was placed on gpu-03, gpu-07; the agents are claiming.",
            attempt=2,
        ),
        event_row(LLAMA, 8, NOW_MS - 58 * M, "running", "Attempt 2 is running: resumed from step 9,200.", attempt=2),
    ]
    return [*first, *again, *events]


def status(facts: list[dict[str, Any]]) -> dict[str, Any]:
    voters = [
        {"raft_id": fact["raft_id"], "node": fact["node"], "match": 48_211 - at, "connected": fact["node"] != "gpu-05"}
        for at, fact in enumerate(facts)
    ]
    consensus = {
        "raft_id": 3,
        "role": "leader",
        "leader": 3,
        "term": 7,
        "commit": 48_211,
        "applied": 48_211,
        "last": 48_211,
        "voters": voters,
        "spare": 1,
        "state_hash": "a1b2c3d4e5f60718293a4b5c6d7e8f90",
        "alarm": "",
        "disk_full": False,
        "fsync_p99_ms": 2.4,
        "waiting": 0,
        "subscribers": 31,
    }
    agent = {
        "status": "ok",
        "node_id": "gpu-03",
        "role": "voter",
        "lease": {"granted": True, "left_ms": 34_000, "refusal": None},
        "gossip": {
            "members": {"alive": 21, "suspect": 1, "dead": 2, "left": 0},
            "dropped": {"replayed": 3},
            "conflict": None,
        },
    }
    return {
        "cluster_id": "9c41f2d07ab3",
        "epoch": 1,
        "profile": "lan",
        "voters": facts,
        "consensus": consensus,
        "agent": agent,
    }


def gossip() -> dict[str, Any]:
    """One host does not answer its peers, which the mesh has not decided upon; one is accused."""
    states = dict.fromkeys(names(1, 24), "alive") | {"gpu-05": "dead", "gpu-06": "dead", "gpu-18": "suspect"}
    text = "dead for 6 s, says gossip; the mesh keeps it until its lease has run out"
    return {
        "members": [{"node_id": node, "state": state} for node, state in states.items()],
        "differences": [{"node_id": "gpu-06", "kind": "state", "text": text}],
    }


def log_of(number: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    offset = 0
    for step in range(12_340, 12_401):
        for rank in (0, 1):
            text = f"step {step:,}/18,600  loss 1.28{step % 90:02d}  lr 2.1e-04  tok/s 41,{step % 997:03d}"
            if step == 12_371 and rank == 1:
                text = "WARNING: NCCL watchdog: collective took 12.4 s, error budget 30 s"
            offset += len(text)
            items.append(
                {
                    "rank": rank,
                    "attempt": 2,
                    "offset": offset,
                    "at": f"2026-11-29T19:0{(step - 12_340) // 60 + 2}:{(step - 12_340) % 60:02d}.{rank}00Z",
                    "stream": "out",
                    "text": text,
                }
            )
    return items
