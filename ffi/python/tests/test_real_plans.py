"""Programs in the current API compile, in compatible mode, to the plans that the DSL of the format's authors wrote.

The plans lie outside the repository, in `../shared/plans` beside it; without them every comparison is skipped and says so.
`python test_real_plans.py` prints the difference of every plan that is not the same.
"""

import contextlib
import copy
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest

from antiphon.__main__ import main
from plan_diff import differences

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE / "programs" / "current"
PLANS = HERE.parents[3] / "shared" / "plans"

# (plan without `.json`, program, its arguments)
TABLE = [
    ("unit_tests.barrier_test", "barrier.py", ""),
    ("unit_tests.copy_test", "copy_chunk.py", ""),
    ("unit_tests.tbg.tbg_copy_test", "copy_chunk.py", "--blocks 4"),
    ("unit_tests.copy_packet_test", "copy_packets.py", ""),
    ("unit_tests.unpack_packet_test", "copy_packets.py", "--unpack"),
    ("unit_tests.flush.flush_test", "flush.py", ""),
    ("unit_tests.flush.flush_fuse_test", "flush.py", "--channels 2"),
    ("unit_tests.get.get_test", "get.py", ""),
    ("unit_tests.get.get_fuse_test", "get.py", "--times 2"),
    ("unit_tests.put.put_test", "put.py", ""),
    ("unit_tests.put.put_fuse_test", "put.py", "--cross"),
    ("unit_tests.put.put_with_signal_test", "put_with_signal.py", ""),
    ("unit_tests.put.put_with_signal_and_flush_test", "put_with_signal.py", "--flush"),
    ("unit_tests.pipeline_test", "pipeline.py", ""),
    ("unit_tests.put_packet_test", "put_packets.py", ""),
    ("unit_tests.read_put_packet_test", "read_put_packets.py", ""),
    ("unit_tests.read_reduce.read_reduce_test", "read_reduce.py", ""),
    ("unit_tests.read_reduce.read_reduce_fuse_test", "read_reduce.py", "--sources 2"),
    ("unit_tests.read_reduce.read_reduce_fuse_test", "read_reduce.py", "--sources 2 --calls each"),
    ("unit_tests.read_reduce_send_test", "read_reduce.py", "--send"),
    ("unit_tests.reduce.reduce_test", "reduce.py", ""),
    ("unit_tests.reduce.reduce_fuse_test", "reduce.py", "--chunks 3"),
    ("unit_tests.reduce.reduce_fuse_test", "reduce.py", "--chunks 3 --calls each"),
    ("unit_tests.tbg.tbg_reduce_test", "reduce.py", "--blocks 4"),
    ("unit_tests.tbg.tbg_reduce_fuse_test", "reduce.py", "--blocks 4 --chunks 3"),
    ("unit_tests.tbg.tbg_reduce_fuse_test", "reduce.py", "--blocks 4 --chunks 3 --calls each"),
    ("unit_tests.reduce_send_test", "reduce_send.py", ""),
    ("unit_tests.tbg.tbg_reduce_send_test", "reduce_send.py", "--blocks 4"),
    ("unit_tests.reduce_packet.reduce_packets_test", "reduce_packets.py", ""),
    ("unit_tests.reduce_packet.reduce_packets_fuse_test", "reduce_packets.py", "--sources 2"),
    ("unit_tests.reduce_packet.reduce_packets_fuse_test", "reduce_packets.py", "--sources 2 --calls each"),
    ("unit_tests.reduce_copy_packet_test", "reduce_copy_packets.py", ""),
    ("unit_tests.reduce_copy_send_packet_test", "reduce_copy_packets.py", "--send sum"),
    ("unit_tests.reduce_copy_send_packet_test", "reduce_copy_packets.py", "--send packets"),
    ("unit_tests.reduce_send_packet_test", "reduce_send_packets.py", ""),
    ("unit_tests.semaphore", "semaphore.py", ""),
    ("unit_tests.signal_wait.signal_wait_test", "signal_wait.py", ""),
    ("unit_tests.signal_wait.signal_wait_fuse_test", "signal_wait.py", "--four"),
    ("unit_tests.signal_wait.relaxed_signal_wait_test", "signal_wait.py", "--relaxed"),
    ("unit_tests.signal_wait.relaxed_signal_wait_fuse_test", "signal_wait.py", "--relaxed --four"),
    ("unit_tests.switch_broadcast_test", "switch_broadcast.py", ""),
    ("unit_tests.switch_reduce_test", "switch_reduce.py", ""),
    ("single_node.allreduce-ns2", "allreduce.py", "--num_gpus 2"),
    ("single_node.allreduce-ns4", "allreduce.py", "--num_gpus 4"),
    ("single_node.allreduce_naivy-ns2", "allreduce_packets_one_block.py", "--num_gpus 2"),
    ("single_node.allreduce_naivy-ns4", "allreduce_packets_one_block.py", "--num_gpus 4"),
    ("single_node.allreduce_pkt-ns2", "allreduce_packets.py", "--num_gpus 2"),
    ("single_node.allreduce_pkt-ns4", "allreduce_packets.py", "--num_gpus 4"),
    ("single_node.allreduce_nvls_zero_copy-ns2", "allreduce_switch.py", "--num_gpus 2"),
    ("single_node.allreduce_nvls_zero_copy-ns4", "allreduce_switch.py", "--num_gpus 4"),
    ("single_node.allgather_pkt-ns2", "allgather_packets.py", "--num_gpus 2"),
    ("single_node.allgather_pkt-ns4", "allgather_packets.py", "--num_gpus 4"),
    ("single_node.allgather_pkt_rppkt-ns2", "allgather_forward_packets.py", "--num_gpus 2"),
    ("single_node.allgather_pkt_rppkt-ns4", "allgather_forward_packets.py", "--num_gpus 4"),
    ("single_node.allgather_nvls_zero_copy-ns2-is1", "allgather_switch.py", "--num_gpus 2 --instances 1"),
    ("single_node.allgather_nvls_zero_copy-ns2-is4", "allgather_switch.py", "--num_gpus 2 --instances 4"),
    ("single_node.allgather_nvls_zero_copy-ns4-is1", "allgather_switch.py", "--num_gpus 4 --instances 1"),
    ("single_node.allgather_nvls_zero_copy-ns4-is4", "allgather_switch.py", "--num_gpus 4 --instances 4"),
    ("single_node.allgather_nvls_zero_copy_pkt-ns2-is1", "allgather_switch_packets.py", "--num_gpus 2"),
    ("single_node.allgather_nvls_zero_copy_pkt-ns4-is1", "allgather_switch_packets.py", "--num_gpus 4"),
    ("single_node.alltoall.alltoall-ns2", "alltoall.py", "--num_gpus 2"),
    ("single_node.alltoall.alltoall-ns4", "alltoall.py", "--num_gpus 4"),
    ("single_node.alltoall.alltoall_pipeline-ns2", "alltoall_pipeline.py", "--num_gpus 2"),
    ("single_node.alltoall.alltoall_pipeline-ns4", "alltoall_pipeline.py", "--num_gpus 4"),
    ("single_node.alltoall.alltoall_ring-ns2", "alltoall_ring.py", "--num_gpus 2"),
    ("single_node.alltoall.alltoall_ring-ns4", "alltoall_ring.py", "--num_gpus 4"),
    ("single_node.alltoall.alltoall_ring_oop-ns2", "alltoall_ring.py", "--num_gpus 2 --out_of_place"),
    ("single_node.alltoall.alltoall_ring_peers-ns2", "alltoall_ring.py", "--num_gpus 2"),
    ("multi_node.allgather-ge2", "allgather_two_nodes.py", ""),
    ("multi_node.allgather_pkt-ge2", "allgather_packets_two_nodes.py", ""),
    ("multi_node.allgather_tbg-ns2-ge2-te4", "allgather_groups.py", "--num_gpus 2"),
    ("multi_node.allgather_tbg-ns3-ge2-te4", "allgather_groups.py", "--num_gpus 3"),
    ("multi_node.allgather_tbg-ns8-ge2-te4", "allgather_groups.py", "--num_gpus 8"),
    ("multi_node.reducescatter-ge2", "reducescatter_two_nodes.py", ""),
    ("multi_node.reducescatter_pkt-ge2", "reducescatter_packets_two_nodes.py", ""),
    ("multi_node.send_recv-ge2-ns1-is1", "send_recv.py", "--gpus_per_node 2 --nodes 1"),
    ("multi_node.send_recv-ge2-ns1-is4", "send_recv.py", "--gpus_per_node 2 --nodes 1 --instances 4"),
    ("multi_node.send_recv-ge2-ns2-is1", "send_recv.py", "--gpus_per_node 2 --nodes 2"),
    ("multi_node.send_recv-ge2-ns2-is4", "send_recv.py", "--gpus_per_node 2 --nodes 2 --instances 4"),
    ("multi_node.send_recv-ge4-ns2-is1", "send_recv.py", "--gpus_per_node 4 --nodes 2"),
    ("multi_node.send_recv-ge4-ns2-is4", "send_recv.py", "--gpus_per_node 4 --nodes 2 --instances 4"),
]


