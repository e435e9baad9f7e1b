//! All of a mixer between its outer projections, as one operation, against the f64 loops of its
//! parts.

use burn::tensor::{Device, Tensor};
use vim_kernels::oracle::{OracleConv, OracleScan};
use vim_kernels::{
    DirectionWeights, Discretization, Implementation, KernelChoice, KernelError, Precision,
    Recompute, ScanOptions, Series, has_fused_mixer, mixer_inner,
};

use crate::check::{Check, Context, Row, Subject, rows_of, worst};
use crate::compare::{Dtype, Numbers, gradient, tensor, values};
use crate::product::{product, turned};

/// max |difference| / max |reference| in f32: five operations, one after the other.
const F32: f64 = 5e-5;

/// The same in bf16: activations between operations are rounded to 8 bits, four times forward and
/// five times backward, where the gradient of the sum before the gate is one of them.
const BF16: f64 = 3e-2;

const TAPS: usize = 4;

/// Images of [`FULL`] channels of which each direction fills a GPU of up to 192 multiprocessors
/// twice.
const FILLING: usize = 512;

/// Channels of Vim-Ti.
const FULL: usize = 384;

/// Every method in every type.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    if !has_fused_mixer(&context.device) {
        return Vec::new();
    }
    let check = |dtype, method| {
        let run =
            move |context: &Context, factor| {
                worst(sizes(context, method, dtype).into_iter().map(|sizes| {
                    Mixer::new(sizes, method, dtype).rows(dtype, &context.device, factor)
                }))
            };
        Check::new(Subject::Oracle, "mixer_inner", Implementation::Kernel, dtype, run)
            .of(method, Series::Exact)
    };
    let methods = &context.methods;
    let of = |&dtype| methods.iter().map(move |&method| check(dtype, method));
    context.dtypes.iter().flat_map(of).collect()
}

/// Batch, tokens, channels, states and the rank of the step.
fn sizes(context: &Context, method: Discretization, dtype: Dtype) -> Vec<[usize; 5]> {
    // The last has rows enough for the products that keep a weight in shared memory.
    let mut sizes =
        vec![[2, 1, 6, 5, 2], [3, 21, 6, 16, 3], [2, 37, 40, 4, 12], [8, 131, 40, 4, 12]];
    if method == Discretization::Zoh {
        // Of no formula's concern: states that are kept one by one, in a pass and in two, and sizes
        // at the edges of a CPU's lanes, strips and blocks.
        sizes.extend([
            [3, 21, 40, 5, 12],
            [3, 21, 40, 20, 12],
            [1, 5, 16, 1, 1],
            [1, 2, 17, 17, 2],
            [1, 300, 130, 16, 4],
            [2, 67, 40, 16, 12],
            [2, 21, 12, 16, 3],
        ]);
    }
    if context.sizes_decide() {
        // Full cubes of channels, in one segment and in several.
        sizes.extend([[2, 40, 384, 16, 12], [1, 67, 384, 16, 12]]);
        if method == Discretization::Zoh {
            // Of no formula's concern either: products of as many terms as in Vim-Ti and Vim-S,
            // with rows enough for a weight in registers, in bf16, and in shared memory.
            let batch = if dtype == Dtype::Bf16 { 66 } else { 17 };
            sizes.extend([[batch, 63, 384, 16, 12], [batch, 63, 768, 16, 24]]);
        }
    }
    sizes
}

/// The precision with activations of this type.
fn precision(dtype: Dtype) -> Precision {
    match dtype {
        Dtype::F32 => Precision::F32,
        Dtype::Bf16 => Precision::Bf16,
    }
}

/// A mixer in f64.
struct Mixer {
    batch: usize,
    len: usize,
    d_inner: usize,
    d_state: usize,
    dt_rank: usize,
    method: Discretization,
    /// `[B, L, 2D]`.
    xz: Vec<f64>,
    grad_y: Vec<f64>,
    ways: [Way; 2],
}

/// A direction's weights, or their gradients.
#[derive(Clone, Default)]
struct Way {
    conv_weight: Vec<f64>,
    conv_bias: Vec<f64>,
    x_proj: Vec<f64>,
    dt_proj: Vec<f64>,
    delta_bias: Vec<f64>,
    a_log: Vec<f64>,
    d: Vec<f64>,
}

/// Columns `from..from + count` of rows of `width`.
fn columns(of: &[f64], width: usize, from: usize, count: usize) -> Vec<f64> {
    of.chunks_exact(width).flat_map(|row| row[from..from + count].to_vec()).collect()
}

