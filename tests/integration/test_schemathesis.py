"""A real agent against its own description: whatever is asked, no 5xx, no answer that the description does not have,
and nothing taken that it forbids. HF_FUZZ_CASES: of each operation, and not a time, so that a fast machine and a slow
one ask the same; HF_FUZZ_SEED: of the requests."""

import asyncio
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from scripts.loopback_mesh import LoopbackMesh

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
HERE = Path(__file__).parent
CASES = int(os.environ.get("HF_FUZZ_CASES", "10"))
PATIENCE_S = 500
SEED = int(os.environ.get("HF_FUZZ_SEED", "1"))
COUNTED = re.compile(r"(\d+) generated")


async def test_no_server_error_and_no_answer_outside_of_the_description(tmp_path, record_property):
    st = Path(sys.executable).with_name("st")
    if not st.exists():
        pytest.skip("schemathesis is not installed")
    # In memory: what is submitted here are commands that nobody chose.
    mesh = LoopbackMesh(tmp_path, 1, 1, "simulated:4xH100", "fast", ("--runtime", "memory"))
    try:
        await asyncio.to_thread(mesh.start)
        process = await asyncio.create_subprocess_exec(
            *[str(st), "--config-file", str(HERE / "schemathesis.toml"), "run"],
            *[f"http://{mesh.address(1)}/api/v1/openapi.json"],
            *["--header", f"Authorization: Bearer {mesh.token_file.read_text().strip()}"],
            *["--seed", str(SEED), "--max-examples", str(CASES), "--no-color"],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=os.environ
            | {
                "SCHEMATHESIS_HOOKS": "tests.integration.schemathesis_hooks",
                "PYTHONPATH": str(HERE.parents[1]),
                "HF_FUZZ_DIR": str(tmp_path),
            },
            cwd=tmp_path,
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        said = output.decode(errors="replace")
        counted = COUNTED.search(said)
        record_property("requests", int(counted[1]) if counted else 0)
        replay = f"\nreplay: HF_FUZZ_SEED={SEED} HF_FUZZ_CASES={CASES} {Path(sys.executable).name} -m pytest {__file__}"
        assert process.returncode == 0, said[-20_000:] + replay
        assert counted and int(counted[1]) >= 50, said[-2000:]
        lines = [json.loads(line) for line in (mesh.data_dir(1) / "log" / "agent.log").read_text().splitlines()]
        failed = [line for line in lines if "error_id" in line or line["level"] == "critical"]
        assert failed == [], json.dumps(failed[:3])[:4000] + replay
        assert sum(line["message"] == "listening" for line in lines) == 1, "the agent was started again" + replay
        assert await asyncio.to_thread(mesh.ready_nodes) == 1
    finally:
        await asyncio.to_thread(mesh.stop)
        shutil.rmtree(tmp_path, ignore_errors=True)
