"""What programs of one node take: Open MPI its slots, OpenMP its threads."""

from collections.abc import Mapping
from typing import Any

from schemas.rules.frameworks.placement import Given, Placement

MPI_HOSTS = "mpi_hosts"


def mpi(placement: Placement) -> Given:
    """Slots, because mpirun counts cores and there may be fewer of those than cards. Root, because it is all that many
    containers have. Open MPI 4 reads the first name, 5 the second."""
    path = f"{placement.files_dir}/{MPI_HOSTS}"
    return Given(
        defaults={
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_orte_default_hostfile": path,
            "PRTE_MCA_prte_default_hostfile": path,
        },
        files={MPI_HOSTS: f"localhost slots={placement.cards}\n"},
    )


def threads(task: Mapping[str, Any], placement: Placement, processes: int) -> dict[str, str]:
    """The declared processors, shared by the node's processes; without them torchrun says 1 and OpenMP takes all."""
    cpus = float(task.get("cpus", 0) or 0)
    return {"OMP_NUM_THREADS": str(max(1, int(cpus // processes)))} if cpus > 0 else {}
