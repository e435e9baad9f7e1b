//! Numbers that the host draws for a pass: a recorded pass reads them where the next draw is
//! written.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;

use burn::tensor::{Device, Tensor, TensorData};

use super::{in_own_buffer, overwrite};
use crate::error::KernelError;

/// What draws numbers from the seed of a step.
type Make = Box<dyn Fn(u64) -> Vec<f32>>;

/// Numbers on the device, flat, and how they are drawn.
struct Drawn {
    numbers: Tensor<1>,
    make: Make,
}

/// The draws of a pass, in its order.
#[derive(Default)]
struct Tape {
    all: Vec<Drawn>,
    /// The next one that a recorded pass reads; `None` while draws are collected.
    next: Option<usize>,
}

thread_local! {
    static TAPE: RefCell<Option<Tape>> = const { RefCell::new(None) };
}

/// The draws of a recorded pass on this thread: those that [`drawn`] made.
///
/// A pass while they are [collected](Self::collect) says how it draws; one while they are
/// [read](Self::read) reads what they hold, in the same order, and is to be recorded; before a
/// replay they are [drawn anew](Self::renew).
#[derive(Default)]
pub struct Draws(Vec<Drawn>);

impl Draws {
    /// The draws of `pass`, whose result comes with them.
    pub fn collect<T>(pass: impl FnOnce() -> T) -> (Self, T) {
        let with = OnTape::new(Tape::default());
        let result = pass();
        (Self(with.end().all), result)
    }

    /// What `pass` returns, which reads these draws.
    ///
    /// # Panics
    ///
    /// If it draws more often than the pass that they were collected from.
    pub fn read<T>(&mut self, pass: impl FnOnce() -> T) -> T {
        let with = OnTape::new(Tape { all: std::mem::take(&mut self.0), next: Some(0) });
        let result = pass();
        self.0 = with.end().all;
        result
    }

    /// Draws from `seed`.
    ///
    /// # Errors
    ///
    /// As [`overwrite`].
    pub fn renew(&self, seed: u64) -> Result<(), KernelError> {
        self.0.iter().try_for_each(|Drawn { numbers, make }| {
            let [count] = numbers.dims();
            let new = TensorData::new(make(seed), [count]);
            overwrite(numbers, Tensor::from_data(new, &numbers.device()))
        })
    }
}

impl fmt::Debug for Draws {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Draws").field(&self.0.len()).finish()
    }
}

/// While it lives, [`drawn`] uses the tape.
struct OnTape(PhantomData<*const ()>);

impl OnTape {
    fn new(tape: Tape) -> Self {
        let before = TAPE.replace(Some(tape));
        assert!(before.is_none(), "invariant: one pass at a time");
        Self(PhantomData)
    }

    fn end(self) -> Tape {
        TAPE.take().expect("invariant: taken only at the end")
    }
}

impl Drop for OnTape {
    fn drop(&mut self) {
        TAPE.set(None);
    }
}

/// Numbers that `make` draws from `seed`, as a tensor of `shape` on `device`. All that changes them
/// from step to step is the seed.
pub fn drawn<const D: usize>(
    seed: u64,
    shape: [usize; D],
    device: &Device,
    make: impl Fn(u64) -> Vec<f32> + 'static,
) -> Tensor<D> {
    // Flat: CUDA keeps rows that are uploaded apart, and a kernel wants them dense.
    let count = shape.iter().product::<usize>();
    let upload = |numbers| Tensor::<1>::from_data(TensorData::new(numbers, [count]), device);
    let is_taped = TAPE.with_borrow(Option::is_some);
    if !is_taped {
        return upload(make(seed)).reshape(shape);
    }
    let held = TAPE.with_borrow_mut(|tape| {
        let Tape { all, next } = tape.as_mut().expect("invariant: it is there");
        match next {
            Some(at) => *at += 1,
            // Read where they are held now, too: a kernel's arguments are as in the recorded pass.
            None => {
                let numbers = in_own_buffer(&upload(make(seed)).inner());
                all.push(Drawn { numbers, make: Box::new(make) });
            }
        }
        let at = next.unwrap_or(all.len()) - 1;
        let Drawn { numbers, .. } = all.get(at).expect("a pass draws as the one before");
        numbers.clone()
    });
    let held = if device.is_autodiff() { held.autodiff() } else { held };
    held.reshape(shape)
}