impl Mixer {
    fn new(
        [batch, len, d_inner, d_state, dt_rank]: [usize; 5],
        method: Discretization,
        dtype: Dtype,
    ) -> Self {
        let mut numbers = Numbers::new(53);
        let mut xz = numbers.vec(batch * len * 2 * d_inner, -1.5, 1.5, dtype);
        // Closed gates, behind which y says nothing of the scans: exactly, nearly, and so far that
        // exp(-z) has no f32. (Gates wide open would make every array's largest number larger.)
        let closed = [0.0, -20.0, -90.0].iter().cycle();
        for (row, z) in xz.chunks_exact_mut(2 * d_inner).step_by(2).zip(closed) {
            row[d_inner] = *z;
        }
        let grad_y = numbers.vec(batch * len * d_inner, -1.0, 1.0, dtype);
        // Sums of more terms are no larger than those of a few.
        let range = |terms: usize, few: f64| 0.5 * (few / few.max(terms as f64)).sqrt();
        let (of_x, of_dt) = (range(d_inner, 40.0), range(dt_rank, 12.0));
        let mut way = || {
            let mut vec = |count, low, high| numbers.vec(count, low, high, Dtype::F32);
            Way {
                conv_weight: vec(d_inner * TAPS, -0.7, 0.7),
                conv_bias: vec(d_inner, -0.5, 0.5),
                x_proj: vec(d_inner * (dt_rank + 2 * d_state), -of_x, of_x),
                dt_proj: vec(dt_rank * d_inner, -of_dt, of_dt),
                delta_bias: vec(d_inner, -3.0, -1.0),
                a_log: vec(d_inner * d_state, -0.5, 1.5),
                d: vec(d_inner, 0.5, 1.5),
            }
        };
        let ways = [way(), way()];
        Self { batch, len, d_inner, d_state, dt_rank, method, xz, grad_y, ways }
    }

    fn tokens(&self) -> usize {
        self.batch * self.len
    }

    fn width(&self) -> usize {
        self.dt_rank + 2 * self.d_state
    }

    /// The result of a direction, the gradient of `xz` and those of the weights.
    fn direction(&self, number: usize) -> (Vec<f64>, Vec<f64>, Way) {
        let Self { batch, len, d_inner, d_state, dt_rank, .. } = *self;
        let (way, tokens, width) = (&self.ways[number], self.tokens(), self.width());
        let conv = OracleConv {
            batch,
            len,
            d_inner,
            width: TAPS,
            silu: true,
            reverse: number == 1,
            x: columns(&self.xz, 2 * d_inner, 0, d_inner),
            weight: way.conv_weight.clone(),
            bias: Some(way.conv_bias.clone()),
        };
        let u = conv.forward();
        let projected = product(&u, &way.x_proj, [tokens, d_inner, width]);
        let dt = columns(&projected, width, 0, dt_rank);
        let a: Vec<f64> = way.a_log.iter().map(|a| -a.exp()).collect();
        let scan = OracleScan {
            batch,
            len,
            d_inner,
            d_state,
            groups: 1,
            method: self.method,
            series: Series::Exact,
            delta_softplus: true,
            reverse: number == 1,
            u: u.clone(),
            delta: product(&dt, &way.dt_proj, [tokens, dt_rank, d_inner]),
            a: a.clone(),
            b: columns(&projected, width, dt_rank, d_state),
            c: columns(&projected, width, dt_rank + d_state, d_state),
            d: Some(way.d.clone()),
            z: Some(columns(&self.xz, 2 * d_inner, d_inner, d_inner)),
            delta_bias: Some(way.delta_bias.clone()),
            b_constant: false,
            c_constant: false,
        };
        let (y, _) = scan.forward();
        let grads = scan.backward(&self.grad_y);
        let of_dt = product(
            &grads.delta,
            &turned(&way.dt_proj, [dt_rank, d_inner]),
            [tokens, d_inner, dt_rank],
        );
        let rows = of_dt.chunks_exact(dt_rank).zip(grads.b.chunks_exact(d_state));
        let rows = rows.zip(grads.c.chunks_exact(d_state));
        let of_projected: Vec<f64> = rows.flat_map(|((dt, b), c)| [dt, b, c].concat()).collect();
        let back = turned(&way.x_proj, [d_inner, width]);
        let of_u = product(&of_projected, &back, [tokens, width, d_inner]);
        let of_u: Vec<f64> = of_u.iter().zip(&grads.u).map(|(x, y)| x + y).collect();
        let of_conv = conv.backward(&of_u);
        let halves = of_conv.x.chunks_exact(d_inner).zip(grads.z.chunks_exact(d_inner));
        let of_xz = halves.flat_map(|(x, z)| [x, z].concat()).collect();
        let weights = Way {
            conv_weight: of_conv.weight,
            conv_bias: of_conv.bias,
            x_proj: product(
                &turned(&u, [tokens, d_inner]),
                &of_projected,
                [d_inner, tokens, width],
            ),
            dt_proj: product(
                &turned(&dt, [tokens, dt_rank]),
                &grads.delta,
                [dt_rank, tokens, d_inner],
            ),
            delta_bias: grads.delta_bias,
            a_log: grads.a.iter().zip(&a).map(|(grad, a)| grad * a).collect(),
            d: grads.d,
        };
        (y, of_xz, weights)
    }

