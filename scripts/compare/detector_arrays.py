"""Everything that a detector in PyTorch computes of images and truths, as the arrays and the description that
`vim-golden eval-golden --arrays X.npz --variant X.json` compares: for check_export.py."""

import numpy as np
import torch
import torch.nn.functional as F

import torch_boxes as ops
from torch_detector import first

RATE, DECAY, LAYER = 1e-4, 0.1, 0.837  # of the published recipe


def scene(generator, side, size, classes, count):
    """An image [3, h, w] of bytes, and boxes, classes and polygons of `count` instances in it."""
    height, width = size
    image = generator.integers(0, 256, (3, height, width), dtype=np.uint8)
    polygons, boxes = [], []
    for _ in range(count):
        centre = generator.uniform(0.3, 0.7, 2) * (width, height)
        angles = np.sort(generator.uniform(0, 2 * np.pi, 6))
        reach = generator.uniform(side / 16, side / 3, 6)
        points = centre + np.stack([np.cos(angles), np.sin(angles)], 1) * reach[:, None]
        points = np.clip(points, 0, (width, height))
        polygons.append([points.flatten().tolist()])
        boxes.append([*points.min(0), *points.max(0)])
    labels = generator.integers(0, classes, count)
    return image, torch.tensor(np.array(boxes), dtype=torch.float32), torch.from_numpy(labels), polygons


