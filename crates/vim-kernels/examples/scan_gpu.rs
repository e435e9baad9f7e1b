//! Times and checks the scan on a GPU.
use burn::tensor::{Device, FloatDType, Tensor, Distribution};
use strum::VariantArray;
use vim_kernels::oracle::OracleScan;
use vim_kernels::{Discretization, ScanChoice, ScanOptions, Series, selective_scan};

struct Numbers(u64);
impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
    fn vec(&mut self, n: usize, low: f64, high: f64) -> Vec<f64> {
        (0..n).map(|_| f64::from((low + (high - low) * self.next()) as f32)).collect()
    }
}
fn t<const R: usize>(v: &[f64], s: [usize; R], d: &Device) -> Tensor<R> {
    let v: Vec<f32> = v.iter().map(|&x| x as f32).collect();
    Tensor::from_data(burn::tensor::TensorData::new(v, s), d)
}
fn err(got: Vec<f64>, want: &[f64]) -> f64 {
    let s = want.iter().fold(1e-30f64, |m, w| m.max(w.abs()));
    got.iter().zip(want).map(|(g, w)| { let d = (g - w).abs(); if d.is_nan() { f64::INFINITY } else { d } }).fold(0.0, f64::max) / s
}
fn vals<const R: usize>(t: Tensor<R>) -> Vec<f64> { t.into_data().iter::<f64>().collect() }

