//! Patches as a matrix product are the original's convolution.

use burn::tensor::module::conv2d;
use burn::tensor::ops::ConvOptions;
use burn::tensor::{Device, Tensor};
use vim_model::VimConfig;

use crate::support::{error, images, numbers, small};

/// Touching patches, overlapping ones, gaps, and pixels left over at the edge.
#[test]
fn embedding_and_its_gradients_are_a_convolution_s() {
    let device = Device::flex().autodiff();
    for (side, patch, stride) in
        [(16, 4, 4), (18, 4, 4), (16, 4, 2), (17, 5, 3), (16, 3, 5), (4, 4, 4)]
    {
        let config = VimConfig {
            image_size: side.into(),
            patch_size: patch,
            stride: Some(stride),
            ..small()
        };
        let embed = config.init(&device, 3).unwrap().patch_embed;
        let (weight, bias) = (embed.proj.weight.val(), embed.proj.bias.val());
        let run = |by_convolution: bool| {
            let x = Tensor::<4>::from_data(images(2, side), &device).require_grad();
            let y = if by_convolution {
                let options = ConvOptions::new([stride; 2], [0; 2], [1; 2], 1);
                let y = conv2d(x.clone(), weight.clone(), Some(bias.clone()), options);
                y.flatten::<3>(2, 3).swap_dims(1, 2)
            } else {
                embed.forward(x.clone()).unwrap()
            };
            // A loss that weighs every output differently.
            let grads = (y.clone().sin() * (y.clone() + 0.3)).sum().backward();
            let grad = |g: Option<Vec<f32>>| g.unwrap();
            [
                numbers(y),
                grad(x.grad(&grads).map(numbers)),
                grad(weight.grad(&grads).map(numbers)),
                grad(bias.grad(&grads).map(numbers)),
            ]
        };
        let [ours, theirs] = [run(false), run(true)];
        assert_eq!(ours[0].len(), 2 * config.num_patches() * config.d_model);
        for (name, a, b) in
            ["y", "x", "weight", "bias"].iter().zip(&ours).zip(&theirs).map(|((n, a), b)| (n, a, b))
        {
            // f32 sums of up to 75 products in another order.
            assert!(error(a, b) < 1e-5, "{name} {:?}: {:.1e}", (side, patch, stride), error(a, b));
        }
    }
}
