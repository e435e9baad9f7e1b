#!/usr/bin/env python3
"""Time UperNet on a PyTorch Vision Mamba, to compare semantic segmentation with `vim-train`.

The Vim's blocks are those of peer_vim.py, which must lie beside this file: mamba-ssm's scan, causal-conv1d and
fused norm where they are installed; every record says which ran. The rest is written here after the published
recipe: patches and positions without a class token, the results of blocks 6, 12, 18 and 24 as a pyramid of
strides 4 to 32, UperNet (pooling 1, 2, 3, 6) and an auxiliary head on stride 16, both with batch norm, bilinear
logits, cross-entropy that ignores 255, weighted 1 and 0.4. Convolutions run channels last, under cuDNN's search.
vim_small is the same, wider; the published one turns positions in every block and reads the residual stream.

A training step is forward, both losses, backward and AdamW (fused), without clipping. `infer` is one crop in
evaluation mode to the argmax at its size; `slide` a picture of --picture by windows of the crop with a stride
of two thirds (341 of 512), logits averaged, resized to the picture, argmax. Images are synthetic and already on
the GPU. bf16 is autocast over f32 weights. One line of JSON for each measurement, on stdout, with the fields of
peer_vim.py: latency of steps waited for one by one, throughput of steps queued, the peak of the allocator.

Needs Python 3.9 or later, a CUDA GPU, torch and mamba-ssm.

Examples:
  peer_seg.py --mode train --batch 8
  peer_seg.py --mode all --dtype bf16 > theirs.jsonl
  peer_seg.py --selftest                       checks this script; on a CPU with a slow scan of its own
"""

import argparse
import sys

import peer_vim
from peer_vim import DEPTH, PATCH, SIZES, Parts, clock, count, side

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:
    torch = F = nn = None

CLASSES, IGNORED, AUXILIARY, AUXILIARY_WEIGHT = 150, 255, 256, 0.4
TAPPED = (5, 11, 17, 23)
POOLED = (1, 2, 3, 6)
MODES = ("train", "infer", "slide", "all")


