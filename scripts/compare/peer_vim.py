#!/usr/bin/env python3
"""Time a PyTorch Vision Mamba, and timm's DeiT, to compare `vim-train bench` with.

The Vim is written here, after the published model: patches, a class token in the middle, learned positions,
blocks of add, RMS norm and a bidirectional mixer ("v2", halved), the residual stream in f32. It runs
mamba-ssm's selective_scan_fn, causal-conv1d's kernel and mamba-ssm's fused add + norm where they are
installed; every record says which ran. One line of JSON for each measurement, on stdout.

A training step is forward, cross-entropy with label smoothing, backward, clipping by the global norm, AdamW
(fused) and the moving average of the weights; vim-train reads the loss and the norm of each step besides. One at
inference is a forward pass in evaluation mode. Images are synthetic and already on the GPU. Its kernels are launched
one by one (eager), replayed as a CUDA graph (graph), or compiled by torch.compile(mode="reduce-overhead") (compiled).
bf16 is autocast over f32 weights; f32 is PyTorch's default, in which convolutions, but not products, may
round to TF32; tf32 lets both; the record says what was on. Latency is of steps waited for one by one;
throughput of steps queued one behind the other, divided by the images that they really took; memory is the
peak of what PyTorch's allocator handed out.

Needs Python 3.9 or later, a CUDA GPU, torch, mamba-ssm (for Vim) and timm (for DeiT). There is no fallback
for the scan: another implementation would be another peer.

Examples:
  peer_vim.py --model vim_tiny --mode train --batch 128,512 --dtype bf16
  peer_vim.py --model vim_tiny,deit_tiny --way eager,best --mode infer --image-size 1248 --batch 8 > theirs.jsonl
  peer_vim.py --selftest                       checks this script; on a CPU with a slow scan of its own
"""

import argparse
import gc
import itertools
import json
import math
import pathlib
import statistics
import sys
import time

SIZES = {"vim_tiny": 192, "vim_small": 384}
DEIT = {"deit_tiny": "deit_tiny_patch16_224", "deit_small": "deit_small_patch16_224"}
CLASSES, PATCH, DEPTH, STATES, TAPS, EXPAND, EPS = 1000, 16, 24, 16, 4, 2, 1e-5
# The last stands for all before it.
DTYPES, MODES = ("f32", "tf32", "bf16", "all"), ("infer", "train", "both")
WAYS = ("eager", "graph", "compiled")
INSTALL = "pip install torch timm && pip install --no-build-isolation causal-conv1d mamba-ssm"

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:
    if not {"-h", "--help"} & set(sys.argv):
        sys.exit(f"error: torch is not installed; install it with: {INSTALL}")
    torch = F = nn = None


class Parts:
    """What the mixer and the blocks are computed with, and where each of it comes from."""

    def __init__(self, fused, scan="mamba-ssm"):
        self.scan, self.conv, self.norm = slow_scan, slow_conv, slow_norm
        self.names = {"scan": "torch, token by token", "conv": "torch conv1d", "norm": "torch"}
        self.missing = None
        if not fused:
            return
        try:
            if scan == "vim":
                from vim_scan import selective_scan_fn
            else:
                from mamba_ssm.ops.selective_scan_interface import selective_scan_fn

            self.scan = lambda u, delta, a, b, c, d, z, bias: selective_scan_fn(
                u, delta, a, b, c, D=d, z=z, delta_bias=bias, delta_softplus=True
            )
            self.names["scan"] = f"{'vim_scan' if scan == 'vim' else scan} selective_scan_fn"
        except ImportError as error:
            self.missing = str(error)
        try:
            from causal_conv1d import causal_conv1d_fn

            self.conv = lambda x, weight, bias: causal_conv1d_fn(x, weight.squeeze(1), bias, activation="silu")
            self.names["conv"] = "causal-conv1d"
        except ImportError:
            pass
        try:
            from mamba_ssm.ops.triton.layer_norm import rms_norm_fn

            self.norm = lambda x, residual, weight, prenorm: rms_norm_fn(
                x, weight, None, residual=residual, eps=EPS, prenorm=prenorm, residual_in_fp32=True
            )
            self.names["norm"] = "mamba-ssm rms_norm_fn"
        except ImportError:
            pass


