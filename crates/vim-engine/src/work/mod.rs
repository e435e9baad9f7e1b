//! What the commands do beside training. Their arguments and help are the program's.

pub mod bench;
pub mod coco;
pub mod convert;
pub mod doctor;
pub mod evaluate;
pub mod explain;
pub mod features;
pub mod images;
pub mod loader;
pub mod onnx;
pub mod predict;
pub mod profile;
pub mod runs;
pub mod slurm;
pub mod sweep;
pub mod training;

use strum::VariantArray;
use vim_kernels::Discretization;

/// The methods `asked` for in the order of definition, without duplicates; all if none is named.
pub fn methods(asked: &[Discretization]) -> Vec<Discretization> {
    let wanted = |method: &&Discretization| asked.is_empty() || asked.contains(method);
    Discretization::VARIANTS.iter().filter(wanted).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_come_once_and_in_order() {
        use Discretization::{Rk4, Zoh};
        assert_eq!(methods(&[Rk4, Zoh, Rk4]), [Zoh, Rk4]);
        assert_eq!(methods(&[]), Discretization::VARIANTS);
    }
}