if nn is not None:

    def resized(x, size):
        """Bilinear, as every resize of the heads is."""
        return F.interpolate(x, size=size, mode="bilinear", align_corners=False)

    def unit(inputs, outputs, kernel):
        """Convolution without a bias, batch norm, ReLU."""
        conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
        nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
        return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))

    class Backbone(nn.Module):
        """Vim without class token or head, and the pyramid on what four of its blocks put out."""

        def __init__(self, parts, width, image_size, depth, tapped, drop_path):
            super().__init__()
            self.parts, self.tapped, self.grid = parts, tapped, image_size // PATCH
            self.patch_embed = nn.Conv2d(3, width, PATCH, PATCH)
            self.pos_embed = nn.Parameter(torch.zeros(1, self.grid**2, width))
            nn.init.trunc_normal_(self.pos_embed, std=0.02)
            self.layers = nn.ModuleList(peer_vim.Block(width, depth) for _ in range(depth))
            self.drops = [drop_path * i / max(depth - 1, 1) for i in range(depth)]
            up = lambda: nn.ConvTranspose2d(width, width, 2, 2)
            self.pyramid = nn.ModuleList(
                [nn.Sequential(up(), nn.BatchNorm2d(width), nn.GELU(), up()), up(), nn.Identity(), nn.MaxPool2d(2, 2)]
            )

        def forward(self, images):
            batch = images.shape[0]
            hidden = self.patch_embed(images).flatten(2).transpose(1, 2) + self.pos_embed
            residual, maps = None, []
            for i, (layer, rate) in enumerate(zip(self.layers, self.drops)):
                if self.training and rate > 0:
                    keep = torch.rand(batch, 1, 1, device=hidden.device) >= rate
                    hidden = hidden * keep / (1 - rate)
                hidden, residual = layer(self.parts, hidden, residual)
                if i in self.tapped:
                    tokens = hidden.transpose(1, 2).reshape(batch, -1, self.grid, self.grid)
                    maps.append(tokens.contiguous(memory_format=torch.channels_last))
            return [level(tokens) for level, tokens in zip(self.pyramid, maps)]

    class UperHead(nn.Module):
        """Pyramid pooling on the coarsest level, the top-down path, and the fusion at stride 4."""

        def __init__(self, width, classes):
            super().__init__()
            self.pools = nn.ModuleList(
                nn.Sequential(nn.AdaptiveAvgPool2d(size), unit(width, width, 1)) for size in POOLED
            )
            self.bottleneck = unit(width * (1 + len(POOLED)), width, 3)
            self.laterals = nn.ModuleList(unit(width, width, 1) for _ in range(3))
            self.outputs = nn.ModuleList(unit(width, width, 3) for _ in range(3))
            self.fuse = unit(4 * width, width, 3)
            self.drop, self.classify = nn.Dropout2d(0.1), nn.Conv2d(width, classes, 1)

        def forward(self, levels):
            top = levels[3]
            pooled = [resized(pool(top), top.shape[2:]) for pool in self.pools]
            maps = [lateral(level) for lateral, level in zip(self.laterals, levels)]
            maps.append(self.bottleneck(torch.cat([top, *pooled], dim=1)))
            for i in (3, 2, 1):
                maps[i - 1] = maps[i - 1] + resized(maps[i], maps[i - 1].shape[2:])
            maps = [*(output(level) for output, level in zip(self.outputs, maps)), maps[3]]
            maps = [maps[0], *(resized(level, maps[0].shape[2:]) for level in maps[1:])]
            return self.classify(self.drop(self.fuse(torch.cat(maps, dim=1))))

    class Segmenter(nn.Module):
        """The backbone and both heads."""

        def __init__(self, parts, width, image_size, depth=DEPTH, tapped=TAPPED, classes=CLASSES, drop_path=0.1):
            super().__init__()
            self.image_size, self.classes = image_size, classes
            self.backbone = Backbone(parts, width, image_size, depth, tapped, drop_path)
            self.decode = UperHead(width, classes)
            self.auxiliary = nn.Sequential(unit(width, AUXILIARY, 3), nn.Dropout2d(0.1), nn.Conv2d(AUXILIARY, classes, 1))

        def forward(self, images):
            """Logits at stride 4."""
            return self.decode(self.backbone(images))

        def loss(self, images, labels):
            """Both losses, the mean over all pixels, ignored ones included."""
            levels = self.backbone(images)
            total = 0
            for logits, weight in ((self.decode(levels), 1.0), (self.auxiliary(levels[2]), AUXILIARY_WEIGHT)):
                full = resized(logits, labels.shape[1:])
                nll = F.cross_entropy(full.float(), labels, ignore_index=IGNORED, reduction="none")
                total = total + weight * nll.mean()
            return total

        def slide(self, picture, stride):
            """The classes of a picture `[1, 3, H, W]` by windows of the crop, `[1, H, W]`."""
            crop, (height, width) = self.image_size, picture.shape[2:]
            sums = picture.new_zeros(1, self.classes, height, width)
            counts = picture.new_zeros(1, 1, height, width)
            for y in starts(height, crop, stride):
                for x in starts(width, crop, stride):
                    window = (..., slice(y, y + crop), slice(x, x + crop))
                    sums[window] += resized(self(picture[window]), (crop, crop))
                    counts[window] += 1
            return resized(sums / counts, (height, width)).argmax(1)


def starts(length, crop, stride):
    """Where windows begin: the last ends at the border."""
    windows = max(length - crop + stride - 1, 0) // stride + 1
    return [min(i * stride, length - crop) for i in range(windows)]


def groups(model, decay):
    """Parameters that decay, and vectors, which do not; positions decay, as the recipe has it."""
    plain = [p for p in model.parameters() if p.ndim == 1]
    rest = [p for p in model.parameters() if p.ndim != 1]
    return [{"params": rest, "weight_decay": decay}, {"params": plain, "weight_decay": 0.0}]


