//! The whole network again, in plain f64 loops over plain vectors, for every variant: written from
//! the formulas, without a tensor, and counting every operation that it does.
//!
//! It reads parameters by their paths. Where it is given the same ones it must come to the same
//! logits.

use vim_kernels::{Real, discretize};
use vim_model::{Bimamba, ClassToken, LayerScale, NormKind, Pool, Rope, VimConfig};

use crate::counted::{Counted, Counts, component, count, counts_of};
use crate::support::Named;

type Row = Vec<Counted>;

/// `Σ a·b`, in multiply-adds.
fn dot<'a>(a: &[Counted], b: impl IntoIterator<Item = &'a f32>) -> Counted {
    let mut sum = 0.0;
    for (a, &b) in a.iter().zip(b) {
        count(1, 2);
        sum += a.0 * f64::from(b);
    }
    Counted(sum)
}

/// A linear map without bias by the name of its weight, `[outputs, inputs]`.
fn linear(parameters: &Named, name: &str, x: &[Counted]) -> Row {
    let (shape, weight) = &parameters[name];
    assert_eq!(shape[1], x.len(), "{name}");
    weight.chunks(shape[1]).map(|row| dot(x, row)).collect()
}

fn add(a: &[Row], b: &[Row]) -> Vec<Row> {
    let sum = |(a, b): (&Row, &Row)| a.iter().zip(b).map(|(&a, &b)| a + b).collect();
    a.iter().zip(b).map(sum).collect()
}

fn reversed(x: &[Row]) -> Vec<Row> {
    x.iter().rev().cloned().collect()
}

/// The network with its parameters.
pub(crate) struct Naive<'a> {
    pub(crate) config: &'a VimConfig,
    pub(crate) parameters: &'a Named,
}

