"""Tests of vim_scan on a GPU: `pytest` beside a wheel with CUDA's kernels and a PyTorch of CUDA."""

import threading

import pytest
import torch
import vim_scan
from torch.utils.checkpoint import checkpoint
from vim_scan import selective_scan, selective_scan_fn

import reference
from test_vim_scan import NAMES, gradients, inputs, mixer_weights, near, the_layouts_agree


def on_gpu(dtype=torch.float32, **sizes):
    """Leaves on the GPU, by name: activations of `dtype`, weights of f32."""
    made = {}
    for name, t in inputs(**sizes).items():
        kind = torch.float32 if name in ("A", "D", "delta_bias") else dtype
        made[name] = None if t is None else t.detach().cuda().to(kind).requires_grad_()
    return made


def bits(t, **how):
    """y and all gradients of one call."""
    y = selective_scan(**t, delta_softplus=True, **how)
    grads = torch.autograd.grad(y, [of for of in t.values() if of is not None], torch.ones_like(y))
    return [y.detach(), *grads]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


SIZES = [
    {},
    {"length": 33, "channels": 18, "states": 17, "groups": 3},
    {"batch": 1, "length": 1, "channels": 1, "states": 1},
    {"batch": 1, "length": 2, "channels": 5, "states": 16, "constant": ("B",), "absent": ("z", "D")},
    {"length": 5, "channels": 6, "states": 3, "constant": ("C",), "absent": ("delta_bias",)},
    {"length": 197, "channels": 40, "states": 16},
    {"batch": 1, "length": 1025, "channels": 8, "states": 16},
]


# Tolerances as on a CPU.
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 3e-3)])
@pytest.mark.parametrize("discretization", vim_scan.DISCRETIZATIONS)
def test_a_plain_loop_gives_the_same(discretization, dtype, tolerance):
    how = {"discretization": discretization, "delta_softplus": True}
    # f16 is computed in f32. Kernels of either direction take seconds to compile.
    for i, sizes in enumerate(SIZES if dtype != torch.float16 else SIZES[:2]):
        ours = on_gpu(dtype, **sizes)
        theirs = {n: None if t is None else t.detach().double().cpu().requires_grad_() for n, t in ours.items()}
        for reverse in (False, True) if dtype == torch.float32 else (i % 2 == 1,):
            y, state = selective_scan(**ours, **how, reverse=reverse, return_last_state=True)
            expected, last = reference.scan(**theirs, **how, reverse=reverse)
            assert y.dtype == dtype and state.dtype == torch.float32 and y.is_cuda
            near(y.cpu(), expected, tolerance)
            near(state.cpu(), last, tolerance)
            for t in (*ours.values(), *theirs.values()):
                if t is not None:
                    t.grad = None
            expected = gradients(expected, theirs)
            for got, grad in zip(gradients(y, ours), expected, strict=True):
                near(got.cpu(), grad, 4 * tolerance)


def test_some_subsets_of_gradients():
    full = on_gpu()
    gradients(selective_scan(**full, delta_softplus=True), full)
    for mask in [1, 2, 4, 8, 16, 32, 64, 128, 0b00011100, 0b11100011, 0b10101010]:
        some = {n: t.detach().requires_grad_(bool(mask >> i & 1)) for i, (n, t) in enumerate(full.items())}
        gradients(selective_scan(**some, delta_softplus=True), some)
        for i, name in enumerate(NAMES):
            assert torch.equal(some[name].grad, full[name].grad) if mask >> i & 1 else some[name].grad is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_bits_in_50_calls(dtype):
    t = on_gpu(dtype, batch=128, length=197, channels=384, states=16)
    first = bits(t)
    assert all(same(bits(t), first) for _ in range(49))


def test_1000_calls_on_side_streams_with_freed_inputs():
    t = {n: of.detach() for n, of in on_gpu(torch.bfloat16, length=197, channels=64, states=16).items()}
    first = bits({n: of.clone().requires_grad_() for n, of in t.items()})
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    wrong = torch.zeros((), device="cuda", dtype=torch.int64)
    for i in range(1000):
        with torch.cuda.stream(streams[i % 4]):
            # Inputs that nothing holds behind the call, and memory that others write to at once.
            got = bits({n: of.clone().requires_grad_() for n, of in t.items()})
            counts = [(a != b).sum() for a, b in zip(got, first, strict=True)]
            del got
            for _ in range(3):
                torch.full((2, 197, 64), torch.nan, device="cuda", dtype=torch.bfloat16)
            streams[(i + 1) % 4].wait_stream(streams[i % 4])
        with torch.cuda.stream(streams[(i + 1) % 4]):
            wrong += torch.stack(counts).sum()
        streams[(i + 2) % 4].wait_stream(streams[(i + 1) % 4])
        if i % 4 == 3:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    assert wrong.item() == 0


