"""A plain Cascade Mask R-CNN on Vision Mamba in PyTorch, for check_export.py and peer_det.py: the names of its
parameters and buffers are detectron2's, so that load_state_dict(…, strict=True) tells whether a file is one of its.

`heads` is the section [detection], and `net` what makes a map of images. Written from the published descriptions
(Cai and Vasconcelos 2018, He et al. 2017, Lin et al. 2017, Ren et al. 2015, Li et al. 2022). Images are normalised,
[B, 3, H, W], and `sizes` are heights and widths without what pads them; `truths` are of each image the boxes [M, 4],
the classes [M], and a function from numbers of instances and boxes to the targets of their masks.
"""

import torch
import torch.nn.functional as F
from torch import nn

import torch_boxes as ops
import torch_segmenter

STRIDES = (0.25, 0.5, 1, 2, 4)  # of the maps, in patches
OVERLAPS = (0.5, 0.6, 0.7)  # from which a box is a truth's, stage by stage
WEIGHTS = ((10, 5), (20, 10), (30, 15))  # of differences of centres and of sides, stage by stage


class Net(torch_segmenter.Net):
    """The last block's output with the residual stream."""

    def forward(self, images):
        *_, (hidden, stream) = self.blocks(images)
        return self.map(hidden + stream)


class ChannelNorm(nn.Module):
    """Layer normalization of each pixel's channels."""

    def __init__(self, channels):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        normed = F.layer_norm(x.permute(0, 2, 3, 1), self.weight.shape, self.weight, self.bias, 1e-6)
        return normed.permute(0, 3, 1, 2)


