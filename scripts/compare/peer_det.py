#!/usr/bin/env python3
"""Time Cascade Mask R-CNN on a PyTorch Vision Mamba, to compare detection in `vim-train bench` with.

The blocks are those of peer_vim.py: mamba-ssm's selective_scan_fn, causal-conv1d's kernel and mamba-ssm's fused add +
norm, between rotary positions of tokens and of the residual stream, without class token or head. Pyramid, proposals,
cascade and masks are those of torch_detector.py, whose results are the published detector's; their maps are
channels-last, boxes are read and suppressed by torchvision. Without torchvision this program's own operations do so,
which compute the same: every record says what ran, and so does a line on stderr.

A training step is forward, the nine losses (256 anchors and 512 boxes of an image, drawn at random; masks read from
bitmaps on the GPU), backward and AdamW (fused). `infer` goes on to at most 100 boxes, classes and masks of an image.
Weights are random: `boxes` in a record says how many there were. An untrained model finds nothing; --spread scales the
last layers first, so that it finds as much as it may. Images and their nine truths are those of `vim-train bench`,
synthetic and already on the GPU. bf16 is autocast over f32 weights; --half-norms lets the layer norms of pyramid and
heads put out bf16, which autocast does not. One line of JSON for each measurement, on stdout, with the fields of
peer_vim.py, and `first_step_s`.

Needs Python 3.9 or later, a CUDA GPU, torch, mamba-ssm and, to be the peer that it is meant to be, torchvision.

Examples:
  peer_det.py --mode train --batch 2
  peer_det.py --mode all --dtype bf16 --half-norms > theirs.jsonl
  peer_det.py --mode infer --spread
  peer_det.py --tiny                 both modes of a tiny model on a CPU with a slow scan: no measurement
  peer_det.py --selftest             checks this script; on a CPU with a slow scan of its own
"""

import argparse
import json
import sys
import time

import peer_vim
from peer_vim import DEPTH, INSTALL, PATCH, SIZES, Parts, clock, side

try:
    import torch
    import torch.nn.functional as F
    from torch import nn

    import torch_boxes as ops
    import torch_detector
    from torch_detector import Detector
    from torch_segmenter import turns
except ImportError as error:
    if not {"-h", "--help"} & set(sys.argv):
        sys.exit(f"error: {error}; install it with: {INSTALL} torchvision numpy")
    torch = F = nn = None

CLASSES, GRID = 80, 3
MODES = ("train", "infer", "all")
# The published settings: the keys of the section [detection].
HEADS = {
    "channels": 256,
    "box_features": 1024,
    "anchor_size": 8.0,
    "anchor_samples": 256,
    "proposals_per_level": 2000,
    "proposals": 1000,
    "test_proposals_per_level": 1000,
    "test_proposals": 1000,
    "box_samples": 512,
    "score_threshold": 0.05,
    "nms_threshold": 0.5,
    "detections": 100,
}
# Of --tiny and --selftest.
SMALL = {**HEADS, "channels": 16, "box_features": 24, "anchor_size": 2.0, "anchor_samples": 32, "proposals": 40}
SMALL |= {"proposals_per_level": 60, "test_proposals_per_level": 60, "test_proposals": 40, "box_samples": 32}