impl Naive<'_> {
    fn get(&self, name: &str) -> &[f32] {
        &self.parameters.get(name).unwrap_or_else(|| panic!("no {name}")).1
    }

    /// Logits of an image, `[3, H, W]`, in evaluation; `order` may reverse the tokens before the
    /// blocks.
    pub(crate) fn logits(&self, image: &[f32], flipped: bool) -> (Vec<f64>, Counts) {
        counts_of(|| self.evaluate(image, flipped))
    }

    fn evaluate(&self, image: &[f32], flipped: bool) -> Vec<f64> {
        let config = self.config;
        let (tokens, class) = self.embed(image);
        let tokens = if flipped { reversed(&tokens) } else { tokens };
        let (hidden, residual) = self.blocks(tokens, flipped);
        component("norm");
        let len = hidden.len();
        let read = match (&class[..], config.pool()) {
            ([], Pool::Last) => vec![len - 1],
            ([], Pool::Mean | Pool::Max) => (0..len).collect(),
            (places, _) => places.to_vec(),
        };
        let only = |x: &[Row]| -> Vec<Row> { read.iter().map(|&t| x[t].clone()).collect() };
        let sum = add(&only(&residual), &only(&hidden));
        let normed: Vec<Row> = sum.iter().map(|x| self.norm("norm_f", x)).collect();
        component("head");
        let head = |x: &Row| -> Vec<f64> {
            let logits = linear(self.parameters, "head.weight", x);
            logits.iter().zip(self.get("head.bias")).map(|(x, &b)| x.0 + f64::from(b)).collect()
        };
        if class.is_empty() && config.pool() == Pool::Max {
            let each: Vec<Vec<f64>> = normed.iter().map(head).collect();
            let largest = |k: usize| each.iter().map(|x| x[k]).fold(f64::MIN, f64::max);
            (0..config.num_classes).map(largest).collect()
        } else if normed.len() == 1 {
            head(&normed[0])
        } else {
            let mean = |m: usize| {
                let sum = normed.iter().skip(1).fold(normed[0][m], |sum, x| sum + x[m]);
                sum.scale(1.0 / normed.len() as f64)
            };
            head(&(0..config.d_model).map(mean).collect())
        }
    }

    /// What the last block puts out for the patches, in the order of the image, flat.
    pub(crate) fn patches_after_blocks(&self, image: &[f32], flipped: bool) -> Vec<f32> {
        let (tokens, class) = self.embed(image);
        let tokens = if flipped { reversed(&tokens) } else { tokens };
        let (hidden, _) = self.blocks(tokens, flipped);
        let hidden = if flipped { reversed(&hidden) } else { hidden };
        let patches = hidden.iter().enumerate().filter(|(t, _)| !class.contains(t));
        patches.flat_map(|(_, row)| row.iter().map(|x| x.0 as f32)).collect()
    }

    /// For the patches, flat: the residual stream that the last block adds to, that stream with the
    /// block's output, and the latter through the last norm.
    pub(crate) fn streams(&self, image: &[f32]) -> [Vec<f32>; 3] {
        let (tokens, class) = self.embed(image);
        let (hidden, residual) = self.blocks(tokens, false);
        let sum = add(&residual, &hidden);
        let normed: Vec<Row> = sum.iter().map(|x| self.norm("norm_f", x)).collect();
        [residual, sum, normed].map(|rows| {
            let patches = rows.iter().enumerate().filter(|(t, _)| !class.contains(t));
            patches.flat_map(|(_, row)| row.iter().map(|x| x.0 as f32)).collect()
        })
    }

    /// Patches with class tokens among them and positions added, and where the class tokens are.
    fn embed(&self, image: &[f32]) -> (Vec<Row>, Vec<usize>) {
        component("patch_embed");
        let config = self.config;
        let (height, width) = (config.image_size.height, config.image_size.width);
        let (side, stride) = (config.patch_size, config.stride());
        let weight = self.get("patch_embed.proj.weight");
        let bias = self.get("patch_embed.proj.bias");
        let mut tokens = Vec::new();
        for top in (0..=height - side).step_by(stride) {
            for left in (0..=width - side).step_by(stride) {
                let pixel = |i: usize| {
                    let (channel, y, x) = (i / (side * side), i / side % side, i % side);
                    Counted(f64::from(image[(channel * height + top + y) * width + left + x]))
                };
                let pixels: Row = (0..3 * side * side).map(pixel).collect();
                let row = |(weight, &bias): (&[f32], &f32)| {
                    Counted(dot(&pixels, weight).0 + f64::from(bias))
                };
                tokens.push(weight.chunks(3 * side * side).zip(bias).map(row).collect::<Row>());
            }
        }
        let patches = tokens.len();
        let class = match config.class_token {
            ClassToken::None => vec![],
            ClassToken::Head | ClassToken::Random => vec![(0, "cls_token")],
            ClassToken::Middle => vec![(patches / 2, "cls_token")],
            ClassToken::Double => vec![(0, "cls_token_head"), (patches + 1, "cls_token_tail")],
        };
        for &(place, name) in &class {
            let token = self.get(name).iter().map(|&x| Counted(f64::from(x)));
            tokens.insert(place, token.collect());
        }
        component("positions");
        if config.abs_pos_embed {
            let positions = self.get("pos_embed").chunks(config.d_model);
            for (token, position) in tokens.iter_mut().zip(positions) {
                for (x, &p) in token.iter_mut().zip(position) {
                    *x = x.offset(f64::from(p));
                }
            }
        }
        (tokens, class.into_iter().map(|(place, _)| place).collect())
    }

    /// The last block's output, and the sum of what came before.
    fn blocks(&self, mut hidden: Vec<Row>, flipped: bool) -> (Vec<Row>, Vec<Row>) {
        let config = self.config;
        let mut residual: Option<Vec<Row>> = None;
        let turn = |x: &[Row]| -> Vec<Row> {
            component("rope");
            if flipped && !config.layer_pairs {
                reversed(&self.turned(&reversed(x)))
            } else {
                self.turned(x)
            }
        };
        let step = if config.layer_pairs { 2 } else { 1 };
        for layer in (0..config.depth).step_by(step) {
            if config.rope != Rope::None {
                hidden = turn(&hidden);
                if config.rope == Rope::Both {
                    residual = residual.map(|residual| turn(&residual));
                }
            }
            let one = |layer: usize, hidden: &[Row], residual: Option<Vec<Row>>| {
                component("norm");
                let sum = residual.map_or_else(|| hidden.to_vec(), |r| add(&r, hidden));
                let name = format!("layers.{layer}.norm");
                let normed: Vec<Row> = sum.iter().map(|x| self.norm(&name, x)).collect();
                (self.mixer(&format!("layers.{layer}.mixer"), &normed), sum)
            };
            let (mut mixed, mut sum) = one(layer, &hidden, residual.clone());
            if config.layer_pairs {
                let back = residual.map(|residual| reversed(&residual));
                let (mixed_back, sum_back) = one(layer + 1, &reversed(&hidden), back);
                component("norm");
                mixed = add(&mixed, &reversed(&mixed_back));
                sum = add(&sum, &reversed(&sum_back));
            }
            (hidden, residual) = (mixed, Some(sum));
        }
        (hidden, residual.unwrap())
    }

    fn norm(&self, name: &str, x: &[Counted]) -> Row {
        let weight = self.get(&format!("{name}.weight"));
        let count = x.len() as f64;
        let inverse = |x: &[Counted]| {
            let squares = x.iter().fold(Counted(0.0), |sum, &x| sum + x * x);
            let mean = squares.scale(1.0 / count);
            mean.offset(self.config.norm_eps).one(f64::sqrt).recip()
        };
        match self.config.norm {
            NormKind::Rms => {
                let r = inverse(x);
                x.iter().zip(weight).map(|(&x, &w)| (x * r).scale(f64::from(w))).collect()
            }
            NormKind::Layer => {
                let mean = x.iter().fold(Counted(0.0), |sum, &x| sum + x).scale(1.0 / count);
                let x: Row = x.iter().map(|&x| x - mean).collect();
                let r = inverse(&x);
                let bias = self.get(&format!("{name}.bias"));
                let affine = |((x, w), b): ((&Counted, &f32), &f32)| {
                    (*x * r).scale(f64::from(*w)).offset(f64::from(*b))
                };
                x.iter().zip(weight).zip(bias).map(affine).collect()
            }
        }
    }

    /// Rotary positions by their definition, on patches in order behind a token that stays.
    fn turned(&self, x: &[Row]) -> Vec<Row> {
        let config = self.config;
        let grid = config.image_size.height / config.patch_size;
        let still = x.len() % 2;
        assert_eq!(x.len() - still, grid * grid);
        let half = config.d_model / 2;
        let mut out = x[..still].to_vec();
        for (patch, token) in x[still..].iter().enumerate() {
            let mut row = token.clone();
            for first in (0..config.d_model).step_by(2) {
                let place = if first < half { patch / grid } else { patch % grid };
                let t = place as f64 / grid as f64 * config.rope_grid() as f64;
                let exponent = (first % half) as f64 / half as f64;
                let (sin, cos) = (t / 10_000_f64.powf(exponent)).sin_cos();
                let (a, b) = (token[first], token[first + 1]);
                row[first] = a.scale(cos) - b.scale(sin);
                row[first + 1] = b.scale(cos) + a.scale(sin);
            }
            out.push(row);
        }
        out
    }

    fn mixer(&self, name: &str, x: &[Row]) -> Vec<Row> {
        let d_inner = self.config.d_inner();
        component("in_proj");
        let xz: Vec<Row> = x
            .iter()
            .map(|x| linear(self.parameters, &format!("{name}.in_proj.weight"), x))
            .collect();
        let x: Vec<Row> = xz.iter().map(|row| row[..d_inner].to_vec()).collect();
        let z: Vec<Row> = xz.iter().map(|row| row[d_inner..].to_vec()).collect();
        let (forward, backward) = (format!("{name}.forward"), format!("{name}.backward"));
        let drive = self.drive(&forward, &x);
        let ahead = self.scan(0, &forward, &drive, &z, &forward);
        // What the backward way sees, and whose D and delta bias it has.
        let (drive, shared) = match self.config.bimamba {
            Bimamba::None => (None, &forward),
            Bimamba::V1 => (Some(drive.iter().rev().cloned().collect::<Vec<_>>()), &forward),
            Bimamba::V2 => (Some(self.drive(&backward, &reversed(&x))), &backward),
        };
        let sum = match drive {
            None => ahead,
            Some(drive) => {
                let back = self.scan(1, &backward, &drive, &reversed(&z), shared);
                component("gate");
                add(&ahead, &reversed(&back))
            }
        };
        let project = |row: &Row| {
            component("out_proj");
            let mut out = linear(self.parameters, &format!("{name}.out_proj.weight"), row);
            if self.config.divide_out() {
                out = out.into_iter().map(|x| x.scale(0.5)).collect();
            }
            if self.config.layer_scale != LayerScale::None {
                let gamma = self.get(&format!("{name}.gamma"));
                out = out.iter().zip(gamma).map(|(x, &g)| x.scale(f64::from(g))).collect();
            }
            out
        };
        sum.iter().map(project).collect()
    }

    /// `(u, dt · weight, B, C)` of every token.
    fn drive(&self, name: &str, x: &[Row]) -> Vec<[Row; 4]> {
        let (rank, states) = (self.config.dt_rank(), self.config.d_state);
        let taps = self.config.d_conv;
        let weight = self.get(&format!("{name}.conv1d.weight"));
        let bias = self.get(&format!("{name}.conv1d.bias"));
        let token = |t: usize| {
            component("conv1d");
            let channel = |d: usize| {
                let mut sum = f64::from(bias[d]);
                for k in 0..taps {
                    count(1, 2);
                    if t + k + 1 >= taps {
                        sum += x[t + k + 1 - taps][d].0 * f64::from(weight[d * taps + k]);
                    }
                }
                Counted(sum).silu()
            };
            let u: Row = (0..x[t].len()).map(channel).collect();
            component("x_proj");
            let low = linear(self.parameters, &format!("{name}.x_proj.weight"), &u);
            component("dt_proj");
            let dt_name = format!("{name}.dt_proj.weight");
            let delta = linear(self.parameters, &dt_name, &low[..rank]);
            let (b, c) = (low[rank..rank + states].to_vec(), low[rank + states..].to_vec());
            [u, delta, b, c]
        };
        (0..x.len()).map(token).collect()
    }

    /// The scan with the A of `name` and the D and delta bias of `shared`, gated.
    fn scan(
        &self,
        way: usize,
        name: &str,
        drive: &[[Row; 4]],
        z: &[Row],
        shared: &str,
    ) -> Vec<Row> {
        component("scan");
        let states = self.config.d_state;
        let method = self.config.methods()[way];
        let series = self.config.ssm.series;
        let two_way = method.form().two_way;
        let a_log = self.get(&format!("{name}.a_log"));
        let skip = self.get(&format!("{shared}.d"));
        let bias = self.get(&format!("{shared}.dt_proj.bias"));
        let mut out = vec![Row::new(); drive.len()];
        for d in 0..self.config.d_inner() {
            // Coefficients once, whatever the number of scans.
            let mut steps = Vec::new();
            for (t, [u, delta, b, _]) in drive.iter().enumerate() {
                let delta = delta[d].offset(f64::from(bias[d])).softplus();
                for n in 0..states {
                    let a = Counted(-f64::from(a_log[d * states + n]).exp());
                    let step = discretize(method, series, delta, a);
                    let mut input = step.b_bar * b[n] * u[d];
                    if let Some(b_prev) = step.b_prev {
                        // The input before the first token is 0.
                        let before = t.checked_sub(1).map(|t| &drive[t]);
                        let of = |which: usize, at: usize| {
                            before.map_or(Counted(0.0), |token| token[which][at])
                        };
                        let gained = b_prev * of(2, n);
                        count(1, 2);
                        input = Counted(input.0 + gained.0 * of(0, d).0);
                    }
                    steps.push((step.a_bar, input));
                }
            }
            let run = |order: &mut dyn Iterator<Item = usize>| {
                let mut h = vec![Counted(0.0); states];
                let mut y = vec![Counted(0.0); drive.len()];
                for t in order {
                    for n in 0..states {
                        let (a_bar, input) = steps[t * states + n];
                        count(2, 4);
                        h[n] = Counted(a_bar.0 * h[n].0 + input.0);
                        y[t] = Counted(y[t].0 + drive[t][3][n].0 * h[n].0);
                    }
                }
                y
            };
            let mut y = run(&mut (0..drive.len()));
            if two_way {
                let back = run(&mut (0..drive.len()).rev());
                y = y.iter().zip(back).map(|(&y, back)| (y + back).scale(0.5)).collect();
            }
            for (t, y) in y.into_iter().enumerate() {
                count(1, 2);
                let y = Counted(y.0 + f64::from(skip[d]) * drive[t][0][d].0);
                component("gate");
                out[t].push(y * z[t][d].silu());
                component("scan");
            }
        }
        out
    }
}