def slow_scan(u, delta, a, b, c, d, z, bias):
    """The selective scan (zoh), one token after the other: for the self-test."""
    kind, length = u.dtype, u.shape[-1]
    u, delta, b, c = u.float(), F.softplus(delta.float() + bias[:, None]), b.float(), c.float()
    state = u.new_zeros(u.shape[0], u.shape[1], a.shape[1])
    outputs = []
    for t in range(length):
        step = delta[:, :, t, None]
        state = torch.exp(step * a) * state + step * b[:, None, :, t] * u[:, :, t, None]
        outputs.append((state * c[:, None, :, t]).sum(-1))
    y = torch.stack(outputs, dim=-1) + u * d[:, None]
    return (y * F.silu(z.float())).to(kind)


def slow_conv(x, weight, bias):
    """Depthwise causal convolution and silu."""
    y = F.conv1d(x, weight, bias, padding=TAPS - 1, groups=weight.shape[0])
    return F.silu(y[..., : x.shape[-1]])


def slow_norm(x, residual, weight, prenorm):
    """Add to the residual stream in f32, and RMS norm."""
    total = x.float() if residual is None else residual + x.float()
    normed = (total * torch.rsqrt(total.square().mean(-1, keepdim=True) + EPS) * weight).to(x.dtype)
    return (normed, total) if prenorm else normed