    fn rows(&self, dtype: Dtype, device: &Device, factor: f64) -> Result<Vec<Row>, KernelError> {
        let Self { batch, len, d_inner, d_state, dt_rank, .. } = *self;
        let device = &device.clone().autodiff();
        let xz = tensor(&self.xz, [batch, len, 2 * d_inner], dtype, device).require_grad();
        let given = self.ways.each_ref().map(|way| DirectionWeights {
            conv_weight: weight(&way.conv_weight, [d_inner, 1, TAPS], device),
            conv_bias: weight(&way.conv_bias, [d_inner], device),
            x_proj: weight(&way.x_proj, [d_inner, self.width()], device),
            dt_proj: weight(&way.dt_proj, [dt_rank, d_inner], device),
            delta_bias: weight(&way.delta_bias, [d_inner], device),
            a_log: weight(&way.a_log, [d_inner, d_state], device),
            d: weight(&way.d, [d_inner], device),
        });
        let options = ScanOptions {
            method: self.method,
            series: Series::Exact,
            delta_softplus: true,
            reverse: false,
            choice: KernelChoice::Kernel,
        };
        let [ahead, back] = given.clone();
        let precision = precision(dtype);
        let recompute = match self.len {
            ..10 => Recompute::Nothing,
            10..=30 => Recompute::Inputs,
            _ => Recompute::States,
        };
        let y = mixer_inner(xz.clone(), ahead, back, options, precision, recompute)?;
        let upstream = tensor(&self.grad_y, [batch, len, d_inner], dtype, device);
        let grads = (y.clone() * upstream).sum().backward();
        let mut arrays = Vec::new();
        if d_inner == FULL {
            // How many numbers of y are others than in training: none, also where one direction
            // runs behind the other.
            let many = xz.clone().repeat_dim(0, FILLING.div_ceil(batch));
            let [ahead, back] = given.clone();
            let training = mixer_inner(many.clone(), ahead, back, options, precision, recompute)?;
            let [ahead, back] = given.each_ref().map(inner);
            let y = mixer_inner(many.inner(), ahead, back, options, precision, recompute)?;
            let other = y.not_equal(training.inner()).int().sum().into_scalar::<i64>();
            arrays.push(("inference", vec![other as f64], vec![0.0], 0.0));
        }

        let sum = |x: Vec<f64>, y: Vec<f64>| x.iter().zip(&y).map(|(x, y)| x + y).collect();
        let ((y_ahead, xz_ahead, ahead), (y_back, xz_back, back)) =
            rayon::join(|| self.direction(0), || self.direction(1));
        let tolerance = match dtype {
            Dtype::F32 => F32,
            Dtype::Bf16 if self.method.bounded(Series::Exact) => BF16,
            // A polynomial in delta·A multiplies what its argument was rounded by.
            Dtype::Bf16 => 2.0 * BF16,
        };
        arrays.extend([
            ("y", values(y), sum(y_ahead, y_back), tolerance),
            ("xz", gradient(&xz, &grads), sum(xz_ahead, xz_back), tolerance),
        ]);
        for (given, want) in given.iter().zip([ahead, back]) {
            arrays.extend([
                ("conv_weight", gradient(&given.conv_weight, &grads), want.conv_weight, tolerance),
                ("x_proj", gradient(&given.x_proj, &grads), want.x_proj, tolerance),
                ("dt_proj", gradient(&given.dt_proj, &grads), want.dt_proj, tolerance),
                ("a_log", gradient(&given.a_log, &grads), want.a_log, tolerance),
                ("conv_bias", gradient(&given.conv_bias, &grads), want.conv_bias, tolerance),
                ("delta_bias", gradient(&given.delta_bias, &grads), want.delta_bias, tolerance),
                ("d", gradient(&given.d, &grads), want.d, tolerance),
            ]);
        }
        let case = format!("B={batch} L={len} D={d_inner} N={d_state} R={dt_rank}");
        Ok(rows_of(arrays, 1e-30, factor, &case))
    }
}

/// Without the graph of gradients.
fn inner(of: &DirectionWeights) -> DirectionWeights {
    let DirectionWeights { conv_weight, conv_bias, x_proj, dt_proj, delta_bias, a_log, d } =
        of.clone();
    DirectionWeights {
        conv_weight: conv_weight.inner(),
        conv_bias: conv_bias.inner(),
        x_proj: x_proj.inner(),
        dt_proj: dt_proj.inner(),
        delta_bias: delta_bias.inner(),
        a_log: a_log.inner(),
        d: d.inner(),
    }
}

fn weight<const R: usize>(values: &[f64], shape: [usize; R], device: &Device) -> Tensor<R> {
    tensor(values, shape, Dtype::F32, device).require_grad()
}
