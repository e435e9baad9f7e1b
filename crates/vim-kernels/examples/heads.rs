//! The operations of UperNet's heads at the sizes of a picture of 512 px: milliseconds of each,
//! forward, and forward and backward together.
//!
//! `cargo run --release -p vim-kernels --example heads --features cuda` with up to four arguments
//! after `--`: cuda (the default where the build has it), wgpu or cpu; bf16 (the default), tf32 or
//! f32; the batch, 8; and the width, 192. This is work for a GPU.
//!
//! A time is the median of seven, each of ten calls queued one behind the other. The backward pass
//! starts from a gradient of ones, which is written first.

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use burn::tensor::{DType, Device, Distribution, FloatDType, Int, Tensor};
use strum::VariantArray;
use vim_kernels::{
    KernelChoice, KernelError, Precision, channel_sums, conv3x3, resize, resize_nll, scale_shift,
};

const TIMES: usize = 7;
const CALLS: usize = 10;
const CLASSES: usize = 150;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments
        .next()
        .unwrap_or_else(|| if cfg!(feature = "cuda") { "cuda" } else { "cpu" }.to_owned());
    let device = match name.as_str() {
        #[cfg(feature = "cuda")]
        "cuda" => Device::cuda(0),
        #[cfg(feature = "wgpu")]
        "wgpu" => Device::wgpu(burn::tensor::DeviceKind::DefaultDevice),
        "cpu" => Device::flex(),
        other => return Err(format!("this build has no device {other}").into()),
    };
    let precision = arguments.next().unwrap_or_else(|| "bf16".to_owned());
    let known = Precision::VARIANTS.iter().find(|one| one.to_string() == precision);
    let precision = *known.ok_or_else(|| format!("{precision} is no precision"))?;
    precision.check(&device)?;
    let batch = arguments.next().map_or(Ok(8), |text| text.parse())?;
    let width = arguments.next().map_or(Ok(192), |text| text.parse())?;
    println!("{name}, batch {batch}, width {width}, {precision}");
    println!(
        "{:<42}{:>12}{:>10}{:>14}{:>10}",
        "", "forward ms", "TFLOP/s", "with back ms", "TFLOP/s"
    );
    let heads = Heads { device, precision, batch };
    heads.run(width)?;
    Ok(())
}

fn flat<const R: usize>(y: Tensor<R>) -> Tensor<1> {
    let count = y.shape().num_elements();
    y.reshape([count])
}

/// What the operations are measured on.
struct Heads {
    device: Device,
    precision: Precision,
    batch: usize,
}

impl Heads {
    fn run(&self, width: usize) -> Result<(), KernelError> {
        for (side, inputs, outputs) in [
            (128, 4 * width, width),
            (128, width, width),
            (64, width, width),
            (32, width, width),
            (16, 5 * width, width),
            (32, width, 256),
        ] {
            self.conv3x3(side, inputs, outputs)?;
        }
        for side in [64, 32, 16] {
            let call = |x: Tensor<4>| Ok(flat(resize(x, [128; 2], KernelChoice::Kernel)?));
            self.measure(&format!("resize {side} to 128, {width}"), [side, width], 0.0, call)?;
        }
        for side in [128, 32] {
            let labels = Distribution::Uniform(0.0, CLASSES as f64);
            let shape = [self.batch, 512, 512];
            let labels: Tensor<3, Int> = Tensor::<3>::random(shape, labels, &self.device).int();
            let call = |x: Tensor<4>| Ok(resize_nll(x, labels.clone(), KernelChoice::Kernel)?.loss);
            let name = format!("resize_nll {side} to 512, {CLASSES} classes");
            self.measure(&name, [side, CLASSES], 0.0, call)?;
        }
        let call = |x: Tensor<4>| Ok(flat(channel_sums(x, KernelChoice::Kernel)?));
        self.measure(&format!("channel_sums 128, {width}"), [128, width], 0.0, call)?;
        let channels = || Tensor::<1>::ones([width], (&self.tracked(), DType::F32)).require_grad();
        let call = |x: Tensor<4>| {
            Ok(flat(scale_shift(x, channels(), channels(), true, KernelChoice::Kernel)?))
        };
        self.measure(&format!("scale_shift 128, {width}"), [128, width], 0.0, call)
    }

    fn conv3x3(&self, side: usize, inputs: usize, outputs: usize) -> Result<(), KernelError> {
        let weight = Tensor::<4>::random(
            [outputs, inputs, 3, 3],
            Distribution::Normal(0.0, 0.05),
            &self.tracked(),
        );
        let weight = weight.require_grad();
        let call = |x: Tensor<4>| {
            let y = conv3x3(x, weight.clone(), None, self.precision, KernelChoice::Kernel)?;
            Ok(flat(y))
        };
        let operations = 2.0 * (self.batch * side * side * inputs * outputs * 9) as f64;
        let name = format!("conv3x3 {side}, {inputs} to {outputs}");
        self.measure(&name, [side, inputs], operations, call)
    }

    fn tracked(&self) -> Device {
        self.device.clone().autodiff()
    }

    /// Times `call` on images with sides and channels as given; of `operations` forward, and twice
    /// as many backward.
    fn measure(
        &self,
        name: &str,
        [side, channels]: [usize; 2],
        operations: f64,
        call: impl Fn(Tensor<4>) -> Result<Tensor<1>, KernelError>,
    ) -> Result<(), KernelError> {
        let shape = [self.batch, side, side, channels];
        let normal = Distribution::Normal(0.0, 1.0);
        let x = Tensor::<4>::random(shape, normal, &self.tracked());
        let x = x.cast(FloatDType::from(self.precision.activations())).detach();
        let tracked = x.clone().require_grad();
        let forward = self.time(|| call(x.clone()).map(drop))?;
        let both = self.time(|| call(tracked.clone()).map(|y| drop(y.backward())))?;
        let speed = |operations: f64, ms: f64| match operations {
            0.0 => String::new(),
            _ => format!("{:.1}", operations / ms * 1e-9),
        };
        let (one, three) = (speed(operations, forward), speed(3.0 * operations, both));
        println!("{name:<42}{forward:>12.3}{one:>10}{both:>14.3}{three:>10}");
        Ok(())
    }

    /// The milliseconds of a call.
    fn time(&self, call: impl Fn() -> Result<(), KernelError>) -> Result<f64, KernelError> {
        let mut times = Vec::with_capacity(TIMES);
        for _ in 0..=TIMES {
            let start = Instant::now();
            for _ in 0..CALLS {
                call()?;
            }
            self.device.sync().expect("the device answers");
            times.push(start.elapsed().as_secs_f64() * 1e3 / CALLS as f64);
        }
        // The first is of compiling and of the first allocations.
        let times = &mut times[1..];
        times.sort_by(f64::total_cmp);
        Ok(times[TIMES / 2])
    }
}