if nn is not None:

    class Net(nn.Module):
        """Vim without class token or head: the last block's output with the residual stream, as a map."""

        def __init__(self, parts, width, image_size, depth=DEPTH, drop_path=0.1):
            super().__init__()
            self.parts, self.grid = parts, image_size // PATCH
            self.patch_embed = nn.Conv2d(3, width, PATCH, PATCH)
            self.pos_embed = nn.Parameter(torch.zeros(1, self.grid**2, width))
            nn.init.trunc_normal_(self.pos_embed, std=0.02)
            self.layers = nn.ModuleList(peer_vim.Block(width, depth) for _ in range(depth))
            self.drops = [drop_path * i / max(depth - 1, 1) for i in range(depth)]
            angles = turns(self.grid, width)[:, ::2]
            self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles), persistent=False)

        def turned(self, x):
            """Pairs of channels as complex numbers, turned by one product."""
            pairs = torch.view_as_complex(x.float().contiguous().unflatten(-1, (-1, 2)))
            return torch.view_as_real(pairs * self.turns).flatten(-2).to(x.dtype)

        def forward(self, images):
            batch = images.shape[0]
            hidden = self.patch_embed(images).flatten(2).transpose(1, 2) + self.pos_embed
            residual = None
            for layer, rate in zip(self.layers, self.drops):
                if self.training and rate > 0:
                    keep = torch.rand(batch, 1, 1, device=hidden.device) >= rate
                    hidden = hidden * (keep / (1 - rate)).to(hidden.dtype)
                hidden = self.turned(hidden)
                residual = residual if residual is None else self.turned(residual)
                hidden, residual = layer(self.parts, hidden, residual)
            tokens = hidden.float() + residual
            return tokens.transpose(1, 2).reshape(batch, -1, self.grid, self.grid)


def half_norm(self, x):
    """A channel norm of bf16 that puts out bf16: statistics are f32 inside of the kernel all the same."""
    x = x.permute(0, 2, 3, 1)
    with torch.autocast(x.device.type, enabled=False):
        weight, bias = self.weight.to(x.dtype), self.bias.to(x.dtype)
        return F.layer_norm(x, weight.shape, weight, bias, 1e-6).permute(0, 3, 1, 2)


def make(parts, width, image_size, heads, classes=CLASSES, **rest):
    """A detector with the weights of seed 0."""
    torch.manual_seed(0)
    return Detector(Net(parts, width, image_size, **rest), width, PATCH, heads, classes)


