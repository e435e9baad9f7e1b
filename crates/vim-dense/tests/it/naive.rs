//! Pyramid, heads and loss again, in plain f64 loops over channels-first maps, written from the
//! formulas of the layers. It reads parameters by their paths.

use crate::support::Named;

/// An image's map, `[C, H, W]`.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    pub(crate) channels: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) values: Vec<f64>,
}

impl Map {
    pub(crate) fn new(
        [channels, height, width]: [usize; 3],
        value: impl Fn(usize, usize, usize) -> f64,
    ) -> Self {
        let mut values = Vec::with_capacity(channels * height * width);
        for c in 0..channels {
            for y in 0..height {
                values.extend((0..width).map(|x| value(c, y, x)));
            }
        }
        Self { channels, height, width, values }
    }

    fn dims(&self) -> [usize; 3] {
        [self.channels, self.height, self.width]
    }

    pub(crate) fn at(&self, c: usize, y: usize, x: usize) -> f64 {
        self.values[(c * self.height + y) * self.width + x]
    }

    fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        Self { values: self.values.iter().map(|&x| f(x)).collect(), ..self.clone() }
    }

    fn plus(&self, other: &Self) -> Self {
        assert_eq!(self.dims(), other.dims());
        let values = self.values.iter().zip(&other.values).map(|(a, b)| a + b).collect();
        Self { values, ..self.clone() }
    }

    fn beside(maps: &[Self]) -> Self {
        let values: Vec<f64> = maps.iter().flat_map(|map| map.values.iter().copied()).collect();
        let channels = maps.iter().map(|map| map.channels).sum();
        Self { channels, values, ..maps[0].clone() }
    }

    /// Bilinear, with the coordinates of `align_corners=False`.
    pub(crate) fn resized(&self, height: usize, width: usize) -> Self {
        let axis = |place: usize, from: usize, to: usize| {
            let centre = ((place as f64 + 0.5) * from as f64 / to as f64 - 0.5).max(0.0);
            let first = (centre.floor() as usize).min(from - 1);
            (first, (first + 1).min(from - 1), centre - first as f64)
        };
        Self::new([self.channels, height, width], |c, y, x| {
            let (top, bottom, down) = axis(y, self.height, height);
            let (left, right, across) = axis(x, self.width, width);
            let row = |y| self.at(c, y, left) * (1.0 - across) + self.at(c, y, right) * across;
            row(top) * (1.0 - down) + row(bottom) * down
        })
    }

    /// Means over a grid of windows.
    fn pooled(&self, side: usize) -> Self {
        let window = |i: usize, length: usize| {
            let (from, to) = (i as f64 * length as f64, (i + 1) as f64 * length as f64);
            (from / side as f64).floor() as usize..(to / side as f64).ceil() as usize
        };
        Self::new([self.channels, side, side], |c, i, j| {
            let (rows, columns) = (window(i, self.height), window(j, self.width));
            let count = (rows.len() * columns.len()) as f64;
            rows.map(|y| columns.clone().map(|x| self.at(c, y, x)).sum::<f64>()).sum::<f64>()
                / count
        })
    }

    fn largest_of(&self, side: usize) -> Self {
        Self::new([self.channels, self.height / side, self.width / side], |c, y, x| {
            let pixels =
                (0..side * side).map(|i| self.at(c, y * side + i / side, x * side + i % side));
            pixels.fold(f64::MIN, f64::max)
        })
    }
}

/// GELU by erf, from its series.
fn gelu(x: f64) -> f64 {
    let z = x.abs() / std::f64::consts::SQRT_2;
    // erf(z) = 2/√π · e^(−z²) · Σ 2^n z^(2n+1) / (2n+1)!!
    let (mut term, mut sum) = (z, z);
    for n in 1..200 {
        term *= 2.0 * z * z / f64::from(2 * n + 1);
        sum += term;
    }
    let erf = (2.0 / std::f64::consts::PI.sqrt() * (-z * z).exp() * sum).min(1.0);
    x * 0.5 * (1.0 + erf.copysign(x))
}

/// The heads with their parameters, and which statistics normalize.
pub(crate) struct Naive<'a> {
    pub(crate) parameters: &'a Named,
    pub(crate) trains: bool,
}

