"""What a detector does with boxes, in PyTorch, for torch_detector.py: overlaps, differences, anchors, matching,
suppression, features and masks of boxes. A box is its left, top, right and bottom edge in pixels.

`nms` and `roi_align` are torchvision's where it is installed, else those of this file, which compute the same; OPERATIONS
says which. Written from the published definitions.
"""

import functools
import math

import numpy as np
import torch
import torch.nn.functional as F

LONGEST = math.log(1000 / 16)  # by which the logarithm of a side may grow


def area(boxes):
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def overlaps(one, two):
    """Intersection over union of [M, 4] and [N, 4]: [M, N], 0 where they do not meet."""
    low = torch.max(one[:, None, :2], two[:, :2])
    common = (torch.min(one[:, None, 2:], two[:, 2:]) - low).clamp(min=0).prod(2)
    union = area(one)[:, None] + area(two) - common
    return torch.where(common > 0, common / union, common.new_zeros(()))


def clip(boxes, size):
    """The part within an image of (height, width)."""
    height, width = size
    left, top, right, bottom = boxes.unbind(-1)
    inside = (left.clamp(0, width), top.clamp(0, height), right.clamp(0, width), bottom.clamp(0, height))
    return torch.stack(inside, -1)


def has_inside(boxes):
    return (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])


def measures(boxes):
    """Width, height, and centre across and down."""
    sides = boxes[:, 2:] - boxes[:, :2]
    return sides, boxes[:, :2] + 0.5 * sides


def encode(boxes, to, weights):
    """Differences from one box to another, [N, 4]; weights are of the centre and of the sides."""
    (sides, centre), (to_sides, to_centre) = measures(boxes), measures(to)
    moved, grown = weights[0] * (to_centre - centre) / sides, weights[1] * torch.log(to_sides / sides)
    return torch.cat([moved, grown], 1)


def decode(boxes, deltas, weights):
    """The boxes at differences from others."""
    (sides, centre), deltas = measures(boxes), deltas.float()
    centre = deltas[:, :2] / weights[0] * sides + centre
    half = 0.5 * torch.exp((deltas[:, 2:] / weights[1]).clamp(max=LONGEST)) * sides
    return torch.cat([centre - half, centre + half], 1)


@functools.lru_cache(maxsize=None)
def anchors(size, stride, height, width, device):
    """Boxes of `size` and three shapes around the corners of a map's pixels: row, column, shape."""
    shapes = []
    for ratio in (0.5, 1.0, 2.0):
        across = math.sqrt(size * size / ratio)
        shapes.append([-across / 2, -across * ratio / 2, across / 2, across * ratio / 2])
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    corners = (torch.stack([x, y, x, y], -1) * stride).float().view(-1, 1, 4)
    return (corners + torch.tensor(shapes)).view(-1, 4).to(device)


def match(truths, boxes, low, high, low_quality=False):
    """For each box the truth that it overlaps most, and whether it is one (1), none (0) or neither (-1)."""
    if not len(truths):
        return boxes.new_zeros(len(boxes), dtype=torch.long), boxes.new_zeros(len(boxes), dtype=torch.long)
    if not len(boxes):
        return boxes.new_zeros(0, dtype=torch.long), boxes.new_zeros(0, dtype=torch.long)
    found = overlaps(truths, boxes)
    most, best = found.max(0)
    labels = torch.where(most < low, 0, torch.where(most < high, -1, 1))
    if low_quality:
        labels = torch.where((found == found.max(1, keepdim=True).values).any(0), 1, labels)
    return best, labels


def own_nms(boxes, scores, threshold):
    """The boxes that stay, the highest score first: one goes if a higher one that stays overlaps it by more.

    Whether a box stays is right as soon as that is so for all higher ones: what is guessed at first is corrected until
    nothing changes, which takes as many rounds as boxes suppress each other in a row."""
    order = scores.argsort(descending=True, stable=True)
    if not len(order):
        return order
    boxes = boxes[order]
    hides = (overlaps(boxes, boxes) > threshold).triu(1).float()
    stays = hides.new_ones(len(boxes))
    while True:
        corrected = (stays @ hides == 0).float()
        if torch.equal(corrected, stays):
            return order[stays > 0]
        stays = corrected


