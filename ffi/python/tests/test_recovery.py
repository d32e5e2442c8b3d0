"""What ranks do once they have lost some: they find out which, agree on who is left, and go on."""

import signal
from pathlib import Path

import pytest
from ranks import on_ranks, outcomes

from antiphon.errors import AbortedError, InvalidArgumentError

@pytest.mark.parametrize("victims", [[0], [2], [1, 3]])
@pytest.mark.parametrize(("how", "ends_with"), [("kill", -signal.SIGKILL), ("exit", 3)])
def test_ranks_go_on_without_those_that_have_ended(how, ends_with, victims, tmp_path):
    program = Path(__file__).parent / "programs" / "recovery.py"
    ended = outcomes(4, [str(program), how, *map(str, victims)], tmp_path)
    assert [rank for rank, (status, _, _) in enumerate(ended) if status == ends_with] == sorted(victims)
    left = [(status, out, err) for rank, (status, out, err) in enumerate(ended) if rank not in victims]
    assert left == [(0, f"{rank} {len(left)}\n", "") for rank in range(len(left))]


def test_some_ranks_in_their_order_have_a_communicator_of_their_own():
    def body(communicator):
        assert communicator.lost() == []
        if communicator.rank == 1:
            communicator.abort("enough")
            return None
        with communicator.subset([2, 0]) as some:
            some.barrier()
            return some.rank, some.world

    assert on_ranks(3, body) == [(1, 2), None, (0, 2)]


def test_lists_that_make_no_communicator_are_refused():
    def body(communicator):
        for bad in ([], [0, 0], [1], [0, 7], ["0"], [-1]):
            with pytest.raises(InvalidArgumentError):
                communicator.subset(bad)

    on_ranks(1, body)


def test_errors_say_which_rank_they_speak_of():
    def body(communicator):
        if communicator.rank == 1:
            communicator.abort("enough")
        with pytest.raises(AbortedError) as raised:
            communicator.barrier()
        with pytest.raises(InvalidArgumentError) as refused:
            communicator.node(9)
        return raised.value.peer, communicator.error().peer, refused.value.peer

    assert on_ranks(2, body) == [(1, 1, None)] * 2
