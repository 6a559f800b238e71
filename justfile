# `pip install rust-just` (or the dev extra) brings `just`.

# linters, types, import rules
check:
    ./scripts/check

# everything
test:
    ./scripts/test

# cores, schemas, trainer: seconds
unit:
    python -m pytest tests/unit tests/contract -n 2

# seeded simulation: just sim --seeds 1..200, just sim --seed 7 -v
sim *flags:
    ./scripts/sim {{flags}}

# drills on a mesh of real processes: just chaos --only a,b
chaos *flags:
    ./scripts/chaos {{flags}}

# real processes on loopback
integ:
    python -m pytest tests/integration

# just bench submit
bench name *flags:
    ./scripts/bench {{name}} {{flags}}

# a three-agent mesh with a real job on it
try *flags:
    ./scripts/try {{flags}}

format:
    ruff check --fix .
    ruff format .
