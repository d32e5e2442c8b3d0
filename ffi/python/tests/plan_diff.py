"""Compares two plans as JSON values and says where they differ, in the plan's own terms.

The format leaves one order open: the kinds of access in a remote buffer's `access_channel_types`. Everything else is
compared as it stands. A difference inside an operation is shown with the whole block it lies in, one operation a line, the
wanted text at the left of `->`.
"""

import difflib

UNORDERED = {"access_channel_types"}


def normal(value, key=None):
    """A copy of a JSON value in which lists without an order are sorted."""
    if isinstance(value, dict):
        return {name: normal(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        items = [normal(inner) for inner in value]
        return sorted(items) if key in UNORDERED else items
    return value


def chunk_text(chunk):
    """A chunk reference in one word: `i[2+1]`, `remote0[4+1]`, `switch0[1+1]`."""
    if "type" in chunk:
        where = chunk["type"]
    elif "buffer_id" in chunk:
        where = f"remote{chunk['buffer_id']}"
    else:
        where = f"switch{chunk.get('switch_channel_id')}"
    rank = f"@{chunk['rank']}" if "rank" in chunk else ""
    return f"{where}{rank}[{chunk.get('index')}+{chunk.get('size')}]"


def op_lines(op, indent=""):
    """An operation in one line, a pipeline with its inner operations below it."""
    rest = dict(op)
    words = [rest.pop("name", "?")]
    for key, arrow in (("src_buff", "from"), ("dst_buff", "to")):
        if key in rest:
            words.append(f"{arrow} {','.join(chunk_text(chunk) for chunk in rest.pop(key))}")
    inner = rest.pop("ops", [])
    words += [f"{key}={rest[key]}" for key in sorted(rest)]
    lines = [indent + " ".join(words)]
    for each in inner:
        lines += op_lines(each, indent + "    ")
    return lines


def block_lines(block):
    """A thread block as text: its tables, then its operations."""
    lines = [f"{key}: {block[key]}" for key in sorted(block) if key != "ops"]
    for op in block.get("ops", []):
        lines += op_lines(op)
    return lines


def side_by_side(wanted, got, limit=40):
    """The unified difference of two lists of lines, shortened to `limit` lines."""
    lines = list(difflib.unified_diff(wanted, got, "wanted", "got", lineterm="", n=2))[2:]
    if len(lines) > limit:
        lines = lines[:limit] + [f"… {len(lines) - limit} more lines"]
    return lines


def differences(wanted, got, blocks=3):
    """Where two plans differ, as lines of text; empty when they are the same. At most `blocks` blocks are shown in full."""
    wanted, got = normal(wanted), normal(got)
    if wanted == got:
        return []
    lines = []
    for key in sorted((set(wanted) | set(got)) - {"gpus"}):
        if wanted.get(key) != got.get(key):
            lines.append(f"{key}: {wanted.get(key, 'absent')!r} -> {got.get(key, 'absent')!r}")
    left, right = wanted.get("gpus", []), got.get("gpus", [])
    if len(left) != len(right):
        lines.append(f"gpus: {len(left)} -> {len(right)}")
    shown = 0
    for rank, (one, other) in enumerate(zip(left, right)):
        for key in sorted((set(one) | set(other)) - {"threadblocks"}):
            if one.get(key) != other.get(key):
                lines.append(f"rank {rank} {key}: {one.get(key, 'absent')!r} -> {other.get(key, 'absent')!r}")
        ones, others = one.get("threadblocks", []), other.get("threadblocks", [])
        if len(ones) != len(others):
            lines.append(f"rank {rank} threadblocks: {len(ones)} -> {len(others)}")
        for at, (block, its) in enumerate(zip(ones, others)):
            if block == its:
                continue
            shown += 1
            if shown <= blocks:
                lines.append(f"rank {rank} block {at}:")
                lines += ["    " + line for line in side_by_side(block_lines(block), block_lines(its))]
    if shown > blocks:
        lines.append(f"… and {shown - blocks} more blocks")
    return lines or ["the plans differ only in keys' presence"]
