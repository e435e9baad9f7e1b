"""Tests of vim_scan on a CPU: `pytest` beside an installed wheel, or with python/ on PYTHONPATH."""

import os
import subprocess
import sys

import pytest
import torch
import vim_scan
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from vim_scan import mamba_inner_fn, selective_scan, selective_scan_fn
from vim_scan.vmamba import SelectiveScan

import reference

NAMES = ("u", "delta", "A", "B", "C", "D", "z", "delta_bias")


def inputs(batch=2, length=9, channels=6, states=3, groups=1, dtype=torch.float32, constant=(), seed=0, absent=()):
    """Leaves that require gradients, by name."""
    generator = torch.Generator().manual_seed(seed)
    random = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
    tokens = (batch, length, states) if groups == 1 else (batch, length, groups, states)
    made = {
        "u": random(batch, length, channels),
        "delta": random(batch, length, channels),
        "A": -random(channels, states).abs() - 0.1,
        "B": random(*((channels, states) if "B" in constant else tokens)),
        "C": random(*((channels, states) if "C" in constant else tokens)),
        "D": random(channels),
        "z": random(batch, length, channels),
        "delta_bias": random(channels),
    }
    return {n: None if n in absent else t.to(dtype).requires_grad_() for n, t in made.items()}


def gradients(y, tensors):
    y.double().square().mean().backward()
    return [t.grad for t in tensors.values() if t is not None]


def near(got, expected, tolerance):
    """Within `tolerance` of the largest number that is expected."""
    scale = max(1e-3, expected.abs().max().item())
    assert got.shape == expected.shape
    assert (got.double() - expected.double()).abs().max().item() < tolerance * scale


# f32: rounding over 33 tokens. bf16: 2^-9 of the largest, for y and for a gradient of it.
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 3e-3)])
@pytest.mark.parametrize("discretization", vim_scan.DISCRETIZATIONS)
def test_a_plain_loop_gives_the_same(discretization, dtype, tolerance):
    how = {"discretization": discretization, "delta_softplus": True}
    for sizes in [{}, {"length": 33, "channels": 18, "states": 17, "groups": 3}, {"batch": 1, "length": 1, "channels": 1, "states": 1}]:
        for more in [{}, {"constant": ("B",), "absent": ("z", "D")}, {"constant": ("C",), "absent": ("delta_bias",)}]:
            if "groups" in sizes and more:
                more = {"absent": more["absent"]}
            ours, theirs = inputs(**sizes, **more), inputs(**sizes, **more, dtype=torch.float64)
            rounded = {n: None if t is None else t.detach().to(dtype) for n, t in ours.items()}
            for name in ("A", "D", "delta_bias"):
                rounded[name] = None if ours[name] is None else ours[name].detach()
            ours = {n: None if t is None else t.requires_grad_() for n, t in rounded.items()}
            theirs = {n: None if t is None else t.detach().double().requires_grad_() for n, t in rounded.items()}
            y, state = selective_scan(**ours, **how, return_last_state=True)
            expected, last = reference.scan(**theirs, **how)
            assert y.dtype == dtype and state.dtype == torch.float32 and not state.requires_grad
            near(y, expected, tolerance)
            near(state, last, tolerance)
            for got, grad in zip(gradients(y, ours), gradients(expected, theirs)):
                near(got, grad, 4 * tolerance)


@pytest.mark.parametrize("discretization", vim_scan.DISCRETIZATIONS)
def test_gradcheck_in_f64(discretization):
    for reverse in (False, True):
        tensors = inputs(1, 4, 2, 2, dtype=torch.float64)
        run = lambda *t: selective_scan(*t, discretization=discretization, delta_softplus=True, reverse=reverse)
        assert torch.autograd.gradcheck(run, tuple(tensors.values()))
        y = run(*tensors.values())
        near(y, reference.scan(**tensors, discretization=discretization, delta_softplus=True, reverse=reverse)[0], 1e-12)


