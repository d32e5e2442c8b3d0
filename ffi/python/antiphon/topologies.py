"""Which ranks can reach which, for the oldest stage's programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["Topology", "fully_connected", "hub_and_spoke", "line", "ring", "star"]


class Topology:
    """A number of ranks and the links between them: `links[dst][src]` is how many lead from src to dst."""

    def __init__(self, name: str, links: Sequence[Sequence[int]]) -> None:
        self.name = name
        self.links = [list(row) for row in links]
        if any(len(row) != len(self.links) for row in self.links):
            raise ValueError(f"cannot make topology {name!r}: saw rows of other lengths than {len(self.links)} ranks")

    def num_nodes(self) -> int:
        """Number of ranks."""
        return len(self.links)

    def nodes(self) -> range:
        """The ranks."""
        return range(self.num_nodes())

    def link(self, src: int, dst: int) -> int:
        """How many links lead from `src` to `dst`."""
        return self.links[dst][src]

    def __repr__(self) -> str:
        return f"Topology({self.name!r}, {self.num_nodes()} ranks)"


def _make(name: str, num_nodes: int, linked: Callable[[int, int], bool]) -> Topology:
    if num_nodes < 1:
        raise ValueError(f"cannot make a topology of {num_nodes} ranks: allowed 1 or more")
    ranks = range(num_nodes)
    links = [[int(src != dst and linked(src, dst)) for src in ranks] for dst in ranks]
    return Topology(f"{name}(n={num_nodes})", links)


def fully_connected(num_nodes: int) -> Topology:
    """Every rank reaches every other."""
    return _make("FullyConnected", num_nodes, lambda src, dst: True)


def ring(num_nodes: int) -> Topology:
    """Every rank reaches the two beside it; the last is beside the first."""
    return _make("Ring", num_nodes, lambda src, dst: (src - dst) % num_nodes in (1, num_nodes - 1))


def line(num_nodes: int) -> Topology:
    """Every rank reaches the one or two beside it."""
    return _make("Line", num_nodes, lambda src, dst: abs(src - dst) == 1)


def star(num_nodes: int, non_blocking: bool = True) -> Topology:
    """Rank 0 reaches all others, and they it. `non_blocking` changes nothing."""
    return _make("Star", num_nodes, lambda src, dst: 0 in (src, dst))


def hub_and_spoke(num_nodes: int) -> Topology:
    """All ranks reach each other, over one hub."""
    return _make("HubAndSpoke", num_nodes, lambda src, dst: True)