def padded(images, side, mean, std):
    """Normalised, and then padded by 0: [B, 3, side, side]."""
    batch = torch.zeros(len(images), 3, side, side)
    for to, image in zip(batch, images):
        normalised = (torch.from_numpy(image).float() / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
        to[:, : image.shape[1], : image.shape[2]] = normalised
    return batch


def pasted(masks, boxes, size):
    """The pixels of an image in which masks [N, S, S], stretched over their boxes, are a half or more."""
    height, width = size
    place = lambda count, low, high: ((torch.arange(count) + 0.5)[None] - low[:, None]) / (high - low)[:, None] * 2 - 1
    x, y = place(width, boxes[:, 0], boxes[:, 2]), place(height, boxes[:, 1], boxes[:, 3])
    grid = torch.stack([x[:, None].expand(-1, height, -1), y[:, :, None].expand(-1, -1, width)], 3)
    return F.grid_sample(masks[:, None], grid, align_corners=False)[:, 0] >= 0.5


def evaluated(model, batch, sizes, finals):
    """What is found, in the model's images and in those of their own sizes."""
    found, proposals = model.detect(batch, sizes)
    arrays = {}
    for image, ((boxes, scores, classes, masks), size, final) in enumerate(zip(found, sizes, finals)):
        arrays[f"eval.proposals{image}"], arrays[f"eval.proposal_logits{image}"] = proposals[image]
        arrays[f"eval.boxes{image}"], arrays[f"eval.scores{image}"] = boxes, scores
        arrays[f"eval.classes{image}"], arrays[f"eval.mask_probabilities{image}"] = classes, masks.half()
        across, down = final[1] / size[1], final[0] / size[0]
        own = ops.clip(boxes * torch.tensor([across, down, across, down]), final)
        good = ops.has_inside(own)
        arrays[f"eval.final_boxes{image}"], arrays[f"eval.final_scores{image}"] = own[good], scores[good]
        pixels = pasted(masks[good], own[good], final) if good.any() else torch.zeros(0, *final)
        arrays[f"eval.final_masks{image}"] = torch.from_numpy(np.packbits(pixels.bool().numpy()))
    return arrays


def trained(model, batch, sizes, truths):
    """A training pass, its losses and their gradients; the first anchors and boxes of each kind are drawn."""
    batch = batch.clone().requires_grad_()
    feature = model.backbone.net(batch)
    feature.retain_grad()
    losses, seen = model.losses_of(feature, sizes, truths, first)
    sum(losses.values()).backward()
    arrays = {"train.last_feat": feature, "d_last_feat": feature.grad, "d_batch": batch.grad}
    for level, (x, (scores, deltas)) in enumerate(zip(seen["maps"], seen["said"])):
        arrays[f"train.p{level + 2}"] = x
        arrays[f"train.objectness{level}"], arrays[f"train.anchor_deltas{level}"] = scores, deltas
    for image, (positive, negative, to, count) in enumerate(seen["anchors"]):
        labels = torch.full((count,), -1, dtype=torch.int8)
        labels[negative], labels[positive] = 0, 1
        arrays[f"train.anchor_labels{image}"] = labels
        arrays[f"train.positive_anchors{image}"], arrays[f"train.matched_boxes{image}"] = positive, to
    for image, (boxes, scores) in enumerate(seen["proposals"]):
        arrays[f"train.proposals{image}"], arrays[f"train.proposal_logits{image}"] = boxes, scores
    for stage, of in enumerate(seen["stages"]):
        name = f"train.stage{stage}"
        for image, ((boxes, matched, classes), truth) in enumerate(zip(of["targets"], truths)):
            arrays[f"{name}.boxes{image}"], arrays[f"{name}.classes{image}"] = boxes, classes
            arrays[f"{name}.gt_boxes{image}"] = truth[0][matched] if len(truth[0]) else boxes
        if of["scores"] is not None:
            arrays[f"{name}.scores"], arrays[f"{name}.deltas"] = of["scores"], of["deltas"]
    classes, targets, logits = seen["masks"]
    arrays["train.mask_classes"] = classes
    arrays["train.mask_targets"] = torch.zeros(0, 28, 28, dtype=torch.bool) if targets is None else targets
    if logits is not None:
        arrays["train.mask_logits"] = logits
    for name, parameter in model.named_parameters():
        gradient = parameter.grad
        arrays[f"g.{name}"] = torch.zeros_like(parameter) if gradient is None else gradient
    return arrays, {name: loss.item() for name, loss in losses.items()}


def rates(model, depth):
    """Learning rate and weight decay of each parameter by the published recipe."""
    found = {}
    for name, _ in model.named_parameters():
        own, above = name.removeprefix("backbone.net."), 0
        if own.startswith("layers."):
            above = depth - int(own.split(".")[1])
        elif own.startswith(("pos_embed", "patch_embed")) and own != name:
            above = depth + 1
        found[name] = [RATE * LAYER**above, 0.0 if own == "pos_embed" else DECAY]
    return {"base_lr": RATE, "weight_decay": DECAY, "lr_decay_rate": LAYER, "parameters": found}


def described(model, about, scenes, mean, std):
    """The arrays and the description of `scenes`; `about` has the sections [model] and [detection]."""
    section, side = about["model"], about["model"]["image_size"]
    sizes = [tuple(image.shape[1:]) for image, *_ in scenes]
    finals = [(height * 197 // 100, width * 3 // 2) for height, width in sizes]
    batch = padded([image for image, *_ in scenes], side, mean, std)
    arrays = evaluated(model, batch, sizes, finals)
    truths = [
        (boxes, labels, lambda at, own, outlines=outlines: ops.polygon_targets([outlines[i] for i in at], own, 28))
        for _, boxes, labels, outlines in scenes
    ]
    more, losses = trained(model, batch, sizes, truths)
    arrays.update(more, batch=batch)
    for number, (image, boxes, labels, _) in enumerate(scenes):
        arrays.update({f"image{number}": image, f"gt_boxes{number}": boxes, f"gt_classes{number}": labels})
    as_numpy = lambda x: x.detach().contiguous().numpy() if isinstance(x, torch.Tensor) else x
    rope = section["rope"]
    variant = {"img": side, "d_model": section["d_model"], "depth": section["depth"], "d_state": section["d_state"]}
    variant |= {"rope": rope != "none", "rope_residual": rope == "both", "last": "add", "classes": model.classes}
    variant |= {"channels": about["detection"]["channels"], "sizes": sizes}
    # Nothing is drawn in these arrays.
    variant |= {"model": section | {"drop_path": 0.0}, "detection": about["detection"]}
    description = {
        "variant": variant,
        "polygons": [outlines for *_, outlines in scenes],
        "losses": losses,
        "loss": sum(losses.values()),
        "final": [{"height": height, "width": width} for height, width in finals],
        "optimizer": rates(model, section["depth"]),
    }
    return {name: as_numpy(array) for name, array in arrays.items()}, description