def test_a_complex_a_is_the_loop_s():
    made = inputs(dtype=torch.float64)
    for name in ("A", "B", "C"):
        made[name] = torch.complex(made[name].detach(), torch.rand_like(made[name])).requires_grad_()
    y, state = selective_scan(**made, delta_softplus=True, return_last_state=True)
    got = gradients(y, made)
    copies = {n: t.detach().requires_grad_() for n, t in made.items()}
    expected, last = reference.scan(**copies, delta_softplus=True)
    near(y, expected, 1e-12)
    assert (state - last).abs().max() < 1e-12
    for got, grad in zip(got, gradients(expected, copies)):
        assert (got - grad).abs().max() < 1e-11 * max(1.0, grad.abs().max().item())
    # mamba's layout has pairs of real numbers where B and C vary, which keep their precision.
    turned = {n: t.detach().transpose(1, 2) for n, t in made.items() if t.dim() == 3}
    pairs = {n: torch.view_as_real(turned[n].contiguous()).flatten(-2) for n in ("B", "C")}
    theirs = {n: t.detach() for n, t in made.items()} | turned | pairs
    near(selective_scan_fn(**theirs, delta_softplus=True), expected.transpose(1, 2), 1e-12)
    with pytest.raises(TypeError, match="all real or all complex"):
        selective_scan_fn(**{**theirs, "B": made["A"].detach().real})
    single = {n: t.detach().to(torch.complex64 if t.is_complex() else torch.float32) for n, t in made.items()}
    near(selective_scan(**single, delta_softplus=True), expected, 1e-5)
    with pytest.raises(TypeError, match="all real or all complex"):
        selective_scan(**{**single, "B": single["B"].real})


def test_opcheck():
    for absent in ((), ("D", "z", "delta_bias")):
        for dtype in (torch.float32, torch.float64):
            t = inputs(absent=absent, dtype=dtype)
            t["B"], t["C"] = t["B"].detach().unsqueeze(2).requires_grad_(), t["C"].detach().unsqueeze(2).requires_grad_()
            for save in (True, False):
                if not save:
                    t = {n: None if of is None else of.detach() for n, of in t.items()}
                result = torch.library.opcheck(torch.ops.vim_scan.forward.default, (*t.values(), "poly", "exact", True, False, save))
                assert set(result.values()) == {"SUCCESS"}
    tensors = [torch.randn(2, 3, 5), torch.randn(2, 3, 4, 5)]
    assert set(torch.library.opcheck(torch.ops.vim_scan.turned.default, (tensors,)).values()) == {"SUCCESS"}


def test_every_subset_of_gradients():
    full = inputs()
    y = selective_scan(**full, delta_softplus=True)
    gradients(y, full)
    for mask in range(1, 256):
        some = {n: t.detach().requires_grad_(bool(mask >> i & 1)) for i, (n, t) in enumerate(full.items())}
        gradients(selective_scan(**some, delta_softplus=True), some)
        for i, name in enumerate(NAMES):
            if mask >> i & 1:
                assert torch.equal(some[name].grad, full[name].grad)
            else:
                assert some[name].grad is None


def test_nothing_is_saved_without_gradients():
    saved = lambda: torch.ops.vim_scan.forward(*prepared, "zoh", "exact", True, False, False)[2]
    t = inputs()
    prepared = [t[n] if n not in "BC" else t[n].unsqueeze(2) for n in NAMES]
    assert saved().numel() == 0
    with torch.no_grad():
        assert not selective_scan(**t).requires_grad


def test_strides_change_nothing():
    t = inputs(length=16, channels=8)
    y = selective_scan(**t)
    apart = {n: torch.stack([of.detach()] * 2, -1)[..., 0] for n, of in t.items()}
    assert not apart["u"].is_contiguous()
    assert torch.equal(selective_scan(**apart), y)
    turned = {n: of.detach().transpose(-1, -2).contiguous().transpose(-1, -2) if of.dim() > 1 else of for n, of in t.items()}
    assert torch.equal(selective_scan(**turned), y)
    one = {**t, "u": t["u"][:1].expand(2, -1, -1), "A": t["A"][:1].expand(8, -1).contiguous()}
    expanded = {**one, "A": t["A"][:1].expand(8, -1)}
    assert torch.equal(selective_scan(**expanded), selective_scan(**one))


