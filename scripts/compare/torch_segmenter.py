"""A plain UperNet on Vision Mamba in PyTorch, for check_export.py: the names of its parameters and buffers are those of
the original's checkpoints, so that load_state_dict(…, strict=True) tells whether a file is one. torch_detector.py has
the same Vision Mamba.

Written from the published formulas: zoh, bimamba v2 halved, no class token, RMSNorm, patches of 16 or 8 px.
"""

import torch
import torch.nn.functional as F
from torch import nn


def resized(x, size):
    return F.interpolate(x, size=size, mode="bilinear", align_corners=False)


class ConvModule(nn.Module):
    """Convolution without a bias, batch norm, ReLU."""

    def __init__(self, inputs, outputs, side):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, side, padding=side // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class Mixer(nn.Module):
    """Parameters alone: `way(x, z, parameters, end)` computes one direction, `end` "" or "_b"."""

    def __init__(self, width, inner, states, rank, taps):
        super().__init__()
        self.in_proj = nn.Linear(width, 2 * inner, bias=False)
        self.out_proj = nn.Linear(inner, width, bias=False)
        for end, log in (("", "A_log"), ("_b", "A_b_log")):
            self.register_parameter(log, nn.Parameter(torch.zeros(inner, states)))
            self.register_parameter(f"D{end}", nn.Parameter(torch.zeros(inner)))
            setattr(self, f"conv1d{end}", nn.Conv1d(inner, inner, taps, groups=inner))
            setattr(self, f"x_proj{end}", nn.Linear(inner, rank + 2 * states, bias=False))
            setattr(self, f"dt_proj{end}", nn.Linear(rank, inner))

    def forward(self, x, way):
        u, z = self.in_proj(x).chunk(2, -1)
        own = dict(self.named_parameters())
        y = way(u, z, own, "") + way(u.flip(1), z.flip(1), own, "_b").flip(1)
        return self.out_proj(y / 2)


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.weight


def turns(grid, width, trained=14):
    """By which angle each channel of each patch turns, [grid², width]: the first half of the channels with its row, the
    second with its column, pairs at a frequency; positions as on the grid that was trained on."""
    half = width // 2
    frequencies = 1e4 ** (-torch.arange(0, half, 2) / half)
    angles = (torch.arange(grid) / grid * trained)[:, None] * frequencies.repeat_interleave(2)
    rows, columns = angles[:, None].expand(-1, grid, -1), angles[None].expand(grid, -1, -1)
    return torch.cat([rows, columns], -1).flatten(0, 1)


class Rope(nn.Module):
    """Pairs of neighbouring channels, turned by tables that the checkpoint holds."""

    def __init__(self, grid, width):
        super().__init__()
        angles = turns(grid, width)
        self.register_buffer("freqs_cos", angles.cos())
        self.register_buffer("freqs_sin", angles.sin())

    def forward(self, x):
        first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
        return x * self.freqs_cos + torch.stack([-second, first], -1).flatten(-2) * self.freqs_sin


