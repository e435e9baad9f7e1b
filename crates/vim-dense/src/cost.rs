//! What a forward pass of one image costs, by component, in closed form.
//!
//! The conventions are those of [`VimConfig::cost`]. A batch normalization in evaluation is a
//! product and a sum for every number, a ReLU is free, and a resized pixel has two taps along each
//! axis. The auxiliary head is not computed in evaluation; its parameters count.

use vim_model::{ComponentCost, Cost, ModelError, VimConfig};

use crate::config::SegmenterConfig;
use crate::heads::SCALES;

/// Of a GELU, beside its two products: an error function.
const GELU: u64 = 4;

impl SegmenterConfig {
    /// Parameters, multiply–adds and operations of every component, for one image in evaluation.
    ///
    /// # Errors
    ///
    /// As [`SegmenterConfig::check`] and [`VimConfig::backbone_cost`].
    pub fn cost(&self, backbone: &VimConfig, classes: usize) -> Result<Cost, ModelError> {
        self.check(backbone, classes)?;
        let mut cost = backbone.backbone_cost()?;
        let [rows, columns] = backbone.grid().map(|n| n as u64);
        let [m, c, k, aux] =
            [backbone.d_model, self.channels(backbone), classes, self.aux_channels]
                .map(|n| n as u64);
        let is_16 = backbone.patch_size == 16;
        // Pixels of the levels at strides 4 to 32.
        let level = |up: u64, down: u64| (rows * up / down) * (columns * up / down);
        let levels = if is_16 {
            [level(4, 1), level(2, 1), level(1, 1), level(1, 2)]
        } else {
            [level(2, 1), level(1, 1), level(1, 2), level(1, 4)]
        };
        let cells: u64 = SCALES.iter().map(|&side| (side * side) as u64).sum();
        let module = |inputs: u64, side: u64| inputs * c * side * side + 2 * c;
        let mut add = |name, what, parameters: u64, macs: u64, others: u64| {
            let flops = 2 * macs + others;
            cost.components.push(ComponentCost { name, what, parameters, macs, flops });
        };
        let up = m * m * 4;
        let (ups, up_macs, up_others) = if is_16 {
            let second = level(2, 1);
            (3, (2 * level(1, 1) + second) * up, second * m * (2 + GELU))
        } else {
            (1, level(1, 1) * up, 0)
        };
        let norms = if is_16 { 2 * m } else { 0 };
        add("pyramid", "maps of four strides", ups * (up + m) + norms, up_macs, up_others);
        // Means are sums and a product; a resized grid has two axes of two taps.
        let pooled = cells * m * c + levels[3] * (m + 4 * c) * c * 9;
        add(
            "pooling",
            "pyramid pooling, and its bottleneck",
            4 * module(m, 1) + module(m + 4 * c, 3),
            pooled + 4 * 4 * levels[3] * c,
            4 * levels[3] * m + (cells + levels[3]) * 2 * c,
        );
        let finer: u64 = levels[..3].iter().sum();
        add(
            "laterals",
            "the three finer levels, with the coarser ones added",
            3 * module(m, 1),
            finer * (m * c + 4 * c),
            finer * 3 * c,
        );
        add("fpn_convs", "of their sums", 3 * module(c, 3), finer * c * c * 9, finer * 2 * c);
        add(
            "fpn_bottleneck",
            "of all levels at the finest",
            module(4 * c, 3),
            levels[0] * (4 * c * c * 9 + 3 * 4 * c),
            levels[0] * 2 * c,
        );
        add("conv_seg", "logits", (c + 1) * k, levels[0] * c * k, 0);
        let auxiliary = m * aux * 9 + 2 * aux + (aux + 1) * k;
        add("auxiliary", "the head that training reads", auxiliary, 0, 0);
        Ok(cost)
    }
}