class NormedConv(nn.Conv2d):
    """A convolution without a bias and a normalization."""

    def __init__(self, inputs, outputs, side):
        super().__init__(inputs, outputs, side, padding=side // 2, bias=False)
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")
        self.norm = ChannelNorm(outputs)

    def forward(self, x):
        return self.norm(super().forward(x))


def normal(layer, std):
    """The layer with weights of this deviation, and biases of 0."""
    nn.init.normal_(layer.weight, std=std)
    nn.init.zeros_(layer.bias)
    return layer


class Pyramid(nn.Module):
    """Maps of five strides; the last is a part of the one before."""

    def __init__(self, net, width, channels):
        super().__init__()
        self.net = net
        half, quarter = width // 2, width // 4
        up = lambda inputs, outputs: nn.ConvTranspose2d(inputs, outputs, 2, 2)
        out = lambda inputs: (NormedConv(inputs, channels, 1), NormedConv(channels, channels, 3))
        first = (up(width, half), ChannelNorm(half), nn.GELU(), up(half, quarter))
        self.simfp_2 = nn.Sequential(*first, *out(quarter))
        self.simfp_3 = nn.Sequential(up(width, half), *out(half))
        self.simfp_4 = nn.Sequential(*out(width))
        self.simfp_5 = nn.Sequential(nn.MaxPool2d(2, 2), *out(width))

    def maps(self, feature):
        maps = [level(feature) for level in (self.simfp_2, self.simfp_3, self.simfp_4, self.simfp_5)]
        return [*maps, maps[3][:, :, ::2, ::2]]


class RpnHead(nn.Module):
    def __init__(self, channels):
        super().__init__()
        conv = lambda: normal(nn.Conv2d(channels, channels, 3, padding=1), 0.01)
        self.conv = nn.Sequential()
        for number in range(2):
            self.conv.add_module(f"conv{number}", conv())
        self.objectness_logits = normal(nn.Conv2d(channels, 3, 1), 0.01)
        self.anchor_deltas = normal(nn.Conv2d(channels, 12, 1), 0.01)

    def forward(self, x):
        for conv in self.conv:
            x = F.relu(conv(x))
        return self.objectness_logits(x), self.anchor_deltas(x)


class Proposer(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.rpn_head = RpnHead(channels)


class Convs(nn.Module):
    """Four convolutions, each with a ReLU, called `name` and their number."""

    def __init__(self, channels, name):
        super().__init__()
        self.convs = [f"{name}{number}" for number in range(1, 5)]
        for own in self.convs:
            self.add_module(own, NormedConv(channels, channels, 3))

    def forward(self, x):
        for own in self.convs:
            x = F.relu(getattr(self, own)(x))
        return x


class BoxHead(Convs):
    def __init__(self, channels, features):
        super().__init__(channels, "conv")
        self.fc1 = nn.Linear(channels * 49, features)
        nn.init.kaiming_uniform_(self.fc1.weight, a=1)
        nn.init.zeros_(self.fc1.bias)

    def forward(self, x):
        return F.relu(self.fc1(super().forward(x).flatten(1)))


class BoxPredictor(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.cls_score = normal(nn.Linear(features, classes + 1), 0.01)
        self.bbox_pred = normal(nn.Linear(features, 4), 0.001)

    def forward(self, x):
        return self.cls_score(x), self.bbox_pred(x)


class MaskHead(Convs):
    def __init__(self, channels, classes):
        super().__init__(channels, "mask_fcn")
        self.deconv = nn.ConvTranspose2d(channels, channels, 2, 2)
        nn.init.kaiming_normal_(self.deconv.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.deconv.bias)
        self.predictor = normal(nn.Conv2d(channels, classes, 1), 0.001)

    def forward(self, x):
        return self.predictor(F.relu(self.deconv(super().forward(x))))


class RoiHeads(nn.Module):
    def __init__(self, channels, features, classes):
        super().__init__()
        self.box_head = nn.ModuleList(BoxHead(channels, features) for _ in OVERLAPS)
        self.box_predictor = nn.ModuleList(BoxPredictor(features, classes) for _ in OVERLAPS)
        self.mask_head = MaskHead(channels, classes)


def first(candidates, count):
    """Of candidates the first; the deterministic draw."""
    return candidates[:count]


def random(candidates, count):
    """Of candidates any, in their order."""
    chosen = torch.randperm(len(candidates), device=candidates.device)[:count]
    return candidates[chosen.sort().values]


def sampled(labels, count, share, draw):
    """Numbers of positive and negative boxes, `count` of both and at most a `share` of them positive."""
    positive = draw(torch.nonzero(labels == 1)[:, 0], int(count * share))
    return positive, draw(torch.nonzero(labels == 0)[:, 0], count - len(positive))


class Detector(nn.Module):
    def __init__(self, net, width, patch, heads, classes):
        super().__init__()
        channels, self.heads, self.classes = heads["channels"], heads, classes
        self.strides = [stride * patch for stride in STRIDES]
        self.backbone = Pyramid(net, width, channels)
        self.proposal_generator = Proposer(channels)
        self.roi_heads = RoiHeads(channels, heads["box_features"], classes)

    def pooled(self, maps, boxes, bins):
        return ops.pooled(maps, self.strides[:4], self.heads.get("box_side", 224), boxes, bins)

    def scored(self, maps):
        """Of every level the anchors, and of each what the head says: [B, A], [B, A, 4]; and that as it says it."""
        said = [self.proposal_generator.rpn_head(x) for x in maps]
        anchors, logits, deltas = [], [], []
        for (scores, moved), stride in zip(said, self.strides):
            batch, _, height, width = scores.shape
            size = self.heads["anchor_size"] * stride
            anchors.append(ops.anchors(size, stride, height, width, scores.device))
            logits.append(scores.permute(0, 2, 3, 1).reshape(batch, -1).float())
            deltas.append(moved.permute(0, 2, 3, 1).reshape(batch, -1, 4).float())
        return anchors, logits, deltas, said

    @torch.no_grad()
    def proposals(self, anchors, logits, deltas, sizes, per_level, most):
        """Of each image boxes and their logits, the highest first."""
        found = []
        for image, size in enumerate(sizes):
            boxes, scores = [], []
            for own, logit, delta in zip(anchors, logits, deltas):
                best, at = logit[image].topk(min(per_level, len(own)))
                decoded = ops.decode(own[at], delta[image, at], (1, 1))
                good = decoded.isfinite().all(1) & best.isfinite()
                decoded = ops.clip(decoded, size)
                good &= ops.has_inside(decoded)
                decoded, best = decoded[good], best[good]
                kept = ops.nms(decoded, best, 0.7)
                boxes.append(decoded[kept])
                scores.append(best[kept])
            scores, best = torch.cat(scores).sort(descending=True, stable=True)
            found.append((torch.cat(boxes)[best[:most]], scores[:most]))
        return found

    def losses(self, images, sizes, truths, draw=random):
        """The nine losses by detectron2's names, and everything on the way."""
        return self.losses_of(self.backbone.net(images), sizes, truths, draw)

    def losses_of(self, feature, sizes, truths, draw):
        heads, maps = self.heads, self.backbone.maps(feature)
        anchors, logits, deltas, said = self.scored(maps)
        seen = {"maps": maps, "said": said}
        losses, seen["anchors"] = self.anchor_losses(anchors, logits, deltas, truths, draw)
        limits = heads["proposals_per_level"], heads["proposals"]
        seen["proposals"] = self.proposals(anchors, logits, deltas, sizes, *limits)
        boxes = [torch.cat([own, truth[0]]) for (own, _), truth in zip(seen["proposals"], truths)]
        targets = [self.targets(own, truth, OVERLAPS[0]) for own, truth in zip(boxes, truths)]
        for image, (own, matched, classes) in enumerate(targets):
            chosen = torch.cat(sampled((classes < self.classes).long(), heads["box_samples"], 0.25, draw))
            targets[image] = own[chosen], matched[chosen], classes[chosen]
        read = [ops.readable(x) for x in maps[:4]]
        seen["stages"] = []
        for stage in range(len(OVERLAPS)):
            found, boxes = self.stage_losses(read, stage, targets, truths)
            seen["stages"].append({"targets": targets, "scores": found.pop("scores"), "deltas": found.pop("deltas")})
            losses.update(found)
            if stage + 1 < len(OVERLAPS):
                targets = [
                    self.refined_targets(own, size, truth, OVERLAPS[stage + 1])
                    for own, size, truth in zip(boxes, sizes, truths)
                ]
        losses["loss_mask"], seen["masks"] = self.mask_loss(read, seen["stages"][0]["targets"], truths)
        return losses, seen

    def anchor_losses(self, anchors, logits, deltas, truths, draw):
        count = self.heads["anchor_samples"]
        anchors, logits, deltas = torch.cat(anchors), torch.cat(logits, 1), torch.cat(deltas, 1)
        seen, cls, loc = [], logits.sum() * 0, deltas.sum() * 0
        for logit, delta, (boxes, *_) in zip(logits, deltas, truths):
            matched, labels = ops.match(boxes, anchors, 0.3, 0.7, low_quality=True)
            positive, negative = sampled(labels, count, 0.5, draw)
            chosen = torch.cat([positive, negative])
            wanted = (labels[chosen] == 1).float()
            cls = cls + F.binary_cross_entropy_with_logits(logit[chosen], wanted, reduction="sum")
            to = boxes[matched[positive]]
            wanted = ops.encode(anchors[positive], to, (1, 1))
            loc = loc + (delta[positive] - wanted).abs().sum()
            seen.append((positive, negative, to, len(anchors)))
        norm = count * len(truths)
        return {"loss_rpn_cls": cls / norm, "loss_rpn_loc": loc / norm}, seen

    def targets(self, boxes, truth, overlap):
        """The boxes, the truth that each overlaps most, and its class: the background's is the last."""
        matched, labels = ops.match(truth[0], boxes, overlap, overlap)
        classes = torch.full_like(matched, self.classes)
        if len(truth[0]):
            classes = torch.where(labels == 1, truth[1][matched], classes)
        return boxes, matched, classes

    def refined_targets(self, boxes, size, truth, overlap):
        boxes = ops.clip(boxes[boxes.isfinite().all(1)], size)
        return self.targets(boxes[ops.has_inside(boxes)], truth, overlap)

    def said(self, maps, stage, boxes, damp=None):
        """A stage's scores and differences, and the boxes of each image that those lead to. A box that is none is read
        as one without area, and stays none."""
        readable = [torch.where(own.isfinite().all(1, keepdim=True), own, 0) for own in boxes]
        x = self.pooled(maps, readable, 7)
        if damp is not None and x.requires_grad:
            x.register_hook(lambda gradient: gradient * damp)
        scores, deltas = self.roi_heads.box_predictor[stage](self.roi_heads.box_head[stage](x))
        scores, deltas = scores.float(), deltas.float()
        with torch.no_grad():
            refined = ops.decode(torch.cat(boxes), deltas, WEIGHTS[stage]).split([len(own) for own in boxes])
        return scores, deltas, refined

    def stage_losses(self, maps, stage, targets, truths):
        boxes = [own for own, *_ in targets]
        names = f"loss_cls_stage{stage}", f"loss_box_reg_stage{stage}"
        if not sum(map(len, boxes)):
            none = maps[0].sum() * 0
            return {**dict.fromkeys(names, none), "scores": None, "deltas": None}, boxes
        scores, deltas, refined = self.said(maps, stage, boxes, damp=1 / len(OVERLAPS))
        classes = torch.cat([own for *_, own in targets])
        wanted = torch.cat([
            ops.encode(own[at], truth[0][matched[at]], WEIGHTS[stage])
            for (own, matched, of), truth in zip(targets, truths)
            for at in [torch.nonzero(of < self.classes)[:, 0]]
        ])
        foreground = torch.nonzero(classes < self.classes)[:, 0]
        losses = F.cross_entropy(scores, classes), (deltas[foreground] - wanted).abs().sum() / len(classes)
        return {**dict(zip(names, losses)), "scores": scores, "deltas": deltas}, refined

    def mask_loss(self, maps, targets, truths):
        boxes, classes, wanted = [], [], []
        for (own, matched, of), (*_, masks) in zip(targets, truths):
            at = torch.nonzero(of < self.classes)[:, 0]
            boxes.append(own[at])
            classes.append(of[at])
            if len(at):
                wanted.append(masks(matched[at], own[at]))
        classes = torch.cat(classes)
        if not len(classes):
            return maps[0].sum() * 0, (classes, None, None)
        logits, wanted = self.roi_heads.mask_head(self.pooled(maps, boxes, 14)), torch.cat(wanted)
        own = logits[torch.arange(len(classes), device=logits.device), classes].float()
        return F.binary_cross_entropy_with_logits(own, wanted.float()), (classes, wanted, logits)

    @torch.no_grad()
    def detect(self, images, sizes):
        """Of each image boxes, scores, classes and masks' probabilities [N, 28, 28]; and the proposals."""
        heads, maps = self.heads, self.backbone.maps(self.backbone.net(images))
        limits = heads["test_proposals_per_level"], heads["test_proposals"]
        proposals = self.proposals(*self.scored(maps)[:3], sizes, *limits)
        boxes, mean = [own for own, _ in proposals], 0
        read = [ops.readable(x) for x in maps[:4]]
        empty = boxes[0].new_zeros(0)
        found = [(own[:0], empty, empty.long()) for own in boxes]
        if sum(map(len, boxes)):
            for stage in range(len(OVERLAPS)):
                if stage:
                    none = lambda own: torch.where(own.isfinite().all(1, keepdim=True), own, torch.nan)
                    boxes = [ops.clip(none(own), size) for own, size in zip(boxes, sizes)]
                scores, _, boxes = self.said(read, stage, boxes)
                mean = mean + scores.softmax(1)
            mean = (mean / len(OVERLAPS)).split([len(own) for own in boxes])
            found = [self.chosen(*of) for of in zip(boxes, mean, sizes)]
        classes = torch.cat([own for *_, own in found])
        masks = empty.view(0, 28, 28)
        if len(classes):
            logits = self.roi_heads.mask_head(self.pooled(read, [own for own, *_ in found], 14))
            masks = logits[torch.arange(len(classes), device=logits.device), classes].float().sigmoid()
        masks = masks.split([len(own) for own, *_ in found])
        return [(*own, mask) for own, mask in zip(found, masks)], proposals

    @torch.no_grad()
    def spread(self, images, sizes):
        """Scales the last layers of all scores, so that an untrained model has scores of all sizes on these images."""

        def scaled(layer, scores):
            factor = 2 / scores.std().clamp(min=1e-6)
            layer.weight *= factor
            layer.bias.sub_(scores.flatten(0, -2).mean(0)).mul_(factor)

        maps = self.backbone.maps(self.backbone.net(images))
        _, logits, _, _ = self.scored(maps)
        scaled(self.proposal_generator.rpn_head.objectness_logits, torch.cat(logits, 1).reshape(-1, 1))
        limits = self.heads["test_proposals_per_level"], self.heads["test_proposals"]
        boxes = [own for own, _ in self.proposals(*self.scored(maps)[:3], sizes, *limits)]
        read = [ops.readable(x) for x in maps[:4]]
        for stage, predictor in enumerate(self.roi_heads.box_predictor):
            scores, _, refined = self.said(read, stage, boxes)
            scaled(predictor.cls_score, scores)
            boxes = [ops.clip(own, size) for own, size in zip(refined, sizes)]

    def chosen(self, boxes, scores, size):
        good = boxes.isfinite().all(1) & scores.isfinite().all(1)
        boxes, scores = ops.clip(boxes[good], size), scores[good][:, : self.classes]
        at, classes = torch.nonzero(scores > self.heads["score_threshold"], as_tuple=True)
        boxes, scores = boxes[at], scores[at, classes]
        together = ops.apart_nms if self.classes > 8 else ops.class_nms
        kept = together(boxes, scores, classes, self.heads["nms_threshold"], self.heads["detections"])
        return boxes[kept], scores[kept], classes[kept]
