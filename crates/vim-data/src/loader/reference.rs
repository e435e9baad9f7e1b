//! The orders of the original's samplers, index by index.
//!
//! The order is `torch.randperm(n)` of a Mersenne Twister seeded with the epoch alone. Repeats, the
//! share of each device and the length of an epoch are those of `RASampler` (`samplers.py`) if an
//! image is drawn more than once, else of PyTorch's `DistributedSampler`. Without torchrun the
//! original uses PyTorch's `RandomSampler`, whose order depends on all earlier random numbers;
//! `DistributedSampler` of one device replaces it here.

use super::places;
use crate::error::DataError;

/// The most images for which `torch.randperm` draws 32-bit numbers, 2³² / 20.
const MOST: u32 = u32::MAX / 20;

/// `torch.randperm(images)`, seeded with the epoch.
pub(super) fn order(images: usize, epoch: u64) -> Result<Vec<u32>, DataError> {
    let mut order = places(images, MOST)?;
    let mut twister = MersenneTwister::new(epoch as u32);
    for place in 0..images.saturating_sub(1) {
        let left = (images - place) as u32;
        order.swap(place, place + (twister.next() % left) as usize);
    }
    Ok(order)
}

/// Draws on each of `world` devices.
///
/// With repeats: the number of images rounded down to 256, divided among the devices. Otherwise:
/// all images, divided, the first ones again where the shares would differ.
pub(super) fn draws_per_rank(images: usize, repeats: usize, world: usize) -> usize {
    if repeats > 1 { images / 256 * 256 / world } else { images.div_ceil(world) }
}

/// Words of the generator's state.
const WORDS: usize = 624;

/// MT19937.
///
/// # Source
/// Matsumoto and Nishimura 1998, "Mersenne twister", with the initialisation of 2002
/// (`init_genrand`).
struct MersenneTwister {
    state: [u32; WORDS],
    next: usize,
}

impl MersenneTwister {
    fn new(seed: u32) -> Self {
        let mut state = [seed; WORDS];
        for at in 1..WORDS {
            let last = state[at - 1];
            state[at] = (last ^ (last >> 30)).wrapping_mul(1_812_433_253).wrapping_add(at as u32);
        }
        Self { state, next: WORDS }
    }

    fn next(&mut self) -> u32 {
        if self.next == WORDS {
            self.twist();
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    fn twist(&mut self) {
        for at in 0..WORDS {
            let joined =
                (self.state[at] & 0x8000_0000) | (self.state[(at + 1) % WORDS] & 0x7fff_ffff);
            let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[at] = self.state[(at + 397) % WORDS] ^ (joined >> 1) ^ odd;
        }
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_twister_is_the_published_one() {
        // The C++ standard gives the 10 000th number of `std::mt19937` with its default seed.
        let mut twister = MersenneTwister::new(5489);
        let last = (0..10_000).map(|_| twister.next()).last();
        assert_eq!(last, Some(4_123_659_995));
    }
}