def test_threads_of_python():
    t = on_gpu(length=197, channels=64, states=16)
    first, failures = bits(t), []

    def work():
        with torch.cuda.stream(torch.cuda.Stream()):
            own = {n: of.detach().clone().requires_grad_() for n, of in t.items()}
            for _ in range(50):
                if not same(bits(own), first):
                    failures.append("other bits")
            torch.cuda.current_stream().synchronize()

    threads = [threading.Thread(target=work) for _ in range(4)]
    torch.cuda.synchronize()
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not failures


def test_strides_change_nothing():
    t = on_gpu(length=16, channels=8)
    y = selective_scan(**t)
    turned = {n: of.detach().transpose(-1, -2).contiguous().transpose(-1, -2) if of.dim() > 1 else of for n, of in t.items()}
    assert torch.equal(selective_scan(**turned), y)
    one = {**t, "u": t["u"][:1].expand(2, -1, -1)}
    assert torch.equal(selective_scan(**one), selective_scan(**{**one, "u": one["u"].contiguous()}))
    mamba = {n: of.detach().transpose(1, 2).contiguous() if of.dim() == 3 else of for n, of in t.items()}
    assert torch.equal(selective_scan_fn(**mamba).transpose(1, 2), y)


def test_opcheck_compile_checkpoint_and_autocast():
    t = on_gpu()
    prepared = {n: of.detach().unsqueeze(2).requires_grad_() if n in "BC" else of for n, of in t.items()}
    prepared = {n: of.detach().requires_grad_() for n, of in prepared.items()}
    result = torch.library.opcheck(torch.ops.vim_scan.forward.default, (*prepared.values(), "poly", "exact", True, False, True))
    assert set(result.values()) == {"SUCCESS"}
    expected = bits(t)
    compiled = torch.compile(selective_scan, backend="aot_eager", fullgraph=True)
    y = compiled(**t, delta_softplus=True)
    assert same([y.detach(), *torch.autograd.grad(y, list(t.values()), torch.ones_like(y))], expected)
    y = checkpoint(lambda: selective_scan(**t, delta_softplus=True), use_reentrant=False)
    assert same([y.detach(), *torch.autograd.grad(y, list(t.values()), torch.ones_like(y))], expected)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        half = selective_scan(**t, delta_softplus=True)
    assert half.dtype == torch.bfloat16
    near(half, expected[0], 1e-2)


# f32: products of 64 numbers and scans of 197 tokens. bf16: of activations rounded behind each operation.
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-4), (torch.bfloat16, 5e-2)])
def test_the_node_of_both_directions_is_its_parts(dtype, tolerance):
    leaves = {}
    for device, kind in (("cpu", torch.float64), ("cuda", torch.float32)):
        generator = torch.Generator().manual_seed(3)
        made = [mixer_weights(generator, 64, 16, 12, kind) for _ in range(2)]
        one, other = [[t.detach().to(device).requires_grad_() for t in way] for way in made]
        xz = torch.randn(2, 128, 197, generator=generator, dtype=torch.float64).to(dtype)
        xz = xz.to(device, dtype if device == "cuda" else kind).requires_grad_()
        out = torch.eye(64, device=device, dtype=xz.dtype)
        y = vim_scan.bimamba_inner(xz, one, other, out)
        again = vim_scan.bimamba_inner(xz, one, other, out)
        assert torch.equal(again, y)
        grads = torch.autograd.grad(y.double().square().mean(), (xz, *one, *other))
        leaves[device] = [t.detach().cpu() for t in (y, *grads)]
    for expected, got in zip(*leaves.values(), strict=True):
        near(got, expected, tolerance)


