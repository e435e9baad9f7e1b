"""What vim_scan records and launches, on a machine without a GPU: `scripts/without_gpu.py --vim-scan
SITE` runs this beside a driver that writes down what it is asked for.

Calls of every method, in both types and directions, of odd sizes, with constant B or C and without
what may be absent. Each is recorded and launched once, its tensors 64 GiB apart: every address that a
kernel gets has to be within one of them, every copy from its begin to its end, and every result is
written by somebody.
"""

import math
import os

import vim_scan
from vim_scan import _native

native = _native.on_cuda
APART = 36
BYTES = {"float32": 4, "bfloat16": 2}


def record(log, name, inputs, *how):
    """The results of a call, whose launches are checked."""
    plan = getattr(native, name)(0, inputs, *how)
    tensors = [of for of in inputs if of is not None] + plan.results
    sizes = [math.prod(shape) * BYTES[dtype] for shape, dtype in tensors] + [plan.scratch]
    plan.launch(0, [(i + 1) << APART for i in range(len(sizes))])
    written = set()

    def within(address, count, what):
        tensor, offset = (address >> APART) - 1, address & ((1 << APART) - 1)
        assert 0 <= tensor < len(sizes) and offset + count <= sizes[tensor], (name, how, what, tensor, offset, sizes)
        written.add(tensor)

    launches = 0
    for line in log:
        what, *rest = line.split()
        if what == "launch":
            launches += 1
            for address in rest[1:]:
                within(int(address, 16), 1, rest[0])
        else:
            to, begin, count = int(rest[0], 16), int(rest[1], 16), int(rest[2])
            assert count == sizes[(to >> APART) - 1], line
            within(to, count, line)
            within(begin, count, line)
    assert launches > 0 and written >= set(range(len(tensors) - len(plan.results), len(tensors))), (name, how)
    return plan.results


def scans(log, method, reverse, dtype, sizes):
    batch, length, channels, states, groups = sizes
    token = ([batch, length, channels], dtype)
    projection, channel = ([batch, length, groups, states], dtype), ([channels], "float32")
    weight = ([channels, states], "float32")
    calls = [[token, token, weight, projection, projection, channel, token, channel]]
    if groups == 1:
        calls.append([token, token, weight, weight, projection, None, None, channel])
        calls.append([token, token, weight, projection, weight, channel, token, None])
    for inputs in calls:
        how = (method, "exact", True, reverse)
        assert record(log, "forward", inputs, *how, False)[0] == token
        saved = record(log, "forward", inputs, *how, True)[2]
        for wanted in ([True] * 8, [i == 2 for i in range(8)]):
            grads = record(log, "backward", [token, *inputs, saved], *how, wanted)
            assert grads == [of for of, is_wanted in zip(inputs, wanted) if is_wanted and of is not None]
    return 4 * len(calls)


def mixers(log, method, dtype):
    channels, states, rank = 64, 16, 12
    shapes = [[channels, 1, 4], [channels], [channels, rank + 2 * states], [rank, channels], [channels]]
    shapes += [[channels, states], [channels]]
    inputs = [([2, 33, 2 * channels], dtype)] + 2 * [(shape, "float32") for shape in shapes]
    y = ([2, 33, channels], dtype)
    assert record(log, "mixer", inputs, method, "exact") == [y]
    masks = [[True] * 15, [False] + [True] * 14] + [[i == only for i in range(15)] for only in range(15)]
    for wanted in masks:
        grads = record(log, "mixer_backward", [y, *inputs], method, "exact", wanted)
        assert grads == [of for of, is_wanted in zip(inputs, wanted) if is_wanted]
    return 1 + len(masks)


def main():
    _native.start(1)
    count = 0
    path = os.environ["STAND_IN_CALLS"]
    open(path, "w").close()
    with open(path) as log:
        for dtype in BYTES:
            turned = record(log, "turned", [([3, 5, 197], dtype), ([2, 3, 16, 33], dtype)])
            assert turned == [([3, 197, 5], dtype), ([2, 33, 3, 16], dtype)]
            for method in vim_scan.DISCRETIZATIONS:
                count += 1 + mixers(log, method, dtype)
                for sizes in ((2, 9, 6, 3, 1), (2, 33, 18, 17, 3), (1, 1025, 8, 16, 1)):
                    for reverse in (False, True):
                        count += scans(log, method, reverse, dtype, sizes)
    print(f"{count} calls recorded and launched, every address within its tensor")


if __name__ == "__main__":
    main()
