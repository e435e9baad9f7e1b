//! The fused CPU scan against the reference, forward + backward: time and peak memory.
//!
//! `cargo bench -p vim-kernels` at the size of the published target, or
//! `cargo bench -p vim-kernels -- B L D N` at another. Both are checked against each other first.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use burn::tensor::{Device, Distribution, Tensor};
use strum::VariantArray;
use vim_kernels::{Discretization, KernelChoice, ScanOptions, selective_scan};

/// Counts the bytes in use, so that a peak is a fact of the program and not of the allocator or
/// the machine.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[expect(unsafe_code, reason = "a global allocator is unsafe to implement")]
// SAFETY: every call is handed to the system's allocator unchanged; the counters are atomics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A forward and a backward pass over the eight differentiable inputs of a Vim branch: the loss and
/// the gradient of `a`.
fn step_of(
    [batch, len, d_inner, d_state]: [usize; 4],
) -> impl Fn(Discretization, KernelChoice) -> (f64, Tensor<2>) {
    let device = Device::flex().autodiff();
    device.seed(0);
    let tokens = |width| {
        let normal = Distribution::Normal(0.0, 1.0);
        Tensor::<3>::random([batch, len, width], normal, &device).require_grad()
    };
    let channels = || Tensor::<1>::random([d_inner], Distribution::Default, &device).require_grad();
    let rates = Distribution::Uniform(-16.0, -1.0);
    let a = Tensor::<2>::random([d_inner, d_state], rates, &device).require_grad();
    let [u, delta, z] = [(); 3].map(|()| tokens(d_inner));
    let [b, c] = [(); 2].map(|()| tokens(d_state));
    let [d, delta_bias] = [(); 2].map(|()| channels());
    move |method, choice| {
        let options =
            ScanOptions { method, choice, delta_softplus: true, ..ScanOptions::default() };
        let out = selective_scan(
            u.clone(),
            delta.clone(),
            a.clone(),
            b.clone(),
            c.clone(),
            Some(d.clone()),
            Some(z.clone()),
            Some(delta_bias.clone()),
            options,
        )
        .expect("the sizes agree");
        let loss = out.y.square().mean();
        let grads = loss.backward();
        let value = f64::from(loss.into_scalar::<f32>());
        (value, a.grad(&grads).expect("a requires its gradient"))
    }
}

/// Median time and the peak of memory above what was in use before.
fn measure(runs: usize, mut step: impl FnMut()) -> (Duration, usize) {
    step();
    let before = IN_USE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let mut times: Vec<_> = (0..runs)
        .map(|_| {
            let start = Instant::now();
            step();
            start.elapsed()
        })
        .collect();
    times.sort();
    (times[runs / 2], PEAK.load(Ordering::Relaxed) - before)
}

fn main() {
    let sizes: Vec<usize> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    let sizes: [usize; 4] = sizes.try_into().unwrap_or([8, 197, 384, 16]);
    let step = step_of(sizes);
    let [batch, len, d_inner, d_state] = sizes;
    println!("selective scan, forward + backward, f32, B={batch} L={len} D={d_inner} N={d_state}");
    println!("method     kernel ms  MiB  reference ms   MiB  faster  memory");
    for &method in Discretization::VARIANTS {
        let (kernel, kernel_grad) = step(method, KernelChoice::Kernel);
        let (reference, reference_grad) = step(method, KernelChoice::Reference);
        let scale = reference_grad.clone().abs().max().into_scalar::<f32>();
        let off = (kernel_grad - reference_grad).abs().max().into_scalar::<f32>() / scale;
        assert!(
            (kernel - reference).abs() <= 1e-5 * reference.abs() && off <= 1e-3,
            "{method}: kernel and reference disagree: {kernel} {reference}, gradient off by {off}"
        );
        let (fast, fast_peak) = measure(9, || drop(step(method, KernelChoice::Kernel)));
        let (slow, slow_peak) = measure(3, || drop(step(method, KernelChoice::Reference)));
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
        println!(
            "{:<10}{:>10.1}{:>5.0}{:>14.0}{:>6.0}{:>7.1}x{:>7.1}x",
            method.to_string(),
            ms(fast),
            mib(fast_peak),
            ms(slow),
            mib(slow_peak),
            slow.as_secs_f64() / fast.as_secs_f64(),
            slow_peak as f64 / fast_peak as f64,
        );
    }
}