def test_what_a_gpu_cannot_is_refused():
    t = {n: of.detach() for n, of in on_gpu().items()}
    with pytest.raises(TypeError, match="on a GPU A is real"):
        selective_scan(**{n: of.double() for n, of in t.items()})
    with pytest.raises(ValueError, match="`delta` has shape"):
        selective_scan(**{**t, "delta": t["delta"][:, 1:]})
    with pytest.raises(ValueError, match="several devices: cpu, cuda:0"):
        selective_scan(**{**t, "A": t["A"].cpu()})
    expected = selective_scan(**t)
    other = {n: of.detach() for n, of in on_gpu(length=7).items()}
    with pytest.raises(RuntimeError, match="was not made yet"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        selective_scan(**other)
    assert torch.equal(selective_scan(**t), expected)


def test_a_graph_of_pytorch_replays_calls():
    t = on_gpu(torch.bfloat16, batch=3, length=197, channels=40, states=16)
    expected = bits(t)
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        bits(t)
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        recorded = bits(t)
    with torch.no_grad():
        t["u"].mul_(-1)
    graph.replay()
    graph.replay()
    torch.cuda.synchronize()
    assert not torch.equal(recorded[0], expected[0]) and same(recorded, bits(t))


def test_channels_first_have_the_bits_of_channels_last():
    the_layouts_agree(lambda t: t.cuda())


def test_a_thread_that_did_nothing_on_the_gpu_yet():
    t = {n: of.detach() for n, of in on_gpu(length=33, channels=16).items()}
    expected, got = selective_scan(**t), []
    torch.cuda.synchronize()

    def work():
        with torch.no_grad():
            got.append(selective_scan(**t))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert torch.equal(got[0], expected)


def test_subsets_of_the_mixer_s_gradients():
    generator = torch.Generator().manual_seed(5)
    weights = [t.detach().cuda().float() for way in range(2) for t in mixer_weights(generator, 32, 8, 6, torch.float64)]
    xz = torch.randn(2, 64, 33, generator=generator).cuda()
    out = torch.eye(32, device="cuda")

    def grads(mask):
        leaves = [t.clone().requires_grad_(bool(mask >> i & 1)) for i, t in enumerate((xz, *weights))]
        y = vim_scan.bimamba_inner(leaves[0], leaves[1:8], leaves[8:], out)
        wanted = [t for t in leaves if t.requires_grad]
        return iter(torch.autograd.grad(y.square().mean(), wanted))

    full = list(grads((1 << 15) - 1))
    for mask in [1 << i for i in range(15)] + [0b110, 0x7FFE, 0b101010101010101]:
        some = grads(mask)
        for i, expected in enumerate(full):
            assert not mask >> i & 1 or torch.equal(next(some), expected), (mask, i)


def test_views_that_begin_anywhere():
    t = {n: of.detach() for n, of in on_gpu(length=33, channels=16).items()}
    expected = selective_scan(**t)
    u = torch.cat([t["u"].new_zeros(1), t["u"].flatten()])[1:].view(t["u"].shape)
    assert u.data_ptr() % 16 == 4 and torch.equal(selective_scan(**{**t, "u": u}), expected)


def test_memory_that_is_short_is_taken_from_caches_and_then_an_error():
    def scan(t, **how):
        # Of steps below 0 states grow without a limit, to NaN, which equals nothing.
        return selective_scan(**t, **how, delta_softplus=True)

    t = {n: of.detach() for n, of in on_gpu(length=197, channels=64, states=16).items()}
    expected = scan(t)
    big = {n: of.detach() for n, of in on_gpu(batch=4, length=4096, channels=4096, states=16).items()}
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    # All but 1 GiB in PyTorch's cache, which the first call of new shapes empties: it needs 1.3 GB.
    cached = torch.empty(torch.cuda.mem_get_info()[0] - (1 << 30), dtype=torch.uint8, device="cuda")
    del cached
    y = scan(big)
    # 128 MiB, for a result of 256.
    held = torch.empty(torch.cuda.mem_get_info()[0] - (1 << 27), dtype=torch.uint8, device="cuda")
    torch.cuda.empty_cache()
    # A call that was made, and one whose kernels are not known yet.
    for how in ({}, {"reverse": True}):
        with pytest.raises(torch.OutOfMemoryError):
            scan(big, **how)
    del held
    assert torch.equal(scan(big), y) and torch.equal(scan(t), expected)