def truths_of(image_size, classes, batch, device):
    """The truths of `vim-train bench`: a square in the middle of each cell of a grid over the image, a half, a quarter
    and an eighth of its side in turn, of every class in turn. Of each image boxes, classes, and what gives masks."""
    cell, places = image_size / GRID, torch.arange(image_size) + 0.5
    at = torch.arange(GRID * GRID)
    centres = (torch.stack([at % GRID, at // GRID], 1) + 0.5) * cell
    half = (cell / torch.tensor([4.0, 8.0, 16.0])[at % 3])[:, None]
    boxes = torch.cat([centres - half, centres + half], 1)
    inside = [(places > boxes[:, axis, None]) & (places < boxes[:, axis + 2, None]) for axis in (0, 1)]
    bitmaps = (inside[0][:, None] & inside[1][:, :, None]).float().to(device)
    masks = lambda at, own: ops.bitmap_targets(bitmaps, at, own, 28)
    return [(boxes.to(device), (at % classes).to(device), masks)] * batch


def groups(model, decay):
    """All decays but the positions, as the recipe has it."""
    plain = model.backbone.net.pos_embed
    rest = [p for p in model.parameters() if p is not plain]
    return [{"params": rest, "weight_decay": decay}, {"params": [plain], "weight_decay": 0.0}]


def step_of(model, mode, batch, dtype, args, device):
    """A function that takes one step and waits for nothing that it need not, and the numbers of boxes of the last."""
    amp = {"device_type": torch.device(device).type, "dtype": torch.bfloat16, "enabled": dtype == "bf16"}
    size, seen = args.image_size, {}
    images = torch.randn(batch, 3, size, size, device=device)
    sizes = [(size, size)] * batch
    if mode == "train":
        model.train()
        truths = truths_of(size, model.classes, batch, device)
        optimizer = torch.optim.AdamW(groups(model, 0.1), lr=args.lr, fused=amp["device_type"] == "cuda")

        def train():
            with torch.autocast(**amp):
                losses, passed = model.losses(images, sizes, truths)
                loss = sum(losses.values())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            stages = [sum(len(own) for own, *_ in stage["targets"]) for stage in passed["stages"]]
            proposals = [len(own) for own, _ in passed["proposals"]]
            seen.update(truths=GRID * GRID, proposals=proposals, stages=stages, masks=len(passed["masks"][0]))
            return loss.detach()

        return train, seen
    model.eval()
    if args.spread:
        model.spread(images, sizes)

    def infer():
        with torch.no_grad(), torch.autocast(**amp):
            found, proposals = model.detect(images, sizes)
        seen.update(proposals=[len(own) for own, _ in proposals], detections=[len(own) for own, *_ in found])
        return torch.cat([scores for _, scores, *_ in found])

    return infer, seen


def run(model, mode, batch, dtype, args, device):
    """The fields of a measurement."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    step, seen = step_of(model, mode, batch, dtype, args, device)
    start = time.perf_counter()
    finite = bool(torch.isfinite(step()).all())
    wait()
    record = {"first_step_s": time.perf_counter() - start}
    record.update(clock(step, batch, args.warmup, args.steps, wait))
    record["boxes"] = seen
    if not (finite and bool(torch.isfinite(step()).all())):
        record["error"] = "a loss or a score is not finite"
    return record


def measure(name, mode, batch, dtype, parts, args):
    """One measurement."""

    def fill(record):
        torch.backends.cudnn.benchmark = not args.no_search
        model = make(parts, SIZES[name], args.image_size, HEADS).cuda().to(memory_format=torch.channels_last)
        record["params"] = sum(p.numel() for p in model.parameters())
        record.update(run(model, mode, batch, dtype, args, "cuda"))

    return peer_vim.measured(dtype, fill)


def check_net():
    """The backbone's map is that of torch_segmenter.py's blocks with the same weights."""
    import torch_segmenter
    from check_export import direction

    section = {"d_model": 32, "patch_size": PATCH, "image_size": 64, "rope": "both", "dt_rank": "auto"}
    plain = torch_detector.Net({**section, "expand": 2, "d_state": 16, "d_conv": 4, "depth": 3}, direction).eval()
    for name, parameter in plain.named_parameters():
        nn.init.normal_(parameter, std=0.3 if parameter.ndim > 1 else 0.1)
    own = Net(Parts(fused=False), 32, 64, depth=3).eval()
    state = {peer_vim.own_name(key): value for key, value in plain.state_dict().items() if not key.startswith("rope")}
    own.load_state_dict(state)
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        one, two = plain(images), own(images)
    error = ((one - two).abs().max() / one.abs().max()).item()
    assert error < 1e-5, f"the backbone's map is off by {error:.1e}"
    assert isinstance(plain, torch_segmenter.Net)


def check_operations():
    """This program's own operations against torchvision's, where that is installed."""
    if ops.nms is ops.own_nms:
        return False
    torch.manual_seed(0)
    corners = torch.rand(300, 2) * 60
    boxes = torch.cat([corners, corners + torch.rand(300, 2) * 40 * torch.rand(300, 1)], 1)
    scores = torch.rand(300)
    for threshold in (0.3, 0.7):
        assert torch.equal(ops.nms(boxes, scores, threshold), ops.own_nms(boxes, scores, threshold))
    rois = torch.cat([torch.randint(2, (300, 1)).float(), boxes - 5], 1)
    results = []
    for read in (ops.roi_align, ops.own_roi_align):
        x = torch.randn(2, 5, 20, 24, generator=torch.Generator().manual_seed(2)).requires_grad_()
        found = read(x, rois, 7, 0.25, sampling_ratio=0, aligned=True)
        found.square().sum().backward()
        results.append((found.detach(), x.grad))
    for one, two in zip(*results):
        error = ((one - two).abs().max() / one.abs().max()).item()
        assert error < 1e-5, f"boxes are read differently by {error:.1e}"
    return True


def selftest():
    """Check the model on a CPU: sizes, operations, the backbone, and that training learns a batch."""
    parts, tested = Parts(fused=False), ["parameters", "backbone", "training", "detections"]
    for name, parameters in (("vim_tiny", 60_080_078), ("vim_small", 79_918_142)):
        counted = sum(p.numel() for p in make(parts, SIZES[name], 1024, HEADS).parameters())
        assert counted == parameters, f"{name} has {counted} parameters"
    if check_operations():
        tested.append("operations without torchvision")
    check_net()
    args = argparse.Namespace(lr=2e-3, image_size=64, spread=True)
    for dtype in ("f32", "bf16"):
        model = make(parts, 32, 64, SMALL, classes=5, depth=2, drop_path=0.0)
        torch.manual_seed(0)
        step, seen = step_of(model, "train", 2, dtype, args, "cpu")
        losses = [step().item() for _ in range(12)]
        assert sum(losses[-3:]) < 0.9 * sum(losses[:3]), losses
        assert seen["stages"][0] <= 64 and seen["masks"] >= 8, seen
        step, seen = step_of(model, "infer", 2, dtype, args, "cpu")
        scores = step()
        assert scores.isfinite().all() and 0 < len(scores) == sum(seen["detections"]) <= 200, seen
    # Images without truths have no boxes to refine and no masks.
    truths = [(torch.zeros(0, 4), torch.zeros(0, dtype=torch.long), None)] * 2
    losses, _ = model.losses(torch.randn(2, 3, 64, 64), [(64, 64)] * 2, truths)
    nothing = [value.item() for name, value in losses.items() if "loc" in name or "reg" in name or "mask" in name]
    assert nothing == [0.0] * 5, losses
    sum(losses.values()).backward()
    print(f"peer_det: ok ({', '.join(tested)})")


def tiny(args):
    """Both modes of a tiny model on the CPU, and their records: whether this script runs, and nothing else."""
    args.image_size, args.warmup, args.steps = 64, 1, 2
    for mode in ("train", "infer"):
        model = make(Parts(fused=False), 32, 64, SMALL, classes=5, depth=2).to(memory_format=torch.channels_last)
        dtype = "f32" if args.dtype == "all" else args.dtype
        record = {"peer": "pytorch-vim-cascade", "tiny": True, "mode": mode, "dtype": dtype, "hardware": "cpu"}
        record.update(run(model, mode, 2, dtype, args, "cpu"), operations=ops.OPERATIONS)
        print(json.dumps(record), flush=True)


def parser():
    """The command line."""
    parser = peer_vim.command_line(__doc__, SIZES, MODES, 2)
    parser.add_argument("--image-size", type=side, default=1024, metavar="N", help="px a side; 1024")
    parser.add_argument("--spread", action="store_true", help="spread the scores of infer, so that it finds something")
    parser.add_argument("--half-norms", action="store_true", help="layer norms of pyramid and heads put out bf16")
    search = "take cuDNN's guess of the best convolution, and search for none at each new number of masks"
    parser.add_argument("--no-search", action="store_true", help=search)
    parser.add_argument("--tiny", action="store_true", help="a tiny model on the CPU: no measurement")
    return parser


def main():
    """Measure what is asked for."""
    args = parser().parse_args()
    if args.selftest:
        selftest()
        return
    if ops.nms is ops.own_nms:
        print(f"warning: {ops.OPERATIONS['nms']}: boxes are read and suppressed by torch_boxes.py", file=sys.stderr)
    if args.half_norms:
        torch_detector.ChannelNorm.forward = half_norm
    if args.tiny:
        tiny(args)
        return
    parts = peer_vim.on_gpu(args)
    around = peer_vim.environment(parts)
    around["parts"] = {**around["parts"], **ops.OPERATIONS}
    for name in args.model:
        for dtype in peer_vim.chosen(args.dtype, peer_vim.DTYPES):
            for mode in peer_vim.chosen(args.mode, MODES):
                for batch in args.batch:
                    what = {
                        "peer": "pytorch-vim-cascade",
                        "model": name,
                        "mode": mode,
                        "image_size": args.image_size,
                        "batch": batch,
                        "dtype": dtype,
                        "half_norms": args.half_norms,
                        "search": not args.no_search,
                        "spread": mode == "infer" and args.spread,
                    }
                    peer_vim.say(args, what, measure(name, mode, batch, dtype, parts, args), around)


if __name__ == "__main__":
    main()