if nn is not None:

    class Way(nn.Module):
        """The parameters of one direction of a mixer."""

        def __init__(self, inner, rank, zero_bias):
            super().__init__()
            self.A_log = nn.Parameter(torch.arange(1, STATES + 1).float().log().repeat(inner, 1))
            self.D = nn.Parameter(torch.ones(inner))
            self.conv1d = nn.Conv1d(inner, inner, TAPS, groups=inner)
            self.x_proj = nn.Linear(inner, rank + 2 * STATES, bias=False)
            self.dt_proj = nn.Linear(rank, inner)
            delta = torch.exp(torch.empty(inner).uniform_(math.log(1e-3), math.log(0.1))).clamp(min=1e-4)
            bias = torch.zeros(inner) if zero_bias else delta + torch.log(-torch.expm1(-delta))
            self.dt_proj.bias.data.copy_(bias)
            self.rank = rank

        def forward(self, parts, xz):
            """From [B, 2E, L] to [B, E, L]."""
            x, z = xz.chunk(2, dim=1)
            batch, inner, length = x.shape
            x = parts.conv(x, self.conv1d.weight, self.conv1d.bias)
            rows = self.x_proj(x.transpose(1, 2).reshape(batch * length, inner))
            dt, b, c = rows.split([self.rank, STATES, STATES], dim=1)
            # Channels first, as the scan wants them, straight out of the product.
            delta = (self.dt_proj.weight @ dt.t()).view(inner, batch, length).transpose(0, 1)
            b, c = (part.view(batch, length, STATES).transpose(1, 2).contiguous() for part in (b, c))
            bias = self.dt_proj.bias.float()
            return parts.scan(x, delta, -torch.exp(self.A_log.float()), b, c, self.D.float(), z, bias)

    class Mixer(nn.Module):
        """Both ways between one projection in and one out."""

        def __init__(self, width, depth):
            super().__init__()
            inner, rank = EXPAND * width, math.ceil(width / 16)
            self.in_proj = nn.Linear(width, 2 * inner, bias=False)
            # The reverse direction starts with a bias of zero, as the published model's does.
            self.forth, self.back = Way(inner, rank, False), Way(inner, rank, True)
            self.out_proj = nn.Linear(inner, width, bias=False)
            self.out_proj.weight.data /= math.sqrt(depth)

        def forward(self, parts, hidden):
            batch, length, width = hidden.shape
            rows = self.in_proj.weight @ hidden.reshape(batch * length, width).t()
            xz = rows.view(-1, batch, length).transpose(0, 1)
            y = self.forth(parts, xz) + self.back(parts, xz.flip(-1)).flip(-1)
            return self.out_proj((y / 2).transpose(1, 2))

    class Block(nn.Module):
        """Add, norm, mixer."""

        def __init__(self, width, depth):
            super().__init__()
            self.norm = nn.Parameter(torch.ones(width))
            self.mixer = Mixer(width, depth)

        def forward(self, parts, hidden, residual):
            normed, residual = parts.norm(hidden, residual, self.norm, True)
            return self.mixer(parts, normed), residual

    class Vim(nn.Module):
        """Vision Mamba with a class token in the middle."""

        def __init__(self, parts, width, image_size, depth=DEPTH, classes=CLASSES, drop_path=0.0):
            super().__init__()
            self.parts, self.patches = parts, (image_size // PATCH) ** 2
            self.patch_embed = nn.Conv2d(3, width, PATCH, PATCH)
            self.cls_token = nn.Parameter(torch.empty(1, 1, width))
            self.pos_embed = nn.Parameter(torch.empty(1, self.patches + 1, width))
            self.layers = nn.ModuleList(Block(width, depth) for _ in range(depth))
            self.norm_f = nn.Parameter(torch.ones(width))
            self.head = nn.Linear(width, classes)
            # A block's output is dropped with a rate that grows with depth.
            self.drops = [drop_path * i / max(depth - 1, 1) for i in range(depth)]
            nn.init.trunc_normal_(self.patch_embed.weight, std=(3 * PATCH**2) ** -0.5)
            for weight in (self.cls_token, self.pos_embed, self.head.weight):
                nn.init.trunc_normal_(weight, std=0.02)
            for bias in (self.patch_embed.bias, self.head.bias):
                nn.init.zeros_(bias)

        def drop(self, hidden, rate):
            """Stochastic depth, per image."""
            if rate == 0.0 or not self.training:
                return hidden
            keep = torch.rand(hidden.shape[0], 1, 1, device=hidden.device) >= rate
            return hidden * (keep / (1 - rate)).to(hidden.dtype)

        def forward(self, images):
            x = self.patch_embed(images).flatten(2).transpose(1, 2)
            middle = self.patches // 2
            token = self.cls_token.to(x.dtype).expand(x.shape[0], -1, -1)
            hidden = torch.cat((x[:, :middle], token, x[:, middle:]), dim=1) + self.pos_embed
            residual = None
            for layer, rate in zip(self.layers, self.drops):
                hidden, residual = layer(self.parts, hidden, residual)
                hidden = self.drop(hidden, rate)
            hidden = self.parts.norm(hidden, residual, self.norm_f, False)
            return self.head(hidden[:, middle])


def make(name, image_size, parts, drop_path):
    """A model by its name."""
    torch.manual_seed(0)
    if name in SIZES:
        return Vim(parts, SIZES[name], image_size, drop_path=drop_path)
    try:
        import timm
    except ImportError:
        sys.exit(f"error: timm is not installed, and {name} comes from there; install it with: {INSTALL}")
    return timm.create_model(DEIT[name], img_size=image_size, num_classes=CLASSES, drop_path_rate=drop_path)


def groups(model, decay):
    """Parameters that decay, and those that do not: positions, class token, biases and other vectors."""
    # DDP and torch.compile put a name before.
    named = [(n.removeprefix("module.").removeprefix("_orig_mod."), p) for n, p in model.named_parameters()]
    plain = [p for n, p in named if p.ndim == 1 or n in ("pos_embed", "cls_token")]
    chosen = {id(p) for p in plain}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    return [{"params": rest, "weight_decay": decay}, {"params": plain, "weight_decay": 0.0}]


def captured(step):
    """The step as a CUDA graph, whose replay costs the host one launch."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):  # what is made at a first step must be there before the capture
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()

    def replay():
        graph.replay()
        return result

    return replay


def step_of(model, mode, images, labels, dtype, args, way="eager"):
    """A function that takes one step in one of WAYS; it waits for nothing."""
    if way == "graph":
        return captured(one_step(model, mode, images, labels, dtype, args, capturable=True))
    if way == "eager":
        return one_step(model, mode, images, labels, dtype, args)
    # Shapes of an earlier measurement must not make those of this one dynamic.
    torch._dynamo.reset()
    model = torch.compile(model, mode="reduce-overhead", dynamic=False)
    step = one_step(model, mode, images, labels, dtype, args)

    def compiled():
        torch.compiler.cudagraph_mark_step_begin()
        return step()

    return compiled


def one_step(model, mode, images, labels, dtype, args, capturable=False):
    """A function that takes one step by launching its kernels."""
    kind = images.device.type
    amp = {"device_type": kind, "dtype": torch.bfloat16, "enabled": dtype == "bf16"}
    if mode == "infer":
        model.eval()

        def infer():
            with torch.inference_mode(), torch.autocast(**amp):
                return model(images)

        return infer
    model.train()
    optimizer = torch.optim.AdamW(groups(model, 0.1), lr=args.lr, fused=kind == "cuda", capturable=capturable)
    weights = [p.detach() for p in model.parameters()]
    average = [p.clone() for p in weights] if args.ema else None

    def train():
        with torch.autocast(**amp):
            loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        if average:
            torch._foreach_lerp_(average, weights, 1 - args.ema)
        return loss.detach()

    return train


def quantile(values, share):
    """The value below which a share of the values lies, between two of them by their distance."""
    values = sorted(values)
    at = share * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def clock(step, batch, warmup, steps, wait):
    """Times of a step, as `vim-train bench` has them."""
    for _ in range(warmup):
        step()
    wait()
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        wait()
        times.append((time.perf_counter() - start) * 1e3)
    start = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    seconds = time.perf_counter() - start
    return {
        "latency": {
            "median_ms": quantile(times, 0.5),
            "p10_ms": quantile(times, 0.1),
            "p90_ms": quantile(times, 0.9),
            "mean_ms": statistics.fmean(times),
            "std_ms": statistics.stdev(times) if len(times) > 1 else 0.0,
            "min_ms": min(times),
            "max_ms": max(times),
        },
        "throughput": {"img_s": batch * steps / seconds, "images": batch * steps, "seconds": seconds},
    }


def measured(dtype, run, way="eager"):
    """The record that `run` fills. One that does not fit the GPU's memory, or whose step cannot be recorded or
    compiled, has an `error` in place of its times."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    record = {}
    try:
        run(record)
    except torch.cuda.OutOfMemoryError as error:
        record["error"] = f"out of memory: {str(error).splitlines()[0]}"
    except RuntimeError as error:  # of a capture, and of the compiler
        if way == "eager":
            raise
        record["error"] = f"{way}: {(str(error).splitlines() or ['no message'])[0]}"
    record["tf32"] = {"matmul": torch.backends.cuda.matmul.allow_tf32, "conv": torch.backends.cudnn.allow_tf32}
    record["peak_memory_bytes"] = torch.cuda.max_memory_allocated()
    record["reserved_memory_bytes"] = torch.cuda.max_memory_reserved()
    return record


def measure(name, mode, image_size, batch, dtype, parts, args, way="eager"):
    """One measurement."""

    def run(record):
        model = make(name, image_size, parts, args.drop_path).cuda()
        record["params"] = sum(p.numel() for p in model.parameters())
        images = torch.randn(batch, 3, image_size, image_size, device="cuda")
        labels = torch.randint(CLASSES, (batch,), device="cuda")
        step = step_of(model, mode, images, labels, dtype, args, way)
        record.update(clock(step, batch, args.warmup, args.steps, torch.cuda.synchronize))
        if not bool(torch.isfinite(step()).all()):
            record["error"] = "a result is not finite"

    return measured(dtype, run, way)


def version(package):
    """The installed version of a package, or None."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def environment(parts):
    """What the measurements were made with."""
    packages = ("torch", "triton", "mamba-ssm", "vim_scan", "causal-conv1d", "timm")
    return {
        "hardware": torch.cuda.get_device_name(),
        "versions": {**{name: version(name) for name in packages}, "cuda": torch.version.cuda},
        "parts": parts.names,
    }


def own_name(key):
    """What a parameter of the published model is called here."""
    key = key.replace("patch_embed.proj.", "patch_embed.").replace("norm.weight", "norm")
    layer, mixer, name = key.partition(".mixer.")
    if key == "norm_f.weight":
        return "norm_f"
    if not mixer or name.startswith(("in_proj", "out_proj")):
        return key
    head, dot, tail = name.partition(".")
    if head == "A_b_log":
        return f"{layer}{mixer}back.A_log"
    way, head = ("back", head[:-2]) if head.endswith("_b") else ("forth", head)
    return f"{layer}{mixer}{way}.{head}{dot}{tail}"


def check_published(folder):
    """Logits, loss and gradients are those of the published model's own program, on arrays that it computed."""
    import numpy

    weights = torch.load(folder / "a_mid.pth", weights_only=True)["model"]
    arrays = numpy.load(folder / "a_mid.npz")
    model = Vim(Parts(fused=False), 64, 64, depth=4, classes=10).eval()
    model.load_state_dict({own_name(key): value for key, value in weights.items()})
    logits = model(torch.from_numpy(arrays["x"]))
    F.cross_entropy(logits, torch.from_numpy(arrays["y"])).backward()
    named = dict(model.named_parameters())
    pairs = [("logits", logits.detach(), arrays["logits"], 1e-5)]
    pairs += [(key, named[own_name(key)].grad, arrays[f"g.{key}"], 5e-5) for key in weights]
    for name, got, want, tolerance in pairs:
        want = torch.from_numpy(want)
        error = ((got - want).abs().max() / want.abs().max()).item()
        assert error < tolerance, f"{name} is off by {error:.1e}"


def selftest():
    """Check the model: on a CPU, and the fused parts against the slow ones where there is a GPU."""
    args = argparse.Namespace(lr=1e-2, clip=1.0, ema=0.9)
    torch.backends.cudnn.allow_tf32 = False  # a comparison of parts, not of types
    slow = Parts(fused=False)

    # The scan of a constant with a decay of one half: y_t = sum of 2^-k, with D, z and the bias.
    length, log2 = 5, math.log(2)
    ones = torch.ones(1, 1, length)
    large = math.log(math.expm1(1.0))  # softplus of it is 1
    a, d = torch.tensor([[-log2]]), torch.zeros(1)
    y = slow_scan(ones, 0 * ones, a, ones, ones, d, 0 * ones + 50.0, torch.tensor([large])) / 50
    assert torch.allclose(y[0, 0], torch.tensor([1, 1.5, 1.75, 1.875, 1.9375])), y
    y = slow_scan(ones, 0 * ones, a, 0 * ones, ones, d + 3, ones, torch.tensor([large]))
    assert torch.allclose(y[0, 0], torch.full((5,), 3 / (1 + math.exp(-1)))), y

    # A convolution sees no later token; add + norm has mean square 1.
    weight, bias = torch.randn(6, 1, TAPS), torch.randn(6)
    x = torch.randn(2, 6, 9)
    later = x.clone()
    later[:, :, 5:] = 0
    assert torch.equal(slow_conv(x, weight, bias)[..., :5], slow_conv(later, weight, bias)[..., :5])
    normed, total = slow_norm(x, x, torch.ones(9), True)
    assert torch.allclose(total, 2 * x) and torch.allclose(normed.square().mean(-1), torch.ones(2, 6), atol=1e-3)

    # With the same parameters for both ways, a mixer does not mind a reversed sequence.
    torch.manual_seed(0)
    mixer = Mixer(32, 1)
    tokens = torch.randn(2, 7, 32)
    assert not torch.allclose(mixer(slow, tokens.flip(1)).flip(1), mixer(slow, tokens), atol=1e-5)
    mixer.back.load_state_dict(mixer.forth.state_dict())
    assert torch.allclose(mixer(slow, tokens.flip(1)).flip(1), mixer(slow, tokens), atol=1e-5)

    # Sizes, and the number of parameters of the published models.
    for name, parameters in (("vim_tiny", 7_148_008), ("vim_small", 25_796_584)):
        model = make(name, 224, slow, 0.0)
        counted = sum(p.numel() for p in model.parameters())
        assert counted == parameters, f"{name} has {counted} parameters, not {parameters}"
    decays, plain = groups(model, 0.1)
    assert model.layers[0].mixer.forth.A_log.ndim == 2 and len(decays["params"]) + len(plain["params"]) == len(
        list(model.parameters())
    )
    assert any(p is model.pos_embed for p in plain["params"]) and any(p is model.head.weight for p in decays["params"])

    # Both modes and both types of a small one; training learns the batch.
    images, labels = torch.randn(4, 3, 64, 64), torch.tensor([0, 1, 2, 3])
    for dtype in ("f32", "bf16"):
        torch.manual_seed(0)
        model = Vim(slow, 32, 64, depth=2, classes=10, drop_path=0.0)
        logits = step_of(model, "infer", images, labels, dtype, args)()
        assert logits.shape == (4, 10) and logits.isfinite().all(), logits
        train = step_of(model, "train", images, labels, dtype, args)
        losses = [train().item() for _ in range(20)]
        assert losses[-1] < losses[0] / 2, losses
    assert ways_of("vim_tiny", ["eager", "best", "graph"]) == ["eager", "graph"]
    assert ways_of("deit_tiny", ["best"]) == ["compiled"]
    times = clock(lambda: None, 4, 1, 3, lambda: None)
    assert times["throughput"]["images"] == 12 and times["latency"]["min_ms"] <= times["latency"]["median_ms"], times
    tested = ["vim"]
    fixtures = pathlib.Path(__file__).resolve().parents[2] / "crates/vim-model/tests/fixtures"
    if (fixtures / "a_mid.npz").is_file():
        check_published(fixtures)
        tested.append("the published model's arrays")

    if version("timm"):
        counted = sum(p.numel() for p in make("deit_tiny", 224, slow, 0.0).parameters())
        assert counted == 5_717_416, counted
        tested.append("deit")
    fused = Parts(fused=True)
    if torch.cuda.is_available() and not fused.missing:
        torch.manual_seed(0)
        model = Vim(slow, 192, 64, depth=4).cuda()
        images = torch.randn(4, 3, 64, 64, device="cuda")
        results = []
        for parts in (slow, fused):
            model.parts = parts
            model.zero_grad()
            logits = model(images)
            logits.square().sum().backward()
            gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
            results.append((logits.detach(), gradient))
        for one, two in zip(*results):
            error = ((one - two).norm() / one.norm()).item()
            assert error < 1e-2, f"fused and slow parts differ by {error:.2e}"
        tested.append("fused parts")
        # A graph's capture takes three steps first.
        labels, losses = labels.cuda(), []
        for way, taken in (("eager", 6), ("graph", 3)):
            torch.manual_seed(0)
            step = step_of(Vim(fused, 192, 64, depth=4).cuda(), "train", images, labels, "f32", args, way)
            losses.append([step().item() for _ in range(taken)][-1])
        assert abs(losses[0] - losses[1]) < 1e-2 * abs(losses[0]), losses
        tested.append("a step as a graph")
    print(f"peer_vim: ok ({', '.join(tested)})")


def listed(kind):
    """A comma-separated list of something."""
    return lambda text: [kind(part) for part in text.split(",")]


def one_of(names):
    """One of these names."""

    def name(text):
        if text not in names:
            raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(names)}")
        return text

    return name


