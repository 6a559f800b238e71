"""A mesh without TLS does without the library of certificates, in each of its processes."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SAYS = "import sys, {}; print(sorted(name for name in sys.modules if name.partition('.')[0] == 'cryptography'))"


@pytest.mark.parametrize("module", ["agentd.daemon", "mesh.voter.process", "agentd.guard", "console.cli.main"])
def test_the_library_of_certificates_is_not_loaded(module):
    ran = subprocess.run(
        [sys.executable, "-c", SAYS.format(module)], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout == "[]\n"