/// Of a batch: what the pyramid makes, what the pooling makes, and both heads' logits.
pub(crate) struct Computed {
    pub(crate) levels: [Vec<Map>; 4],
    pub(crate) pooled: Vec<Map>,
    pub(crate) logits: Vec<Map>,
    pub(crate) aux_logits: Vec<Map>,
}

impl Naive<'_> {
    fn get(&self, name: &str) -> (&[usize], &[f32]) {
        let (shape, values) = self.parameters.get(name).unwrap_or_else(|| panic!("no {name}"));
        (shape, values)
    }

    fn has(&self, name: &str) -> bool {
        self.parameters.contains_key(name)
    }

    fn conv(&self, name: &str, x: &Map) -> Map {
        let (shape, weight) = self.get(&format!("{name}.weight"));
        let bias = format!("{name}.bias");
        let bias = self.has(&bias).then(|| self.get(&bias).1);
        let (inputs, side) = (shape[1], shape[2]);
        assert_eq!(inputs, x.channels, "{name}");
        Map::new([shape[0], x.height, x.width], |o, y, column| {
            let mut sum = bias.map_or(0.0, |bias| f64::from(bias[o]));
            for i in 0..inputs {
                for (ky, kx) in (0..side).flat_map(|ky| (0..side).map(move |kx| (ky, kx))) {
                    let (from_y, from_x) = (y + ky, column + kx);
                    let pad = side / 2;
                    if from_y < pad || from_x < pad {
                        continue;
                    }
                    let (from_y, from_x) = (from_y - pad, from_x - pad);
                    if from_y < x.height && from_x < x.width {
                        let w = weight[((o * inputs + i) * side + ky) * side + kx];
                        sum += f64::from(w) * x.at(i, from_y, from_x);
                    }
                }
            }
            sum
        })
    }

    fn up(&self, name: &str, x: &Map) -> Map {
        let (shape, weight) = self.get(&format!("{name}.weight"));
        let bias = self.get(&format!("{name}.bias")).1;
        let outputs = shape[1];
        Map::new([outputs, 2 * x.height, 2 * x.width], |o, y, column| {
            let tap = y % 2 * 2 + column % 2;
            let products = (0..x.channels).map(|i| {
                f64::from(weight[(i * outputs + o) * 4 + tap]) * x.at(i, y / 2, column / 2)
            });
            products.sum::<f64>() + f64::from(bias[o])
        })
    }

    fn norm(&self, name: &str, xs: Vec<Map>) -> Vec<Map> {
        let of = |what: &str| self.get(&format!("{name}.{what}")).1;
        let (mean, variance) = if self.trains {
            moments(&xs)
        } else {
            let wide = |what| of(what).iter().map(|&x| f64::from(x)).collect();
            (wide("running_mean"), wide("running_var"))
        };
        let normed = xs.iter().map(|x| {
            Map::new(x.dims(), |c, y, column| {
                let scale = f64::from(of("weight")[c]) / (variance[c] + 1e-5).sqrt();
                (x.at(c, y, column) - mean[c]) * scale + f64::from(of("bias")[c])
            })
        });
        normed.collect()
    }

    fn module(&self, name: &str, xs: &[Map]) -> Vec<Map> {
        let xs = xs.iter().map(|x| self.conv(&format!("{name}.conv"), x)).collect();
        let xs = self.norm(&format!("{name}.bn"), xs);
        xs.iter().map(|x| x.map(|x| x.max(0.0))).collect()
    }

    fn pyramid(&self, maps: &[Vec<Map>; 4]) -> [Vec<Map>; 4] {
        let [first, second, third, fourth] = maps;
        let each =
            |maps: &[Map], f: &dyn Fn(&Map) -> Map| -> Vec<Map> { maps.iter().map(f).collect() };
        let up = |name: &'static str| move |x: &Map| self.up(name, x);
        let one = each(first, &up("pyramid.fpn1.first"));
        if !self.has("pyramid.fpn2.weight") {
            return [
                one,
                second.clone(),
                each(third, &|x| x.largest_of(2)),
                each(fourth, &|x| x.largest_of(4)),
            ];
        }
        let one = self.norm("pyramid.fpn1.second.norm", one);
        let one = each(&each(&one, &|x| x.map(gelu)), &up("pyramid.fpn1.second.up"));
        [one, each(second, &up("pyramid.fpn2")), third.clone(), each(fourth, &|x| x.largest_of(2))]
    }

    /// Everything from the backbone's maps, each of a batch.
    pub(crate) fn compute(&self, maps: &[Vec<Map>; 4]) -> Computed {
        let levels = self.pyramid(maps);
        let head = |part: &str| format!("decode_head.{part}");
        let coarsest = &levels[3];
        let mut beside: Vec<Vec<Map>> = coarsest.iter().map(|x| vec![x.clone()]).collect();
        for (i, side) in [1, 2, 3, 6].into_iter().enumerate() {
            let grids: Vec<Map> = coarsest.iter().map(|x| x.pooled(side)).collect();
            let made = self.module(&head(&format!("psp_modules.{i}")), &grids);
            for ((beside, made), x) in beside.iter_mut().zip(made).zip(coarsest) {
                beside.push(made.resized(x.height, x.width));
            }
        }
        let joined: Vec<Map> = beside.iter().map(|maps| Map::beside(maps)).collect();
        let pooled = self.module(&head("bottleneck"), &joined);

        let mut sums: Vec<Vec<Map>> =
            (0..3).map(|i| self.module(&head(&format!("lateral_convs.{i}")), &levels[i])).collect();
        sums.push(pooled.clone());
        for i in (1..4).rev() {
            let coarse = sums[i].clone();
            sums[i - 1] = sums[i - 1]
                .iter()
                .zip(&coarse)
                .map(|(fine, coarse)| fine.plus(&coarse.resized(fine.height, fine.width)))
                .collect();
        }
        let mut outs: Vec<Vec<Map>> =
            (0..3).map(|i| self.module(&head(&format!("fpn_convs.{i}")), &sums[i])).collect();
        outs.push(sums[3].clone());
        let joined: Vec<Map> = (0..pooled.len())
            .map(|image| {
                let [_, height, width] = outs[0][image].dims();
                let large: Vec<Map> =
                    outs.iter().map(|maps| maps[image].resized(height, width)).collect();
                Map::beside(&large)
            })
            .collect();
        let features = self.module(&head("fpn_bottleneck"), &joined);
        let logits = features.iter().map(|x| self.conv(&head("conv_seg"), x)).collect();
        let aux = self.module("auxiliary_head.convs.0", &levels[2]);
        let aux_logits = aux.iter().map(|x| self.conv("auxiliary_head.conv_seg", x)).collect();
        Computed { levels, pooled, logits, aux_logits }
    }

    /// The loss of the maps of a batch of square images with `labels`: decode + 0.4 · auxiliary.
    pub(crate) fn loss(&self, maps: &[Vec<Map>; 4], labels: &[i64], side: usize) -> f64 {
        let computed = self.compute(maps);
        cross_entropy(&computed.logits, labels, side)
            + 0.4 * cross_entropy(&computed.aux_logits, labels, side)
    }
}

/// Mean and biased variance of every channel over all pixels of all images.
pub(crate) fn moments(xs: &[Map]) -> (Vec<f64>, Vec<f64>) {
    let count = (xs.len() * xs[0].height * xs[0].width) as f64;
    let channel = |c: usize| {
        let size = xs[0].height * xs[0].width;
        let all = || xs.iter().flat_map(|x| x.values[c * size..(c + 1) * size].iter().copied());
        let mean = all().sum::<f64>() / count;
        (mean, all().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count)
    };
    (0..xs[0].channels).map(channel).unzip()
}

/// The mean over all pixels; ignored ones are in the divisor alone.
fn cross_entropy(logits: &[Map], labels: &[i64], side: usize) -> f64 {
    let mut sum = 0.0;
    for (logits, labels) in logits.iter().zip(labels.chunks(side * side)) {
        let large = logits.resized(side, side);
        for (pixel, &label) in labels.iter().enumerate().filter(|&(_, &label)| label != 255) {
            let of = |class: usize| large.at(class, pixel / side, pixel % side);
            let total: f64 = (0..large.channels).map(|class| of(class).exp()).sum();
            sum += total.ln() - of(usize::try_from(label).unwrap());
        }
    }
    sum / labels.len() as f64
}