def overwriting_reductions(plan):
    """Reductions that each overwrite their destination stay apart.

    `o = i0 + i1` followed by `o = i0 + i2` leaves i0 + i2; fused into one operation, as the plan has it, it would leave
    i0 + i1 + i2. Fusion must not change what a program means, so they stay two, with a sync between the two writes.
    """
    for gpu in plan["gpus"]:
        for block in gpu["threadblocks"]:
            ops = []
            for op in block["ops"]:
                sources = op.get("src_buff", [])
                if op["name"] not in ("re", "rre", "repkt") or len(sources) < 3 or op["dst_buff"] == sources[:1]:
                    ops.append(op)
                    continue
                for at, other in enumerate(sources[1:]):
                    if at:
                        ops.append({"name": "nop"})
                    ops.append({**op, "src_buff": [sources[0], other]})
            block["ops"] = ops
    return plan


# What a compatible plan has on purpose otherwise than the file: (plan, arguments) -> the change made to the file's plan.
CORRECTIONS = {
    ("unit_tests.read_reduce.read_reduce_fuse_test", "--sources 2 --calls each"): overwriting_reductions,
    ("unit_tests.reduce.reduce_fuse_test", "--chunks 3 --calls each"): overwriting_reductions,
    ("unit_tests.tbg.tbg_reduce_fuse_test", "--blocks 4 --chunks 3 --calls each"): overwriting_reductions,
    ("unit_tests.reduce_packet.reduce_packets_fuse_test", "--sources 2 --calls each"): overwriting_reductions,
}