def test_the_same_bits_each_time_and_in_mamba_s_layout():
    first = None
    for _ in range(5):
        t = inputs(length=70, channels=40, states=16)
        y = selective_scan(**t, delta_softplus=True)
        bits = [y.detach(), *gradients(y, t)]
        assert first is None or all(torch.equal(a, b) for a, b in zip(bits, first))
        first = bits
    t = {n: of.detach() for n, of in t.items()}
    for name in ("u", "delta", "z", "B", "C"):
        t[name] = t[name].transpose(1, 2)
    assert torch.equal(selective_scan_fn(**t, delta_softplus=True), first[0].transpose(1, 2))


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_the_number_of_threads_changes_no_bit(threads):
    code = """
import hashlib, torch, vim_scan, test_vim_scan as tests
vim_scan.set_num_threads(int(__import__("sys").argv[1]))
t = tests.inputs(3, 70, 200, 16, groups=2)
y = vim_scan.selective_scan(**t, delta_softplus=True)
bytes = b"".join(x.detach().numpy().tobytes() for x in [y, *tests.gradients(y, t)])
print(hashlib.sha256(bytes).hexdigest())
"""
    here = os.path.dirname(__file__)
    run = lambda n: subprocess.run([sys.executable, "-c", code, str(n)], cwd=here, capture_output=True, text=True, check=True).stdout
    assert run(threads) == run(3)


def test_a_child_of_fork_raises():
    selective_scan(**inputs())
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            selective_scan(**inputs())
            os.write(write, b"no error")
        except RuntimeError as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert b"was forked" in os.read(read, 4096)


def test_compile_export_checkpoint_and_autocast():
    t = inputs()
    y = selective_scan(**t, delta_softplus=True)
    expected = gradients(y, t)
    compiled = torch.compile(selective_scan, backend="aot_eager", fullgraph=True)
    t = inputs()
    again = compiled(**t, delta_softplus=True)
    assert torch.equal(again, y) and all(torch.equal(a, b) for a, b in zip(gradients(again, t), expected))

    class Scan(torch.nn.Module):
        def forward(self, u, delta, A, B, C):
            return selective_scan(u, delta, A, B, C)

    arguments = tuple(inputs()[n].detach() for n in NAMES[:5])
    exported = torch.export.export(Scan(), arguments).module()
    assert torch.equal(exported(*arguments), Scan()(*arguments))

    t = inputs()
    again = checkpoint(lambda: selective_scan(**t, delta_softplus=True), use_reentrant=False)
    assert all(torch.equal(a, b) for a, b in zip(gradients(again, t), expected))

    t = inputs()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = selective_scan(**t, delta_softplus=True)
    assert half.dtype == torch.bfloat16
    near(half, y, 1e-2)
    gradients(half, t)
    assert {of.grad.dtype for of in t.values()} == {torch.float32}


