"""PyTorch's DDP under mpirun on one node: the world is what Open MPI says, its collectives are gloo."""

import os
import runpy
import sys
from pathlib import Path


def main() -> None:
    names = {"RANK": "RANK", "WORLD_SIZE": "SIZE", "LOCAL_RANK": "LOCAL_RANK"}
    os.environ.update({name: os.environ[f"OMPI_COMM_WORLD_{mpi}"] for name, mpi in names.items()})
    example = Path(__file__).resolve().parent.parent / "examples" / "train_torch.py"
    sys.path.insert(0, str(example.parent))
    sys.argv = [str(example), *sys.argv[1:]]
    runpy.run_path(str(example), run_name="__main__")


if __name__ == "__main__":
    main()
