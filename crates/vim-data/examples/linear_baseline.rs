//! Measures how far a linear classifier of pixels gets on `shapes`.
//!
//! Prints the top-1 accuracy on the test split (2 000 images) after fitting to the training split
//! (10 000). A few seconds in release:
//!
//! ```text
//! cargo run --release -p vim-data --example linear_baseline
//! ```

#[path = "../tests/it/softmax.rs"]
mod softmax;

use std::process::ExitCode;

use softmax::{Fit, Pixels, Softmax};
use vim_data::{Class, DataConfig, DataError};

const FIT: Fit = Fit { epochs: 20, batch_size: 50, learning_rate: 0.005, weight_decay: 0.1 };

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), DataError> {
    let splits = vim_data::open::<Class>(&DataConfig::default())?;
    let train = Pixels::of(&splits.train)?;
    let model = Softmax::fit(&train, splits.train.num_classes(), FIT);
    println!("linear baseline train top-1 {:.2} %", 100.0 * model.accuracy(&train));
    let test = Pixels::of(&splits.test)?;
    println!("linear baseline test top-1 {:.2} %", 100.0 * model.accuracy(&test));
    Ok(())
}
