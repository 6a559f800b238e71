"""Jobs of the tests here, by the installed command line of a host."""

import json
import uuid

COUNTER = "i=0; while true; do i=$((i+1)); echo step $i; sleep 0.2; done"


def submit(host, command, *, nodes=1, **training):
    document = {
        "name": f"job-{uuid.uuid4().hex[:8]}",
        "task_type": "training",
        "training": {"framework": "ddp", "launcher": "script", "n_nodes": nodes, "per_node_gpu": 1, **training},
        "task": {"command": command, "gpu_required": 1, "stop_grace_s": 1},
    }
    path = host.directory / "job.json"
    path.write_text(json.dumps(document))
    return host.heteroflow("submit", path).split()[-1]


def group(host, group_id):
    return json.loads(host.heteroflow("show", group_id, "-o", "json"))


def steps(host, group_id):
    said = host.heteroflow("logs", group_id, "-o", "json").splitlines()
    return [text for line in said if "step " in (text := json.loads(line).get("text", ""))]


def uninstalled(host, bundle):
    """False while tasks run there."""
    return "tasks run on" not in host.install(bundle, "uninstall", code=None)
