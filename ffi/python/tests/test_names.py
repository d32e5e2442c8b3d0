"""Communicators with names: how these are inherited, and that errors have them."""

import threading

import pytest
from ranks import LIMIT, on_ranks, place

from antiphon import Communicator, UniqueId
from antiphon._torch_names import named
from antiphon.errors import AbortedError, InvalidArgumentError


def test_a_communicator_is_called_as_its_maker_says_or_after_its_parent():
    def names(communicator):
        parts = [
            communicator.split(communicator.rank % 2),
            communicator.split(0, name="tensor parallel"),
            communicator.subset([0, 1, 2, 3]),
            # Ranks need not agree.
            communicator.subset([3, 2, 1, 0], name=f"own {communicator.rank}"),
        ]
        return [communicator.name, *(part.name for part in parts)]

    for rank, said in enumerate(on_ranks(4, names, name="d\u00fc")):
        assert said == ["d\u00fc", f"d\u00fc/{rank % 2}", "tensor parallel", "d\u00fc", f"own {rank}"]
    assert on_ranks(2, lambda communicator: [communicator.name, communicator.split(1).name]) == [[None, None]] * 2


def test_every_way_of_making_one_takes_a_name(monkeypatch):
    with Communicator.from_id(UniqueId.create(), 0, 1, name="id") as one:
        assert one.name == "id"
    with Communicator.from_place(place(), 0, 1, name="place") as one:
        assert one.name == "place"
    monkeypatch.setenv("ANTIPHON_WORLD", "1")
    with Communicator.from_environment(name="environment") as one:
        assert one.name == "environment"


def test_errors_have_the_name_and_those_of_unnamed_ones_do_not():
    for name, start in (("dp", "communicator `dp` rank 1 of 2: "), (None, "")):
        ranks = Communicator.in_process(2, name=name, timeout=LIMIT)
        with pytest.raises(InvalidArgumentError) as refused:
            ranks[1].broadcast(bytearray(4), 9)
        assert str(refused.value).startswith(f"{start}cannot use a root"), refused.value
        aborts = threading.Thread(target=ranks[0].abort, args=("enough",))
        aborts.start()
        with pytest.raises(AbortedError) as aborted:
            while True:
                ranks[1].barrier()
        aborts.join()
        for error in (aborted.value, ranks[1].error()):
            assert str(error).startswith(f"{start}the communicator was aborted by rank 0: enough"), error
            assert error.peer == 0


@pytest.mark.parametrize("name", ["", "a\nb", "n" * 129, "a\0b", "\ud800", 7])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(InvalidArgumentError, match="name"):
        Communicator.in_process(1, name=name)
    (one,) = Communicator.in_process(1)
    with pytest.raises(InvalidArgumentError, match="name"):
        one.split(0, name=name)
    with pytest.raises(InvalidArgumentError, match="name"):
        one.subset([0], name=name)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        (("",), None),
        (("", "undefined"), None),
        (("3",), "group 3"),
        (("3", "undefined"), "group 3"),
        (("3", "DATA PARALLEL"), "DATA PARALLEL (group 3)"),
        (("", "default_pg", "send to rank 1 by tag 0"), "default_pg, send to rank 1 by tag 0"),
        (("3", "a\nb"), "a?b (group 3)"),
        (("", "\u00fc" * 65), "\u00fc" * 64),
        (("", "n" + "\u00fc" * 65), "n" + "\u00fc" * 63),
    ],
)
def test_a_process_group_is_called_as_pytorch_says(said, name):
    assert named(*said) == name
    if name:
        assert Communicator.in_process(1, name=name)[0].name == name
