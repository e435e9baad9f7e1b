//! Forms of weights that a graph has no launches for: they are computed before it is recorded.
//!
//! Operations name the weights by their addresses, as an operation deep in a model has no other way
//! to learn what was made of them; whoever makes something beforehand holds a
//! [`PreparedByAddress`].

use std::cell::RefCell;
use std::marker::PhantomData;

use burn::backend::TensorMetadata;
use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;

/// Where a tensor lies. Of a buffer that is gone no later one has the number.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    buffer: usize,
    begin: u64,
    shape: Vec<usize>,
    strides: Vec<usize>,
    dtype: DType,
}

impl Place {
    fn of(tensor: &CubeTensor) -> Self {
        Self {
            buffer: buffer(tensor),
            begin: tensor.handle.offset_start.unwrap_or(0),
            shape: tensor.shape().iter().copied().collect(),
            strides: tensor.meta.strides().to_vec(),
            dtype: tensor.dtype,
        }
    }
}

/// The number of a tensor's buffer.
pub fn buffer(tensor: &CubeTensor) -> usize {
    tensor.handle.memory.descriptor().id.value
}

/// What was made of weights, and from which.
#[derive(Debug)]
struct Constant {
    what: &'static str,
    of: Vec<Place>,
    made: Vec<CubeTensor>,
    /// Whether a run has found it: the second one, that it is made of weights, and the recorded
    /// one, that the graph reads it.
    was_found: bool,
}

/// The state between the first run of a computation and the end of its recording.
#[derive(Debug)]
struct Constants {
    /// The buffer whose contents change from replay to replay.
    input: usize,
    /// Launches run, so that what they write can be kept.
    is_warming_up: bool,
    all: Vec<Constant>,
}

/// Finds what was made of these weights beforehand.
type Source = Box<dyn Fn(&str, &[&CubeTensor]) -> Option<Vec<CubeTensor>>>;

thread_local! {
    static CONSTANTS: RefCell<Option<Constants>> = const { RefCell::new(None) };
    static SOURCE: RefCell<Option<Source>> = const { RefCell::new(None) };
}

/// While it lives, [`constant_by_address`] asks a source before it computes, on this thread.
#[derive(Debug)]
pub struct PreparedByAddress(PhantomData<*const ()>);

impl PreparedByAddress {
    /// `None` while this thread records a graph, which keeps what it finds itself.
    pub fn from_source(source: impl FnOnce() -> Option<Source>) -> Option<Self> {
        if CONSTANTS.with_borrow(Option::is_some) {
            return None;
        }
        SOURCE.set(Some(source()?));
        Some(Self(PhantomData))
    }
}

impl Drop for PreparedByAddress {
    fn drop(&mut self) {
        SOURCE.set(None);
    }
}

/// Keeps what is made of weights while it lives, for a graph with this `input`.
pub(super) struct Keeper;

impl Keeper {
    /// `None` while this thread records another graph.
    pub(super) fn of(input: &CubeTensor) -> Option<Self> {
        CONSTANTS.with_borrow_mut(|constants| {
            let is_free = constants.is_none();
            let fresh = || Constants { input: buffer(input), is_warming_up: true, all: Vec::new() };
            constants.get_or_insert_with(fresh);
            is_free.then(|| Self)
        })
    }

    /// From here on launches do not run: nothing more is kept, and no longer what no run has found
    /// again, as it was made of what a run itself makes.
    pub(super) fn close(&self) {
        CONSTANTS.with_borrow_mut(|constants| {
            if let Some(constants) = constants {
                constants.is_warming_up = false;
                constants.all.retain(|one| one.was_found);
                constants.all.iter_mut().for_each(|one| one.was_found = false);
            }
        });
    }

    /// What the recorded pass reads.
    pub(super) fn kept(self) -> Vec<CubeTensor> {
        let constants = CONSTANTS.take().map(|constants| constants.all).unwrap_or_default();
        constants.into_iter().filter(|one| one.was_found).flat_map(|one| one.made).collect()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        CONSTANTS.set(None);
    }
}

/// What `make` returns, a function of the weights `of` alone that `what` names.
///
/// Computed at each call, except where it was [prepared](PreparedByAddress), and while a graph is
/// recorded: then once, before the recording. A weight that the computation itself makes is another
/// buffer in each of its passes, so it is no constant, and neither is the graph's input.
pub fn constant_by_address<const N: usize>(
    what: &'static str,
    of: &[&CubeTensor],
    make: impl FnOnce() -> [CubeTensor; N],
) -> [CubeTensor; N] {
    let found = CONSTANTS.with_borrow_mut(|constants| {
        let constants = constants.as_mut()?;
        let places: Vec<Place> = of.iter().map(|tensor| Place::of(tensor)).collect();
        let one = constants.all.iter_mut().find(|one| one.what == what && one.of == places)?;
        one.was_found = true;
        one.made.clone().try_into().ok()
    });
    let prepared = || {
        let made = SOURCE.with_borrow(|source| source.as_ref()?(what, of))?;
        Some(made.try_into().expect("invariant: a source makes what is asked for"))
    };
    found.or_else(prepared).unwrap_or_else(|| {
        let made = make();
        CONSTANTS.with_borrow_mut(|constants| {
            if let Some(constants) = constants
                && constants.is_warming_up
                && of.iter().all(|tensor| buffer(tensor) != constants.input)
            {
                let of = of.iter().map(|tensor| Place::of(tensor)).collect();
                constants.all.push(Constant { what, of, made: made.to_vec(), was_found: false });
            }
        });
        made
    })
}

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use std::cell::Cell;

    use burn::tensor::{Device, Tensor};

    use super::*;
    use crate::cube::primitive;

    #[test]
    fn a_weight_is_made_once_before_the_recording() {
        let device = Device::default();
        let ones = |size| primitive(Tensor::<1>::ones([size], &device));
        let (input, weight, made) = (ones(3), ones(4), Cell::new(0));
        let make = |what, of: &CubeTensor| {
            let [one] = constant_by_address(what, &[of], || {
                made.set(made.get() + 1);
                [ones(5)]
            });
            buffer(&one)
        };
        let anew = |what, of: &CubeTensor| {
            let before = made.get();
            make(what, of);
            made.get() > before
        };
        assert!(anew("a", &weight) && anew("a", &weight), "no graph is recorded");

        let keeper = Keeper::of(&input).expect("no other graph is recorded");
        assert!(Keeper::of(&input).is_none());
        let kept = make("a", &weight);
        assert!(!anew("a", &weight));
        assert!(anew("b", &weight) && !anew("b", &weight), "another function");
        assert!(anew("a", &ones(4)), "another buffer");
        assert!(anew("a", &input) && anew("a", &input), "it changes from replay to replay");
        let part = CubeTensor { handle: weight.handle.clone().offset_start(4), ..weight.clone() };
        assert!(anew("a", &part), "another part of the buffer");
        let of_a_run = ones(4);
        assert!(anew("a", &of_a_run));

        keeper.close();
        assert_eq!(make("a", &weight), kept);
        assert!(anew("a", &of_a_run), "the second run did not find it");
        assert!(anew("c", &weight) && anew("c", &weight), "what is recorded has not run");
        let kept_of_it: Vec<_> = keeper.kept().iter().map(buffer).collect();
        assert_eq!(kept_of_it, [kept], "the rest is not read");
        assert!(anew("a", &weight), "the recording has ended");
    }
}
