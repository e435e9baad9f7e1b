//! The selective scan for GPUs.

pub(crate) mod backward;
mod chunks;
pub(crate) mod forward;
pub(crate) mod place;
pub(crate) mod plan;
pub(crate) mod reduce;
mod retreat;
pub(crate) mod segments;
mod starts;
mod sums;
pub(crate) mod token;