def axis_points(low, high, bins, length):
    """Where boxes are read along an axis: positions [R, S] and the bin of each, S the largest number of points of
    a box; of no bin (-1) are those that a box does not have."""
    step = (high - low) / bins
    each = torch.ceil(step).clamp(min=0)
    at = torch.arange(int(each.max().item()) * bins, device=low.device)
    each = each.long()[:, None]
    which, inner = at // each.clamp(min=1), at % each.clamp(min=1)
    place = low[:, None] + step[:, None] * (which + (inner + 0.5) / each.clamp(min=1))
    return place, torch.where(at < each * bins, which, -1)


def own_roi_align(x, rois, bins, scale, sampling_ratio=0, aligned=True):
    """Features [R, C, bins, bins] of boxes [R, 5] (image, box) of maps [B, C, H, W]: the mean of bilinear samples at
    the centres of a grid of ceil(side / bins) points along each axis of each bin."""
    assert sampling_ratio == 0 and aligned
    batch, channels, height, width = x.shape
    edges = rois[:, 1:] * scale - 0.5
    axes = []
    for low, high, length in ((edges[:, 1], edges[:, 3], height), (edges[:, 0], edges[:, 2], width)):
        place, which = axis_points(low, high, bins, length)
        outside = (place < -1) | (place > length) | (which < 0)
        place = place.clamp(0, length - 1)
        first = place.floor().clamp(max=max(length - 2, 0))
        share = (place - first) * (~outside)
        axes.append((first.long(), (1 - (place - first)) * (~outside), share, which))
    (row, row_low, row_high, of_row), (column, column_low, column_high, of_column) = axes
    if not row.shape[1] or not column.shape[1]:
        return x.new_zeros(len(rois), channels, bins, bins)
    # One list of pixels and weights for each bin of each box.
    roi, i, j = torch.nonzero((of_row >= 0)[:, :, None] & (of_column >= 0)[:, None], as_tuple=True)
    bag = (roi * bins + of_row[roi, i]) * bins + of_column[roi, j]
    counts = torch.bincount(bag, minlength=len(rois) * bins * bins)
    order = bag.argsort(stable=True)
    roi, i, j, bag = roi[order], i[order], j[order], bag[order]
    corner = (rois[roi, 0].long() * height + row[roi, i]) * width + column[roi, j]
    down, across = min(height - 1, 1) * width, min(width - 1, 1)
    pixels = torch.stack([corner, corner + across, corner + down, corner + down + across], 1)
    top, bottom, left, right = row_low[roi, i], row_high[roi, i], column_low[roi, j], column_high[roi, j]
    weights = torch.stack([top * left, top * right, bottom * left, bottom * right], 1) / counts[bag][:, None]
    offsets = torch.cat([counts.new_zeros(1), 4 * counts.cumsum(0)[:-1]])
    flat = x.permute(0, 2, 3, 1).reshape(-1, channels)
    weights = weights.to(flat.dtype).flatten()
    found = F.embedding_bag(pixels.flatten(), flat, offsets, mode="sum", per_sample_weights=weights)
    return found.view(len(rois), bins, bins, channels).permute(0, 3, 1, 2)


try:
    import torchvision
    from torchvision.ops import nms, roi_align

    OPERATIONS = {"nms": f"torchvision {torchvision.__version__}", "roi_align": f"torchvision {torchvision.__version__}"}
except ImportError as error:
    nms, roi_align = own_nms, own_roi_align
    OPERATIONS = {"nms": f"torch, without torchvision ({error})", "roi_align": "torch embedding_bag, without torchvision"}


def readable(x):
    """A map as boxes are read from it fastest, to be made once for all reading."""
    channels_last = roi_align is own_roi_align
    return x.float().contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)


def class_nms(boxes, scores, classes, threshold, most):
    """The first `most` boxes that stay, class by class, the highest score first."""
    kept = torch.zeros(len(boxes), dtype=torch.bool, device=boxes.device)
    for own in classes.unique():
        at = torch.nonzero(classes == own)[:, 0]
        kept[at[nms(boxes[at], scores[at], threshold)]] = True
    kept = torch.nonzero(kept)[:, 0]
    return kept[scores[kept].argsort(descending=True, stable=True)][:most]


