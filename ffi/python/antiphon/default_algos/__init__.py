"""The algorithms over several nodes that the format's DSL package ships: functions of an AlgoSpec to its program.

All move packets, so they need no signals: a rank waits for the packets themselves. Ranks of a node are consecutive, and
`spec.nranks_per_node` says how many they are.
"""

from antiphon.default_algos.allgather_multi_nodes import allgather_multi_nodes
from antiphon.default_algos.allreduce_multi_nodes import allreduce_multi_nodes
from antiphon.default_algos.reducescatter_multi_nodes import reducescatter_multi_nodes

__all__ = ["allgather_multi_nodes", "allreduce_multi_nodes", "reducescatter_multi_nodes"]
