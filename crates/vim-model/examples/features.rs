//! Feature maps of an image after several blocks, as a segmentation or detection head takes them.

use std::error::Error;
use std::process::ExitCode;

use burn::tensor::{Device, Tensor};
use vim_model::{Preset, VimConfig};

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
    let device = Device::flex();
    let config = VimConfig {
        image_size: [64, 96].into(),
        depth: 4,
        d_model: 64,
        ..VimConfig::preset(Preset::Tiny)
    };
    // For trained weights: `vim_model::import_pytorch(&config, "vim.pth".as_ref(), &device)?`, or
    // `vim_engine::load`, which knows the configuration of its own.
    let model = config.init(&device, 0)?;
    let image = Tensor::<4>::zeros([1, 3, 64, 96], &device);
    let blocks = [1, 3];
    for (block, map) in blocks.into_iter().zip(model.feature_maps(image.clone(), &blocks)?) {
        println!("block {block}: {:?}", map.dims()); // [1, 64, 4, 6]
    }

    // Layers can also be built and used alone.
    let tokens = model.patch_embed.forward(image)?;
    let (mixed, residual) = config.block().init(&device, 0)?.forward(tokens, None)?;
    println!("one block: {:?} and its residual {:?}", mixed.dims(), residual.dims());
    Ok(())
}