class Layer(nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.mixer = Mixer(*sizes)
        self.norm = Norm(sizes[0])


class Embed(nn.Module):
    def __init__(self, width, patch):
        super().__init__()
        self.proj = nn.Conv2d(3, width, patch, patch)


class Net(nn.Module):
    """Vision Mamba without a head; `model` is the section [model]."""

    def __init__(self, model, way):
        super().__init__()
        width, patch, self.way = model["d_model"], model["patch_size"], way
        self.grid, self.rotated = model["image_size"] // patch, model["rope"]
        self.patch_embed = Embed(width, patch)
        self.pos_embed = nn.Parameter(torch.zeros(1, self.grid**2, width))
        rank = -(-width // 16) if model["dt_rank"] == "auto" else model["dt_rank"]
        sizes = (width, model["expand"] * width, model["d_state"], rank, model["d_conv"])
        self.layers = nn.ModuleList(Layer(*sizes) for _ in range(model["depth"]))
        if self.rotated != "none":
            self.rope = Rope(self.grid, width)

    def blocks(self, images):
        """Of each block what it puts out, and the residual stream that it reads."""
        hidden = self.patch_embed.proj(images).flatten(2).transpose(1, 2) + self.pos_embed
        stream = torch.zeros_like(hidden)
        for layer in self.layers:
            if self.rotated != "none":
                hidden = self.rope(hidden)
            if self.rotated == "both":
                stream = self.rope(stream)
            stream = stream + hidden
            hidden = layer.mixer(layer.norm(stream), self.way)
            yield hidden, stream

    def map(self, tokens):
        """[B, L, D] as a map, [B, D, H, W]."""
        return tokens.transpose(1, 2).unflatten(2, (self.grid, self.grid))


class Backbone(Net):
    """Vim and the maps of four strides; `model` and `heads` are the sections [model] and [segmentation]."""

    def __init__(self, model, heads, way):
        super().__init__(model, way)
        width, patch, self.heads = model["d_model"], model["patch_size"], heads
        self.norm_f = Norm(width)
        up = lambda: nn.ConvTranspose2d(width, width, 2, 2)
        if patch == 16:
            self.fpn1 = nn.Sequential(up(), nn.BatchNorm2d(width), nn.GELU(), up())
            self.fpn2, self.fpn3, self.fpn4 = nn.Sequential(up()), nn.Identity(), nn.MaxPool2d(2, 2)
        else:
            self.fpn1 = nn.Sequential(up())
            self.fpn2, self.fpn3, self.fpn4 = nn.Identity(), nn.MaxPool2d(2, 2), nn.MaxPool2d(4, 4)

    def features(self, images):
        """What the blocks of out_indices put out, or the residual stream behind them, with the last one's rule."""
        taps, found = self.heads["out_indices"], []
        of_stream = self.heads["features"] == "residual"
        for i, (hidden, stream) in enumerate(self.blocks(images)):
            if of_stream and i - 1 in taps:
                found.append(stream)
            if not of_stream and i in taps:
                found.append(hidden)
        if of_stream and len(self.layers) - 1 in taps:
            last = {"none": lambda: hidden, "add": lambda: hidden + stream, "add_norm": lambda: self.norm_f(hidden + stream)}
            found.append(last[self.heads["last"]]())
        return found * 4 if len(found) == 1 else found

    def forward(self, images):
        levels = (self.fpn1, self.fpn2, self.fpn3, self.fpn4)
        return [level(self.map(x)) for level, x in zip(levels, self.features(images))]


class DecodeHead(nn.Module):
    def __init__(self, width, channels, classes):
        super().__init__()
        pool = lambda side: nn.Sequential(nn.AdaptiveAvgPool2d(side), ConvModule(width, channels, 1))
        self.psp_modules = nn.ModuleList(pool(side) for side in (1, 2, 3, 6))
        self.bottleneck = ConvModule(width + 4 * channels, channels, 3)
        self.lateral_convs = nn.ModuleList(ConvModule(width, channels, 1) for _ in range(3))
        self.fpn_convs = nn.ModuleList(ConvModule(channels, channels, 3) for _ in range(3))
        self.fpn_bottleneck = ConvModule(4 * channels, channels, 3)
        self.conv_seg = nn.Conv2d(channels, classes, 1)

    def forward(self, levels):
        top = levels[3]
        pooled = [resized(pool(top), top.shape[2:]) for pool in self.psp_modules]
        maps = [conv(level) for conv, level in zip(self.lateral_convs, levels)]
        maps.append(self.bottleneck(torch.cat([top, *pooled], 1)))
        for i in (3, 2, 1):
            maps[i - 1] = maps[i - 1] + resized(maps[i], maps[i - 1].shape[2:])
        maps[:3] = [conv(level) for conv, level in zip(self.fpn_convs, maps)]
        joined = torch.cat([resized(level, maps[0].shape[2:]) for level in maps], 1)
        return self.conv_seg(self.fpn_bottleneck(joined))


class AuxiliaryHead(nn.Module):
    """In the checkpoint, and of training alone."""

    def __init__(self, width, channels, classes):
        super().__init__()
        self.convs = nn.Sequential(ConvModule(width, channels, 3))
        self.conv_seg = nn.Conv2d(channels, classes, 1)


class Segmenter(nn.Module):
    """Logits at stride 4 of normalised images [B, 3, H, W]."""

    def __init__(self, model, heads, classes, way):
        super().__init__()
        width = model["d_model"]
        self.backbone = Backbone(model, heads, way)
        self.decode_head = DecodeHead(width, heads["channels"], classes)
        self.auxiliary_head = AuxiliaryHead(width, heads["aux_channels"], classes)

    def forward(self, images):
        return self.decode_head(self.backbone(images))
