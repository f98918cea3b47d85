"""Three Ray nodes give the bits of one process, from Python and by the command's --address."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from processes import python

from protocols import VectorSum
from shuffle_sim import run

pytestmark = pytest.mark.slow  # its cluster takes a minute to start
COMMAND = str(Path(sys.executable).with_name("shuffle-sim"))
SCRIPT = """
import json, sys, subprocess, time
import actors.runtime  # loopback, before Ray is imported
from ray._private import ray_constants
ray_constants.ENABLE_RAY_CLUSTER = False
from ray.cluster_utils import Cluster
import numpy as np, ray
from actors.runtime import RayRuntime
from protocols import VectorSum
from shuffle_sim import Execution, ParameterError, run
from shuffle_sim.data.file_population import ParquetFiles

node = {"num_cpus": 1, "include_dashboard": False, "node_ip_address": "127.0.0.1"}
node["object_store_memory"] = 100_000_000
cluster = Cluster(initialize_head=True, head_node_args=node)
nodes = [cluster.add_node(**node) for _ in range(2)]
rows = np.random.default_rng(0).normal(size=(600, 4)) / 3
protocol = VectorSum(n=600, d=4, g=6, b=20)
found = {"values": {}, "nodes": 0}
class Watched(RayRuntime):
    def result(self):
        actors = ray._private.state.actors().values()
        where = {each["Address"]["NodeID"] for each in actors if each["State"] == "ALIVE"}
        found["nodes"] = max(found["nodes"], len(where))
        return super().result()
for fidelity, shards in (("literal", 1), ("literal", 2), ("counts", 1), ("aggregate", 1)):
    how = {"workers": 3, "fidelity": fidelity, "seed": 5, "shuffler_shards": shards}
    result = run(protocol, rows, runtime=Watched(cluster.address), **how)
    found["values"][f"{fidelity} {shards}"] = result.value.tobytes().hex()
left = ray._private.state.actors().values() if ray.is_initialized() else []
found["left"] = [actor["State"] for actor in left]
command = [sys.argv[1], "sum", "--table", "wine", "--seed", "3", "--json"]
command += ["--runtime", "ray", "--address", cluster.address, "--workers", "3"]
joined = subprocess.run(command, capture_output=True, text=True, timeout=120)
found["joined"] = joined.stdout or joined.stderr
def shrink(plan):
    cluster.remove_node(nodes.pop())
    while sum(each["Alive"] for each in ray.nodes()) == 3:
        time.sleep(0.1)
try:
    host = RayRuntime(cluster.address)
    told = Execution(on_plan=shrink)
    run(protocol, rows, runtime=host, workers="auto", fidelity="aggregate", execution=told)
except ParameterError as error:
    found["shrunk"] = str(error)
cluster.shutdown()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    script = tmp_path_factory.mktemp("cluster") / "cluster.py"
    script.write_text(SCRIPT)
    done = python(script, COMMAND)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("fidelity", "shards"), [("literal", 1), ("literal", 2), ("counts", 1), ("aggregate", 1)]
)
def test_three_nodes_give_the_bits_of_one_process(found, fidelity, shards):
    rows = np.random.default_rng(0).normal(size=(600, 4)) / 3
    value = run(VectorSum(n=600, d=4, g=6, b=20), rows, fidelity=fidelity, seed=5).value
    assert found["values"][f"{fidelity} {shards}"] == value.tobytes().hex()


def test_actors_live_on_all_nodes(found):
    assert found["nodes"] == 3


def test_a_cluster_that_shrinks_between_plan_and_start_is_named(found):
    assert "the cluster shrank from 3 to 2 cores" in found["shrunk"]


def test_the_command_joins_the_cluster_and_prints_the_same(found):
    command = [COMMAND, "sum", "--table", "wine", "--seed", "3", "--json"]
    alone = json.loads(
        subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    )
    joined = json.loads(found["joined"])
    assert joined["private"] == alone["private"]
    assert (joined["run"]["runtime"], joined["run"]["workers"]) == ("ray", 3)
