"""TensorFlow's MultiWorkerMirroredStrategy: TF_CONFIG lists every worker, in one order on all of them."""

import json

from schemas.rules.frameworks.parameters import Parameters
from schemas.rules.frameworks.placement import Given, Placement, host_port


def given(parameters: Parameters, placement: Placement) -> Given:
    """One node needs none: with a cluster of one, the strategy would open a port for nobody."""
    if placement.nodes == 1:
        return Given()
    workers = [host_port(placement.address(rank), placement.port(rank)) for rank in range(placement.nodes)]
    value = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": placement.rank}}
    return Given(env={"TF_CONFIG": json.dumps(value, separators=(", ", ": "))})