fn check(device: &Device, dtype: FloatDType, sizes: [usize; 4], method: Discretization, series: Series, reverse: bool) -> (f64, String) {
    let [bs, l, d, n] = sizes;
    let mut x = Numbers(7);
    let bf = |v: Vec<f64>| -> Vec<f64> { if dtype == FloatDType::BF16 { v.into_iter().map(|x| { let b = (x as f32).to_bits(); f64::from(f32::from_bits((b + 0x7FFF + ((b >> 16) & 1)) & 0xFFFF_0000)) }).collect() } else { v } };
    let s = OracleScan { batch: bs, len: l, d_inner: d, d_state: n, groups: 1, delta_softplus: true, method, series, reverse,
        u: bf(x.vec(bs*l*d, -1.5, 1.5)), delta: bf(x.vec(bs*l*d, -3.0, 0.5)), a: x.vec(d*n, -4.0, -0.04), b: bf(x.vec(bs*l*n, -1.0, 1.0)), c: bf(x.vec(bs*l*n, -1.0, 1.0)),
        d: Some(x.vec(d, -1.0, 1.0)), z: Some(bf(x.vec(bs*l*d, -2.0, 2.0))), delta_bias: Some(x.vec(d, -0.5, 0.5)), ..OracleScan::default() };
    let gy = bf(x.vec(bs*l*d, -1.0, 1.0));
    let dev = device.clone().autodiff();
    let tok = [bs, l, d];
    let lf = |v: &[f64], sh: [usize; 3]| t(v, sh, &dev).cast(dtype).require_grad();
    let (u, dl, z, b, c) = (lf(&s.u, tok), lf(&s.delta, tok), lf(s.z.as_ref().unwrap(), tok), lf(&s.b, [bs, l, n]), lf(&s.c, [bs, l, n]));
    let a = t(&s.a, [d, n], &dev).require_grad();
    let dd = t(s.d.as_ref().unwrap(), [d], &dev).require_grad();
    let bias = t(s.delta_bias.as_ref().unwrap(), [d], &dev).require_grad();
    let out = selective_scan(u.clone(), dl.clone(), a.clone(), b.clone(), c.clone(), Some(dd.clone()), Some(z.clone()), Some(bias.clone()),
        ScanOptions { method, series, delta_softplus: true, reverse, choice: ScanChoice::Kernel }).unwrap();
    let (wy, wl) = s.forward();
    let wg = s.backward(&gy);
    let g = (out.y.clone() * t(&gy, tok, &dev).cast(dtype)).sum().backward();
    let es = [("y", err(vals(out.y), &wy)), ("h", err(vals(out.last_state), &wl)), ("du", err(vals(u.grad(&g).unwrap()), &wg.u)), ("ddelta", err(vals(dl.grad(&g).unwrap()), &wg.delta)),
        ("da", err(vals(a.grad(&g).unwrap()), &wg.a)), ("db", err(vals(b.grad(&g).unwrap()), &wg.b)), ("dc", err(vals(c.grad(&g).unwrap()), &wg.c)), ("dd", err(vals(dd.grad(&g).unwrap()), &wg.d)),
        ("dz", err(vals(z.grad(&g).unwrap()), &wg.z)), ("dbias", err(vals(bias.grad(&g).unwrap()), &wg.delta_bias))];
    (es.iter().fold(0.0, |m: f64, e| m.max(e.1)), es.iter().map(|(n, e)| format!("{n} {e:.0e}")).collect::<Vec<_>>().join(" "))
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let device = Device::cuda(0);
    let mode = args[1].as_str();
    if mode == "check" {
        for dtype in [FloatDType::F32, FloatDType::BF16] {
            for sizes in [[2, 37, 10, 16], [1, 1025, 33, 16], [3, 197, 150, 16], [2, 197, 5, 12], [1, 5, 64, 17]] {
                for &method in Discretization::VARIANTS {
                    for (series, reverse) in [(Series::Exact, false), (Series::Taylor, true)] {
                        let (e, s) = check(&device, dtype, sizes, method, series, reverse);
                        println!("{} {dtype:?} {sizes:?} {method} {series} {reverse} {s}", if e < 3e-2 && (dtype == FloatDType::BF16 || e < 2e-4) { "ok " } else { "BAD" });
                    }
                }
            }
        }
        return;
    }
    let methods: Vec<Discretization> = Discretization::VARIANTS.iter().copied().filter(|m| args.len() < 3 || args[2].split(',').any(|a| a == m.to_string())).collect();
    for [bs, d, l] in [[128, 384, 197], [64, 768, 197], [8, 384, 1025], [1, 384, 6085]] {
        for &method in &methods {
            let n = 16;
            let dev = device.clone().autodiff();
            let r = |s: [usize; 3], lo: f64, hi: f64| Tensor::<3>::random(s, Distribution::Uniform(lo, hi), &dev).cast(FloatDType::BF16);
            let tok = [bs, l, d];
            let plain = (r(tok, -1.0, 1.0), r(tok, -0.5, 0.5), r(tok, -1.0, 1.0), r([bs, l, n], -1.0, 1.0), r([bs, l, n], -1.0, 1.0));
            let a: Vec<f64> = (0..d * n).map(|i| -((i % n + 1) as f64)).collect();
            let a = t(&a, [d, n], &dev);
            let dd = t(&vec![1.0; d], [d], &dev);
            let bias: Vec<f64> = (0..d).map(|i| -4.0 + 0.1 * (i % 20) as f64).collect();
            let bias = t(&bias, [d], &dev);
            let opts = ScanOptions { method, series: Series::Exact, delta_softplus: true, reverse: false, choice: ScanChoice::Kernel };
            let fwd = || selective_scan(plain.0.clone(), plain.1.clone(), a.clone(), plain.3.clone(), plain.4.clone(), Some(dd.clone()), Some(plain.2.clone()), Some(bias.clone()), opts).unwrap().y;
            let g = (plain.0.clone().require_grad(), plain.1.clone().require_grad(), plain.2.clone().require_grad(), plain.3.clone().require_grad(), plain.4.clone().require_grad(), a.clone().require_grad(), dd.clone().require_grad(), bias.clone().require_grad());
            let fwd_g = || selective_scan(g.0.clone(), g.1.clone(), g.5.clone(), g.3.clone(), g.4.clone(), Some(g.6.clone()), Some(g.2.clone()), Some(g.7.clone()), opts).unwrap().y;
            let (trials, warm) = if mode == "ncu" { (0, 1) } else { (40, 5) };
            let (mut f, mut fs, mut b) = (vec![], vec![], vec![]);
            let raw = device.clone();
            for i in 0..trials + warm {
                let (_, p) = raw.profile(|| fwd()).unwrap();
                let x = cubecl::future::block_on(p.resolve()).duration().as_secs_f64() * 1e3;
                let (y, p) = raw.profile(|| fwd_g()).unwrap();
                let x2 = cubecl::future::block_on(p.resolve()).duration().as_secs_f64() * 1e3;
                let (_, p) = raw.profile(|| y.backward()).unwrap();
                let x3 = cubecl::future::block_on(p.resolve()).duration().as_secs_f64() * 1e3;
                if i >= warm { f.push(x); fs.push(x2); b.push(x3); }
            }
            if mode == "ncu" { continue; }
            // queued: many between two syncs
            raw.sync().unwrap();
            let t0 = std::time::Instant::now();
            for _ in 0..200 { let _ = fwd(); }
            raw.sync().unwrap();
            let qf = t0.elapsed().as_secs_f64() * 1e3 / 200.0;
            let ys: Vec<_> = (0..30).map(|_| fwd_g()).collect();
            raw.sync().unwrap();
            let t0 = std::time::Instant::now();
            for y in ys { let _ = y.backward(); }
            raw.sync().unwrap();
            let qb = t0.elapsed().as_secs_f64() * 1e3 / 30.0;
            let med = |v: &mut Vec<f64>| { v.sort_by(|a, b| a.total_cmp(b)); (v[v.len() / 2], v[0]) };
            let (f, fs, b) = (med(&mut f), med(&mut fs), med(&mut b));
            println!("{bs},{d},{l} {method:10} fwd {:.4} (min {:.4}, queued {qf:.4}) fwd+save {:.4} (min {:.4}) bwd {:.4} (min {:.4}, queued {qb:.4})", f.0, f.1, fs.0, fs.1, b.0, b.1);
        }
    }
}
