//! Dropout of whole channels.

use burn::tensor::{FloatDType, Tensor, TensorData};
use vim_model::{Draw, keyed, unit};

/// The heads, which draw each for itself.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Decode,
    Auxiliary,
}

/// `x`, `[B, H, W, C]`, with each channel of an image set to 0 with probability `rate`, and the
/// others scaled by 1/(1 − rate). A function of the draw and of the image's place in the whole
/// batch.
///
/// # Source
///
/// Tompson et al. 2015; `torch.nn.Dropout2d`.
pub(crate) fn dropout(x: Tensor<4>, rate: f64, draw: Option<Draw>, place: Place) -> Tensor<4> {
    let Some(Draw { seed, first }) = draw.filter(|_| rate > 0.0) else { return x };
    let [batch, _, _, channels] = x.dims();
    let factors: Vec<f32> = (first..first + batch)
        .flat_map(|image| factors(seed, image, rate, channels, place))
        .collect();
    let factors =
        Tensor::<4>::from_data(TensorData::new(factors, [batch, 1, 1, channels]), &x.device());
    let dtype = FloatDType::from(x.dtype());
    x * factors.cast(dtype)
}

fn factors(seed: u64, image: usize, rate: f64, channels: usize, place: Place) -> Vec<f32> {
    let place = match place {
        Place::Decode => 0,
        Place::Auxiliary => 1_u64 << 32,
    };
    let mut rng = keyed(b"vim-dense: drops", seed, place + image as u64);
    let kept = (1.0 / (1.0 - rate)) as f32;
    (0..channels).map(|_| if unit(&mut rng) < rate { 0.0 } else { kept }).collect()
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn whole_channels_are_dropped_and_the_mean_is_kept() {
        let (rate, channels) = (0.3, 20_000);
        let factors = factors(5, 2, rate, channels, Place::Decode);
        let dropped = factors.iter().filter(|&&factor| factor == 0.0).count();
        // Five standard deviations of the binomial.
        assert!(dropped.abs_diff(6_000) < 325, "{dropped}");
        assert!(factors.iter().all(|&factor| factor == 0.0 || factor == (1.0 / 0.7_f64) as f32));
        let x = Tensor::<4>::ones([2, 3, 2, 8], &Device::flex());
        let y = dropout(x, 0.5, Some(Draw { seed: 1, first: 0 }), Place::Decode);
        let y: Vec<f32> = y.into_data().iter().collect();
        for (image, pixels) in y.chunks(6 * 8).enumerate() {
            assert!(pixels.chunks(8).all(|pixel| pixel == &pixels[..8]), "image {image}");
        }
    }

    #[test]
    fn a_draw_has_its_key_and_is_the_same_in_parts() {
        let of = |seed, image, place| factors(seed, image, 0.5, 64, place);
        let one = of(1, 1, Place::Decode);
        assert_eq!(one, of(1, 1, Place::Decode));
        assert_ne!(one, of(2, 1, Place::Decode));
        assert_ne!(one, of(1, 2, Place::Decode));
        assert_ne!(one, of(1, 1, Place::Auxiliary));
        let device = Device::flex();
        let ones = |batch| Tensor::<4>::ones([batch, 1, 1, 16], &device);
        let draw = |first| Some(Draw { seed: 9, first });
        let whole = dropout(ones(4), 0.4, draw(0), Place::Decode);
        let part = dropout(ones(2), 0.4, draw(2), Place::Decode);
        let expected: Vec<f32> = whole.narrow(0, 2, 2).into_data().iter().collect();
        assert_eq!(part.into_data().iter::<f32>().collect::<Vec<_>>(), expected);
    }
}
