//! Measures how many images one thread makes ready per second of its CPU time.
//!
//! Reads a folder made by `scripts/compare/peer_loader.py make`, which holds JPEGs and, in
//! `plans.json`, what is to be done to them; `scripts/compare/peer_loader.py time` measures Pillow
//! and PyTorch on the same. Prints one line of JSON for each case, the best of its rounds. Other
//! programs' load hardly matters, as it is CPU time.
//!
//! ```text
//! cargo run --release -p vim-data --features turbo --example transform_speed -- FOLDER [ROUNDS]
//! ```

use std::{env, error::Error, fs, path::Path, process::ExitCode};

use serde::Deserialize;
use vim_data::ops::{Op, Scratch};
use vim_data::{
    CropPlan, DecodeLimits, Decoder, EVAL_CROP, JpegLibrary, Pixels, Region, SamplePlan, Transform,
};

/// Height and width of what comes out.
const SIZE: [usize; 2] = [224, 224];
/// `round(255 · mean)` of ImageNet.
const FILL: [u8; 3] = [124, 116, 104];

/// What is done to a file.
#[derive(Deserialize)]
struct FilePlan {
    file: String,
    /// Three for the same decoded image.
    draws: Vec<Draw>,
}

#[derive(Deserialize)]
struct Draw {
    crop: Region,
    flip: bool,
    ops: Vec<Op>,
}

/// A thread's tools, and the files in memory.
struct Bench {
    files: Vec<(Vec<u8>, Vec<Draw>)>,
    decoder: Decoder,
    transform: Transform,
    pixels: Pixels,
    out: Vec<u8>,
}

impl Bench {
    fn open(folder: &Path) -> Result<Self, Box<dyn Error>> {
        let plans: Vec<FilePlan> = serde_json::from_slice(&fs::read(folder.join("plans.json"))?)?;
        let read = |plan: FilePlan| Ok((fs::read(folder.join(plan.file))?, plan.draws));
        Ok(Self {
            files: plans.into_iter().map(read).collect::<Result<_, std::io::Error>>()?,
            decoder: Decoder::new(DecodeLimits::default())?,
            transform: Transform::new(EVAL_CROP, FILL),
            pixels: Pixels::default(),
            out: vec![0; 3 * SIZE[0] * SIZE[1]],
        })
    }

    /// Decodes every file whole.
    fn decode(&mut self) -> Result<usize, Box<dyn Error>> {
        for (file, _) in &self.files {
            let _ = self.decoder.decode(file, &mut self.pixels)?;
        }
        Ok(self.files.len())
    }

    /// Makes every draw. `repeated` decodes a file once for all its draws; otherwise each has the
    /// part decoded that it needs.
    fn draws(&mut self, repeated: bool, with_ops: bool) -> Result<usize, Box<dyn Error>> {
        let mut count = 0;
        for (file, draws) in &self.files {
            if repeated {
                let _ = self.decoder.decode(file, &mut self.pixels)?;
            }
            for draw in draws {
                let mut region = draw.crop;
                if !repeated {
                    let (part, _) = self.decoder.decode_part(file, draw.crop, &mut self.pixels)?;
                    region.top -= part.top;
                    region.left -= part.left;
                }
                let ops = if with_ops { draw.ops.clone() } else { Vec::new() };
                let crop = CropPlan::Resized { region };
                let plan = SamplePlan { crop, flip: draw.flip, ops, ..SamplePlan::default() };
                self.transform.apply(&plan, &self.pixels, SIZE, &mut self.out);
                count += 1;
            }
        }
        Ok(count)
    }

    /// Runs a case again and again; returns images per second of CPU time in the best round.
    fn best(
        &mut self,
        rounds: usize,
        case: impl Fn(&mut Self) -> Result<usize, Box<dyn Error>>,
    ) -> Result<f64, Box<dyn Error>> {
        let mut best: f64 = 0.0;
        for _ in 0..rounds {
            let start = cpu_seconds();
            let images = case(self)?;
            best = best.max(images as f64 / (cpu_seconds() - start));
        }
        Ok(best)
    }

    /// Mean microseconds of each operation over the draws that have it, on pixels of the first
    /// file.
    fn operations(&mut self, rounds: usize) -> Result<Vec<(String, f64)>, Box<dyn Error>> {
        let file = &self.files.first().ok_or("there are no files")?.0;
        let _ = self.decoder.decode(file, &mut self.pixels)?;
        let crop = CropPlan::Resized { region: self.pixels.region() };
        let plan = SamplePlan { crop, ..SamplePlan::default() };
        self.transform.apply(&plan, &self.pixels, SIZE, &mut self.out);
        let source = self.out.clone();
        let mut all: Vec<Op> = self
            .files
            .iter()
            .flat_map(|(_, draws)| draws)
            .flat_map(|draw| draw.ops.clone())
            .collect();
        all.extend([Op::Grayscale, Op::Blur { radius: 1.3 }]);
        let mut scratch = Scratch::default();
        let mut times: Vec<(String, f64)> = Vec::new();
        for op in all {
            let name = format!("{op:?}").split(' ').next().unwrap_or_default().to_owned();
            if times.iter().any(|(known, _)| *known == name) {
                continue;
            }
            let mut best = f64::INFINITY;
            for _ in 0..rounds * 20 {
                self.out.copy_from_slice(&source);
                let start = cpu_seconds();
                op.apply(&mut self.out, SIZE, FILL, &mut scratch);
                best = best.min(cpu_seconds() - start);
            }
            times.push((name, 1e6 * best));
        }
        Ok(times)
    }
}

/// CPU time of this thread so far, as Linux keeps it to the nanosecond; not a number elsewhere.
fn cpu_seconds() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let time = text.split_whitespace().next().and_then(|first| first.parse::<f64>().ok());
    1e-9 * time.unwrap_or(f64::NAN)
}

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
    let mut args = env::args().skip(1);
    let folder = args.next().ok_or("name the folder that `peer_loader.py make` made")?;
    let rounds = args.next().map_or(Ok(8), |text| text.parse())?;
    let mut bench = Bench::open(Path::new(&folder))?;
    let print = |case: &str, rate: f64| {
        let library = JpegLibrary::default();
        print!(r#"{{"who": "vim-data {library}", "case": "{case}", "#);
        println!(r#""images_per_cpu_second": {rate:.1}}}"#);
    };
    print("decode", bench.best(rounds, Bench::decode)?);
    print("decode + crop + flip", bench.best(rounds, |bench| bench.draws(false, false))?);
    print("decode + crop + flip, repeated", bench.best(rounds, |bench| bench.draws(true, false))?);
    print("full", bench.best(rounds, |bench| bench.draws(false, true))?);
    print("full, repeated", bench.best(rounds, |bench| bench.draws(true, true))?);
    for (op, microseconds) in bench.operations(rounds)? {
        println!(r#"{{"op": "{op}", "cpu_microseconds": {microseconds:.1}}}"#);
    }
    Ok(())
}
