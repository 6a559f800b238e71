"""docs/agent.toml out of the flags of the agent and their reasons (agentd/config_file.py)."""

from pathlib import Path

from agentd.config_file import example_file

PATH = Path(__file__).resolve().parents[1] / "docs" / "agent.toml"

if __name__ == "__main__":
    PATH.write_text(example_file())
