"""scripts/bench: runs `main() -> {"figures": {name: number}, "ratios": {name: number}}` of `scripts/benches/NAME.py`.

A bench measures a thing beside its reference in the same run. Printed as a table or, with --json, as one object. It may
add `budgets`, `{name: "<= 3"}`, which are for people to read, and `wrong`, sentences about what was not right: those
make it fail.
"""

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

BENCHES = Path(__file__).parent / "benches"


def names() -> list[str]:
    return sorted(path.stem for path in BENCHES.glob("*.py") if path.stem != "__init__")


def shown(value: object) -> str:
    return f"{value:,.3f}" if isinstance(value, float) else str(value)


def table(result: dict[str, Any]) -> str:
    rows = [(name, shown(value)) for part in ("figures", "ratios") for name, value in result[part].items()]
    width = max(len(name) for name, _ in rows)
    budgets = result.get("budgets", {})
    return "\n".join(f"{name:<{width}}  {value:>14}  {budgets.get(name, '')}".rstrip() for name, value in rows)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench")
    parser.add_argument("name", nargs="?", choices=names())
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output, nothing else there")
    options = parser.parse_args(arguments)
    if options.name is None:
        print("\n".join(names()))
        return 0
    measured = importlib.import_module(f"scripts.benches.{options.name}").main()
    result = {"name": options.name, **measured}
    print(json.dumps(result) if options.json else table(result))
    for sentence in (wrong := measured.get("wrong", [])):
        print(f"wrong: {sentence}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