def test_a_second_derivative_is_refused():
    t = inputs()
    first = {n: of if of.dim() == 1 or n == "A" else of.detach().transpose(1, 2).requires_grad_() for n, of in t.items()}
    for call, of in ((selective_scan, t), (selective_scan_fn, first)):
        y = call(**of, delta_softplus=True)
        with pytest.raises(RuntimeError, match="no second derivative"):
            torch.autograd.grad(y.square().sum(), of["u"], create_graph=True)
    # As the operation itself refuses it.
    prepared = {n: of.detach().unsqueeze(2) if n in "BC" else of for n, of in t.items()}
    y, _, _ = torch.ops.vim_scan.forward(*prepared.values(), "zoh", "exact", True, False, True)
    (grad,) = torch.autograd.grad(y.square().sum(), t["u"], create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        grad.sum().backward()


def test_who_looks_at_operations_sees_them():
    class Looking(TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            seen.append(operation.name())
            return operation(*args, **(kwargs or {}))

    class Own(torch.Tensor):
        pass

    seen, t = [], inputs()
    expected = gradients(selective_scan(**t), t)
    of = {n: one.detach().requires_grad_() for n, one in t.items()}
    with Looking():
        grads = gradients(selective_scan(**of), of)
    assert {"vim_scan::forward", "vim_scan::backward"} <= set(seen)
    assert all(map(torch.equal, grads, expected))
    # A tensor of one's own kind.
    assert isinstance(selective_scan(**{**t, "u": t["u"].detach().as_subclass(Own)}), Own)


SIZES_OF_LAYOUTS = [
    {},
    {"groups": 3, "states": 17},
    {"batch": 1, "length": 1, "channels": 1, "states": 1},
    {"constant": ("B",), "absent": ("z", "D")},
    {"constant": ("C",), "absent": ("delta_bias",)},
]


def the_layouts_agree(place):
    """Channels first have the bits of channels last, in y and in all gradients; y may be changed in
    place. `place` moves a tensor.
    """
    for sizes in SIZES_OF_LAYOUTS:
        last = {n: None if t is None else place(t.detach()).requires_grad_() for n, t in inputs(**sizes).items()}
        move = lambda n, t: t if t.dim() == 1 or n == "A" or n in sizes.get("constant", ()) else t.movedim(1, -1)
        for contiguous in (True, False):
            first = {n: None if t is None else move(n, t.detach()) for n, t in last.items()}
            first = {n: None if t is None else t.contiguous() if contiguous else t for n, t in first.items()}
            first = {n: None if t is None else t.detach().requires_grad_() for n, t in first.items()}
            y = selective_scan_fn(**first, delta_softplus=True)
            expected = selective_scan(**last, delta_softplus=True)
            assert torch.equal(y.transpose(1, 2), expected)
            grad = torch.linspace(-1, 1, y.numel(), device=y.device).view(expected.shape)
            there = [n for n, t in last.items() if t is not None]
            expected = torch.autograd.grad(expected, [last[n] for n in there], grad)
            for turned in (grad.transpose(1, 2), grad.transpose(1, 2).contiguous()):
                got = torch.autograd.grad(y, [first[n] for n in there], turned, retain_graph=True)
                for name, one, other in zip(there, got, expected, strict=True):
                    assert one.shape == first[name].shape and torch.equal(one, move(name, other)), name
            y += 1
            y.sum().backward()


def test_channels_first_have_the_bits_of_channels_last():
    the_layouts_agree(lambda t: t)


def test_mistakes_are_exceptions():
    t = {n: of.detach() for n, of in inputs().items()}
    for change, error, text in [
        ({"delta": t["delta"][:, 1:]}, ValueError, "`delta` has shape"),
        ({"A": t["A"][0]}, ValueError, "`a`"),
        ({"B": t["B"][..., :2]}, ValueError, "`b` has shape"),
        ({"D": t["D"][1:]}, ValueError, "`d` has shape"),
        ({"u": t["u"].int()}, TypeError, "float32, float64"),
        ({"u": t["u"][:0], "delta": t["delta"][:0]}, ValueError, "none of them 0"),
        ({"discretization": "euler"}, ValueError, "one of zoh, foh"),
        ({"series": "taylor", "discretization": "tustin"}, ValueError, "taylor"),
    ]:
        with pytest.raises(error, match=text):
            selective_scan(**{**t, **change})


def test_mamba_inner_is_its_parts():
    generator = torch.Generator().manual_seed(1)
    random = lambda *shape: torch.randn(*shape, generator=generator) / 3
    channels, states, rank, width = 12, 4, 3, 8
    weights = [random(channels, 1, 4), random(channels), random(rank + 2 * states, channels), random(channels, rank)]
    out, A = random(width, channels), -random(channels, states).abs()
    xz, D, bias = random(2, 2 * channels, 7), random(channels), random(channels)
    y = mamba_inner_fn(xz, *weights, out, None, A, None, None, D, delta_bias=bias)
    x, z = xz.chunk(2, 1)
    u = torch.nn.functional.silu(torch.nn.functional.conv1d(x, weights[0], weights[1], padding=3, groups=channels)[..., :7])
    dt, B, C = (u.transpose(1, 2) @ weights[2].T).split([rank, states, states], -1)
    delta = (dt @ weights[3].T).transpose(1, 2)
    scanned = selective_scan_fn(u, delta, A, B.transpose(1, 2), C.transpose(1, 2), D, z, bias, True)
    near(y, scanned.transpose(1, 2) @ out.T, 1e-6)
    given = mamba_inner_fn(xz, *weights[:2], weights[2][:rank], weights[3], out, None, A, B.transpose(1, 2), C.transpose(1, 2), D, bias)
    near(given, y, 1e-6)


def test_both_directions_are_flips_of_one():
    generator = torch.Generator().manual_seed(2)
    random = lambda *shape: torch.randn(*shape, generator=generator) / 3
    channels, states, rank, width = 12, 4, 3, 8
    weights = lambda: [random(channels, 1, 4), random(channels), random(rank + 2 * states, channels), random(channels, rank)]
    rest = lambda: [-random(channels, states).abs(), random(channels), random(channels)]
    one, other, out, xz = weights() + rest(), weights() + rest(), random(width, channels), random(2, 2 * channels, 7)
    branch = lambda x, w: vim_scan.mamba_inner_fn_no_out_proj(x, *w[:5], None, None, *w[5:])
    expected = (branch(xz, one) + branch(xz.flip(-1), other).flip(-1)).transpose(1, 2) @ out.T
    near(vim_scan.bimamba_inner(xz, one, other, out), expected, 1e-6)
    near(vim_scan.bimamba_inner(xz, one, other, out, halved=True), expected / 2, 1e-6)
    # v1 shares all but A, and the convolution goes one way.
    v1 = vim_scan.bimamba_inner_fn(xz, *one[:4], out, None, one[4], other[4], None, None, one[5], one[6])
    x, z = xz.chunk(2, 1)
    u = torch.nn.functional.silu(torch.nn.functional.conv1d(x, one[0], one[1], padding=3, groups=channels)[..., :7])
    dt, B, C = (u.transpose(1, 2) @ one[2].T).split([rank, states, states], -1)
    tensors = [u, (dt @ one[3].T).transpose(1, 2), B.transpose(1, 2), C.transpose(1, 2), z]
    scan = lambda A, u, delta, B, C, z: selective_scan_fn(u, delta, A, B, C, one[5], z, one[6], True)
    y = scan(one[4], *tensors) + scan(other[4], *(t.flip(-1) for t in tensors)).flip(-1)
    near(v1, y.transpose(1, 2) @ out.T, 1e-6)


def mixer_weights(generator, channels=12, states=4, rank=3, dtype=torch.float32):
    random = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64) / 3
    made = [random(channels, 1, 4), random(channels), random(rank + 2 * states, channels), random(channels, rank)]
    made += [-random(channels, states).abs() - 0.1, random(channels), random(channels)]
    return [t.to(dtype).requires_grad_() for t in made]


@pytest.mark.parametrize("discretization", vim_scan.DISCRETIZATIONS)
def test_the_node_of_both_directions_is_its_parts(discretization):
    leaves = {}
    for dtype in (torch.float64, torch.float32):
        generator = torch.Generator().manual_seed(3)
        one, other = mixer_weights(generator, dtype=dtype), mixer_weights(generator, dtype=dtype)
        xz = torch.randn(3, 24, 7, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        out = torch.randn(8, 12, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        y = vim_scan.bimamba_inner(xz, one, other, out, halved=True, discretization=discretization)
        y.double().square().mean().backward()
        leaves[dtype] = [y, *(t.grad for t in (xz, *one, *other, out))]
    # By f64's operations, and by the node, whose numbers are f32.
    for expected, got in zip(*leaves.values(), strict=True):
        near(got.detach(), expected.detach(), 2e-5)


def test_the_node_is_an_operation():
    generator = torch.Generator().manual_seed(4)
    one, other = mixer_weights(generator), mixer_weights(generator)
    xz, out = torch.randn(2, 24, 7, generator=generator).requires_grad_(), torch.randn(8, 12, generator=generator)
    run = lambda *weights: vim_scan.bimamba_inner(xz, one, other, *weights)
    y = run(out)
    (expected,) = torch.autograd.grad(y.square().sum(), xz)
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)(out)
    assert torch.equal(compiled, y) and torch.equal(torch.autograd.grad(compiled.square().sum(), xz)[0], expected)
    # Without what may be absent; one gradient alone; bf16, and autocast.
    bare = lambda w: [w[0], None, *w[2:5], None, None]
    zeros = lambda w: [w[0], 0 * w[1], *w[2:5], 0 * w[5], 0 * w[6]]
    assert torch.equal(vim_scan.bimamba_inner(xz, bare(one), bare(other), out), vim_scan.bimamba_inner(xz, zeros(one), zeros(other), out))
    detached = [t.detach() for t in one]
    detached[4].requires_grad_()
    y = vim_scan.bimamba_inner(xz.detach(), detached, [t.detach() for t in other], out)
    y.square().sum().backward()
    (grad,) = torch.autograd.grad(run(out).square().sum(), one[4])
    assert torch.equal(detached[4].grad, grad)
    half = vim_scan.bimamba_inner(xz.bfloat16(), one, other, out.bfloat16())
    assert half.dtype == torch.bfloat16
    near(half, run(out).detach(), 2e-2)
    weights = [t.detach() for t in (*one, *other)]
    order = [0, 1, 2, 3, 6, 4, 5]
    weights = [weights[7 * way + i] for way in (0, 1) for i in order]
    weights = [(t.t().contiguous() if i % 7 in (2, 3) else t).requires_grad_() for i, t in enumerate(weights)]
    arguments = (xz.detach().transpose(1, 2).contiguous().requires_grad_(), weights, "zoh", "exact")
    assert set(torch.library.opcheck(torch.ops.vim_scan.mixer.default, arguments).values()) == {"SUCCESS"}
    with pytest.raises(ValueError, match="x_proj"):
        vim_scan.bimamba_inner(xz, [*one[:2], one[2][:5], *one[3:]], other, out)
    with pytest.raises(ValueError, match="length 15"):
        torch.ops.vim_scan.mixer(arguments[0], weights[1:], "zoh", "exact")
    with pytest.raises(ValueError, match="`xz` has shape"):
        torch.ops.vim_scan.mixer(arguments[0][0], weights, "zoh", "exact")
    with pytest.raises(ValueError, match="one of zoh, foh"):
        vim_scan.bimamba_inner(xz, one, other, out, discretization="euler")
    assert vim_scan.bimamba_inner(xz, [*one[:4], one[4].abs(), *one[5:]], other, out).isnan().all()


def test_vmamba_s_groups():
    t = {n: of.detach() for n, of in inputs(channels=8, groups=4).items()}
    first = lambda of: of.movedim(1, -1)
    y = SelectiveScan.apply(
        first(t["u"]), first(t["delta"]), t["A"], first(t["B"]), first(t["C"]), t["D"], t["delta_bias"], True
    )
    near(y, first(selective_scan(**{**t, "z": None}, delta_softplus=True)), 1e-7)
    half = SelectiveScan.apply(
        *(first(t[n]).bfloat16() if n != "A" else t[n] for n in NAMES[:5]), t["D"], t["delta_bias"], True
    )
    assert half.dtype == torch.float32