# Plans that do not come out at all: (plan, arguments) -> words the refusal must hold. Both ranks of these signal channels
# 0 and 1 and wait on 2 and 3, where nobody signals: whoever runs such a plan waits for ever. The signals and waits between
# the two ranks are as many, so the author's tool accepts it; counted for each pair of channels they are not.
REFUSALS = {
    ("unit_tests.signal_wait.signal_wait_fuse_test", "--four"): "Signal/Wait mismatch on memory channel 0",
    ("unit_tests.signal_wait.relaxed_signal_wait_fuse_test", "--relaxed --four"): (
        "Signal/Wait mismatch on memory channel 0"
    ),
}

# Real plans without a program here: why.
LEFT_OUT = {
    "multi_node.allgather_tbg-ns4-ge2-te4": "its ranks signal themselves and wait for ever: a program run outside its domain",
}


class CompileFailed(Exception):
    """The program did not give a plan; the text is what it printed to stderr."""


def compile_program(program, words, compatible=True):
    """The plan that a program gives, in compatible mode or as Antiphon would have it.

    The command runs in this process: some hundred and fifty starts of Python would take longer than all the rest.
    """
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / "plan.json"
        options = ["-o", str(target)] + (["--compatible"] if compatible else [])
        printed, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
            status = main(["compile", *options, "--", str(program), *words])
        if status != 0:
            raise CompileFailed(errors.getvalue().strip())
        return json.loads(target.read_text())


def wanted_and_got(plan, program, arguments, compatible=True):
    """The plan of the file, corrected where that is called for, and the one the program gives."""
    wanted = json.loads((PLANS / f"{plan}.json").read_text())
    words = arguments.split()
    if not plan.startswith("unit_tests."):
        words += ["--name", wanted["name"]]
    got = compile_program(PROGRAMS / program, words, compatible)
    correct = CORRECTIONS.get((plan, arguments))
    return (correct(copy.deepcopy(wanted)) if correct else wanted), got