def count(text):
    """A number from 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return number


def side(text):
    """A side of an image, of whole patches."""
    number = count(text)
    if number % PATCH:
        raise argparse.ArgumentTypeError(f"{text} px are not a multiple of {PATCH}")
    return number


def command_line(doc, models, modes, batch):
    """What the command lines of the peers have in common."""
    summary, rest = doc.split("\n\n", 1)
    parser = argparse.ArgumentParser(
        description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ", ".join(models)
    parser.add_argument("--model", type=listed(one_of(models)), default=["vim_tiny"], metavar="A,B", help=names)
    parser.add_argument("--mode", choices=modes, default=modes[-1], help=modes[-1])
    parser.add_argument("--batch", type=listed(count), default=[batch], metavar="N,M", help=f"images a step; {batch}")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16", help="bf16")
    parser.add_argument("--warmup", type=count, default=10, metavar="N", help="steps before the clock starts; 10")
    parser.add_argument("--steps", type=count, default=30, metavar="N", help="steps timed; 30")
    parser.add_argument("--lr", type=float, default=1e-4, metavar="X", help="learning rate; 1e-4")
    parser.add_argument("--device", type=int, default=0, metavar="N", help="number of the CUDA GPU; 0")
    scan = "mamba-ssm, or vim: vim_scan's function of the same signature, which no CUDA graph can record; mamba-ssm"
    parser.add_argument("--scan", choices=("mamba-ssm", "vim"), default="mamba-ssm", help=scan)
    parser.add_argument("--selftest", action="store_true", help="check this script and end")
    return parser


def parser():
    """The command line."""
    parser = command_line(__doc__, (*SIZES, *DEIT), MODES, 128)
    parser.add_argument("--image-size", type=listed(side), default=[224], metavar="N,M", help="px a side; 224")
    parser.add_argument("--drop-path", type=float, default=0.0, metavar="P", help="stochastic depth; 0")
    parser.add_argument("--clip", type=float, default=1.0, metavar="X", help="largest norm of the gradient; 1")
    ema = "decay of the weights' moving average; 0.99996, 0 for none"
    parser.add_argument("--ema", type=float, default=0.99996, metavar="X", help=ema)
    ways = "eager, graph (the step as one CUDA graph), compiled (torch.compile, reduce-overhead), best; eager"
    parser.add_argument("--way", type=listed(one_of((*WAYS, "best"))), default=["eager"], metavar="A,B", help=ways)
    return parser


def ways_of(name, asked):
    """The ways to take the steps of a model. The best one captures Vim, whose scan no compiler sees into, and
    compiles DeiT."""
    best = "graph" if name in SIZES else "compiled"
    return list(dict.fromkeys(best if way == "best" else way for way in asked))


def on_gpu(args):
    """The fused parts on the GPU that is asked for; what is missing ends the program."""
    if not torch.cuda.is_available():
        sys.exit("error: torch finds no CUDA GPU; --selftest is what runs without one")
    parts = Parts(fused=True, scan=args.scan)
    if parts.missing and any(name in SIZES for name in args.model):
        sys.exit(f"error: the scan cannot be imported ({parts.missing}); install mamba-ssm's with: {INSTALL}")
    torch.cuda.set_device(args.device)
    return parts


def chosen(one, names):
    """All of the names if the last is chosen."""
    return names[:-1] if one == names[-1] else (one,)


def say(args, what, record, around):
    """Print a measurement of `what`."""
    gc.collect()
    print(json.dumps({**what, "warmup": args.warmup, "steps": args.steps, **record, **around}), flush=True)


def main():
    """Measure what is asked for."""
    args = parser().parse_args()
    if args.selftest:
        selftest()
        return
    parts = on_gpu(args)
    around = environment(parts)
    for name in args.model:
        for image_size in args.image_size:
            for dtype in chosen(args.dtype, DTYPES):
                for mode in chosen(args.mode, MODES):
                    for batch, way in itertools.product(args.batch, ways_of(name, args.way)):
                        what = {
                            "peer": "pytorch-vim" if name in SIZES else "timm",
                            "model": name,
                            "way": way,
                            "mode": mode,
                            "image_size": image_size,
                            "batch": batch,
                            "dtype": dtype,
                        }
                        say(args, what, measure(name, mode, image_size, batch, dtype, parts, args, way), around)


if __name__ == "__main__":
    main()