def step_of(model, mode, batch, picture, dtype, args, device):
    """A function that takes one step; it waits for nothing."""
    amp = {"device_type": torch.device(device).type, "dtype": torch.bfloat16, "enabled": dtype == "bf16"}
    size = model.image_size
    if mode == "train":
        model.train()
        images = torch.randn(batch, 3, size, size, device=device)
        labels = torch.randint(model.classes, (batch, size, size), device=device)
        labels[:, : size // 8] = IGNORED
        optimizer = torch.optim.AdamW(groups(model, 0.1), lr=args.lr, fused=amp["device_type"] == "cuda")

        def train():
            with torch.autocast(**amp):
                loss = model.loss(images, labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return train
    model.eval()
    width, height = picture
    shape = (batch, 3, size, size) if mode == "infer" else (1, 3, height, width)
    images = torch.randn(shape, device=device)

    def infer():
        with torch.inference_mode(), torch.autocast(**amp):
            if mode == "slide":
                return model.slide(images, size * 341 // 512)
            return resized(model(images), (size, size)).argmax(1)

    return infer


def measure(name, mode, batch, dtype, parts, args):
    """One measurement."""

    def run(record):
        torch.backends.cudnn.benchmark = True
        torch.manual_seed(0)
        model = Segmenter(parts, SIZES[name], args.image_size)
        model = model.cuda().to(memory_format=torch.channels_last)
        record["params"] = sum(p.numel() for p in model.parameters())
        step = step_of(model, mode, batch, args.picture, dtype, args, "cuda")
        record.update(clock(step, batch, args.warmup, args.steps, torch.cuda.synchronize))
        if mode == "train" and not bool(torch.isfinite(step())):
            record["error"] = "the loss is not finite"

    return peer_vim.measured(dtype, run)


def selftest():
    """Check the model on a CPU: sizes, windows, the loss, and that training learns a batch."""
    parts = Parts(fused=False)
    assert starts(683, 512, 341) == [0, 171] and starts(512, 512, 341) == [0], starts(683, 512, 341)
    assert starts(2048, 512, 341) == [0, 341, 682, 1023, 1364, 1536], starts(2048, 512, 341)
    # The published model's parameters, without those of its final norm, which nothing reads.
    for name, parameters in (("vim_tiny", 12_311_276), ("vim_small", 45_448_364)):
        counted = sum(p.numel() for p in Segmenter(parts, SIZES[name], 512).parameters())
        assert counted == parameters - SIZES[name], f"{name} has {counted} parameters"
    torch.manual_seed(0)
    model = Segmenter(parts, 32, 64, depth=4, tapped=(0, 1, 2, 3), classes=5, drop_path=0.0)
    args = argparse.Namespace(lr=3e-3)
    step = step_of(model, "train", 2, (96, 64), "f32", args, "cpu")
    losses = [step().item() for _ in range(12)]
    assert losses[-1] < losses[0], losses
    # All ignored is no loss; the mean is over all pixels.
    images, labels = torch.randn(2, 3, 64, 64), torch.full((2, 64, 64), IGNORED)
    assert model.loss(images, labels).item() == 0.0
    for mode, shape in (("infer", (2, 64, 64)), ("slide", (1, 64, 96))):
        classes = step_of(model, mode, 2, (96, 64), "f32", args, "cpu")()
        assert classes.shape == shape and int(classes.max()) < 5, classes.shape
    print("peer_seg: ok")


def size_of(text):
    """WIDTHxHEIGHT."""
    width, _, height = text.partition("x")
    return count(width), count(height)


def parser():
    """The command line."""
    parser = peer_vim.command_line(__doc__, SIZES, MODES, 8)
    parser.add_argument("--image-size", type=side, default=512, metavar="N", help="px a side of a crop; 512")
    parser.add_argument("--picture", type=size_of, default=(683, 512), metavar="WxH", help="of slide; 683x512")
    return parser


def main():
    """Measure what is asked for."""
    args = parser().parse_args()
    if args.selftest:
        selftest()
        return
    if min(args.picture) < args.image_size:
        sys.exit(f"error: --picture has a side below the crop's {args.image_size} px")
    parts = peer_vim.on_gpu(args)
    around = peer_vim.environment(parts)
    for name in args.model:
        for dtype in peer_vim.chosen(args.dtype, peer_vim.DTYPES):
            for mode in peer_vim.chosen(args.mode, MODES):
                for batch in args.batch if mode != "slide" else (1,):
                    what = {
                        "peer": "pytorch-vim-upernet",
                        "model": name,
                        "mode": mode,
                        "image_size": args.image_size,
                        "picture": list(args.picture) if mode == "slide" else None,
                        "batch": batch,
                        "dtype": dtype,
                    }
                    peer_vim.say(args, what, measure(name, mode, batch, dtype, parts, args), around)


if __name__ == "__main__":
    main()