def apart_nms(boxes, scores, classes, threshold, most):
    """The same in one go, for many classes: they are moved apart, which costs some digits of the overlaps."""
    if not len(boxes):
        return classes
    apart = classes.to(boxes)[:, None] * (boxes.max() + 1)
    return nms(boxes + apart, scores, threshold)[:most]


def levels_of(boxes, count, whole):
    """From which of `count` maps each box is read: from the third, if its side is `whole` pixels."""
    side = area(boxes).clamp(min=0).sqrt()
    return (torch.floor(4 + torch.log2(side / whole + 1e-8)) - 2).clamp(0, count - 1).long()


def pooled(maps, strides, whole, boxes, bins):
    """Features [R, C, bins, bins] of the boxes of all images, each from its map."""
    image = torch.repeat_interleave(torch.arange(len(boxes)), torch.tensor([len(own) for own in boxes]))
    every = torch.cat(boxes)
    rois = torch.cat([image.to(every)[:, None], every], 1)
    levels = levels_of(every, len(maps), whole)
    places = [torch.nonzero(levels == level)[:, 0] for level in range(len(maps))]
    read = lambda x, stride, at: roi_align(x, rois[at], bins, 1 / stride, sampling_ratio=0, aligned=True)
    found = [read(x, stride, at) for x, stride, at in zip(maps, strides, places) if len(at)]
    return torch.cat(found)[torch.cat(places).argsort()]


def drawn(polygon, side):
    """Which of side × side cells are in a polygon (x, y, x, y, …) in cells, as COCO's masks are: its outline is walked
    on a grid five times as fine, and a cell is in it if an odd number of crossings comes before it, down the columns."""
    corners = np.trunc(5 * np.asarray(polygon, np.float64) + 0.5).astype(np.int64).reshape(-1, 2)
    walked = []
    for start, end in zip(corners, np.roll(corners, -1, 0)):
        sides = np.abs(end - start)
        along = 0 if sides[0] >= sides[1] else 1
        backwards = start[along] > end[along]
        low, high = (end, start) if backwards else (start, end)
        steps = np.arange(sides[along] + 1)
        points = np.empty((len(steps), 2), np.int64)
        points[:, along] = low[along] + steps
        slope = (high[1 - along] - low[1 - along]) / max(sides[along], 1)
        points[:, 1 - along] = np.trunc(low[1 - along] + slope * steps + 0.5)
        walked.append(points[::-1] if backwards else points)
    x, y = np.concatenate(walked).T
    # Where it goes from one fine column to the next in the middle of a column of cells.
    column = (np.where(x[1:] < x[:-1], x[1:], x[1:] - 1) + 0.5) / 5 - 0.5
    row = np.ceil(np.clip((np.minimum(y[1:], y[:-1]) + 0.5) / 5 - 0.5, 0, side))
    crosses = (x[1:] != x[:-1]) & (np.floor(column) == column) & (column >= 0) & (column <= side - 1)
    crossings = np.zeros(side * side + 1, np.int64)
    np.add.at(crossings, (column * side + row)[crosses].astype(np.int64), 1)
    return (np.cumsum(crossings[:-1]) % 2).astype(bool).reshape(side, side).T


def polygon_targets(polygons, boxes, side):
    """Masks [R, side, side] of instances, each a list of polygons in the image, within boxes."""
    masks = np.zeros((len(boxes), side, side), bool)
    factors = side / (boxes[:, 2:] - boxes[:, :2]).double().clamp(min=0.1)
    corners, factors = boxes[:, :2].double().cpu().numpy(), factors.cpu().numpy()
    for mask, own, corner, factor in zip(masks, polygons, corners, factors):
        for polygon in own:
            points = np.asarray(polygon, np.float64).reshape(-1, 2)
            mask |= drawn((points - corner) * factor, side)
    return torch.from_numpy(masks).to(boxes.device)


def bitmap_targets(bitmaps, which, boxes, side):
    """The same of bitmaps [M, H, W] in f32, box r of bitmap which[r]: a cell is in it where its mean is a half or more."""
    rois = torch.cat([which.to(boxes)[:, None], boxes], 1)
    return roi_align(bitmaps[:, None], rois, side, 1.0, sampling_ratio=0, aligned=True)[:, 0] >= 0.5