def sizes(plan):
    """For each block of each rank: how many operations it has, and how many of them only make its threads meet."""

    def of(ops):
        inner = [of(op.get("ops", [])) for op in ops]
        meetings = sum(op["name"] == "nop" for op in ops)
        return len(ops) + sum(each[0] for each in inner), meetings + sum(each[1] for each in inner)

    return [[of(block["ops"]) for block in gpu["threadblocks"]] for gpu in plan["gpus"]]


class RealPlans(unittest.TestCase):
    """One sub-test for each line of the table."""

    def need_the_plans(self):
        if not PLANS.is_dir():
            reason = f"SKIP: there are no plans in {os.path.relpath(PLANS, HERE.parents[2])}"
            print(reason, file=sys.stderr)
            self.skipTest(reason)

    def test_programs_give_the_plans_of_the_files(self):
        self.need_the_plans()
        for plan, program, arguments in TABLE:
            with self.subTest(plan=plan, program=f"{program} {arguments}".strip()):
                refusal = REFUSALS.get((plan, arguments))
                if refusal is not None:
                    with self.assertRaises(CompileFailed) as caught:
                        wanted_and_got(plan, program, arguments)
                    self.assertIn(refusal, str(caught.exception))
                    continue
                found = differences(*wanted_and_got(plan, program, arguments))
                self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_no_block_has_more_operations_or_syncs_than_the_files(self):
        self.need_the_plans()
        fewer = 0
        for plan, program, arguments in TABLE:
            if (plan, arguments) in REFUSALS:
                continue
            with self.subTest(plan=plan, program=f"{program} {arguments}".strip()):
                wanted, got = map(sizes, wanted_and_got(plan, program, arguments, compatible=False))
                self.assertEqual([len(rank) for rank in wanted], [len(rank) for rank in got])
                for ours, theirs in zip(sum(got, []), sum(wanted, [])):
                    self.assertLessEqual(ours[0], theirs[0])
                    self.assertLessEqual(ours[1], theirs[1])
                    fewer += theirs[1] - ours[1]
        self.assertGreater(fewer, 0, "no sync that the files have was found to be needless")

    def test_every_program_is_compared(self):
        self.assertEqual({path.name for path in PROGRAMS.glob("*.py")}, {program for _, program, _ in TABLE})

    def test_every_plan_has_a_program(self):
        if PLANS.is_dir():
            there = {path.stem for path in PLANS.glob("*.json")}
            self.assertEqual(there, {plan for plan, _, _ in TABLE} | set(LEFT_OUT))

    def test_every_correction_belongs_to_a_line_of_the_table(self):
        lines = {(plan, arguments) for plan, _, arguments in TABLE}
        self.assertLessEqual(set(CORRECTIONS) | set(REFUSALS), lines)


class Differences(unittest.TestCase):
    """The comparison itself sees what it is there to see."""

    def test_a_difference_is_named_where_it_lies(self):
        op = {"name": "copy", "src_buff": [{"type": "i", "index": 0, "size": 1}]}
        plan = {"name": "p", "gpus": [{"id": 0, "threadblocks": [{"id": 0, "ops": [op, {"name": "nop"}]}]}]}
        other = copy.deepcopy(plan)
        self.assertEqual(differences(plan, other), [])
        other["gpus"][0]["threadblocks"][0]["ops"].pop()
        other["name"] = "q"
        text = "\n".join(differences(plan, other))
        self.assertIn("name: 'p' -> 'q'", text)
        self.assertIn("rank 0 block 0:", text)
        self.assertIn("-nop", text)

    def test_only_the_kinds_of_access_have_no_order(self):
        remote = {"rank": 1, "type": "i", "access_channel_types": ["memory", "port"]}
        plan = {"gpus": [{"remote_buffers": [remote], "semaphores": [1, 2]}]}
        other = copy.deepcopy(plan)
        other["gpus"][0]["remote_buffers"][0]["access_channel_types"].reverse()
        self.assertEqual(differences(plan, other), [])
        other["gpus"][0]["semaphores"].reverse()
        self.assertNotEqual(differences(plan, other), [])


if __name__ == "__main__":
    unittest.main()
