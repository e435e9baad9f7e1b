//! The passes of a step as recorded launches: the host queues them as one.

use std::mem;

use burn::tensor::{Device, Tensor};
use vim_kernels::{
    Draws, Implementation, KernelError, Launches, WarmUp, runs_cuda, supports_multi_tensor,
};
use vim_model::ClassToken;

use crate::config::{Config, ConfigError, GraphChoice};
use crate::device::DeviceError;
use crate::error::Error;
use crate::task::{Held, Objective};

/// Recordings that are tried. One is given up if it asks for a buffer while all that the steps
/// before it left are in use.
const ATTEMPTS: usize = 4;
/// Warm-ups that something else than a step may end, one after the other.
const INTERRUPTIONS: usize = 8;

/// What the passes of a step come to.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    /// The gradients, and behind them the loss with what it is read with.
    pub(super) tensors: Vec<Tensor<1>>,
    /// Of the gradients; `None` without.
    pub(super) square_norm: Option<Tensor<1>>,
}

/// Forward and backward passes of a step: launched one by one for two steps, recorded in the third,
/// replayed from then on.
///
/// What a step reads from the host is written before a replay where the recorded one read it: the
/// inputs, and what is drawn from the step's seed. The weights stay where they are: the optimizer
/// changes them in place, kernel by kernel, outside of the graph.
#[derive(Debug)]
pub struct StepGraph<I> {
    state: State<I>,
    /// Steps that were replays.
    pub replays: u64,
    /// Whether a recording has failed, and nobody was told.
    is_news: bool,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one")]
enum State<I> {
    /// Why there is no graph.
    Off(String),
    Before(Before<I>),
    Recorded(Recorded<I>),
}

/// Before the recording.
#[derive(Debug)]
struct Before<I> {
    held: Held<I>,
    device: Device,
    /// By the configuration.
    is_asked_for: bool,
    failed: usize,
    interrupted: usize,
    /// Where inputs are from the first step on, so that the steps before the recorded one use as
    /// much memory.
    inputs: Vec<I>,
    warm_up: Stage,
}

/// Steps that ran since the preparation.
#[derive(Debug)]
enum Stage {
    None,
    One(WarmUp),
    Two(WarmUp, Draws),
}

#[derive(Debug)]
struct Recorded<I> {
    launches: Launches,
    overwrite: fn(&I, I) -> Result<(), KernelError>,
    inputs: Vec<I>,
    draws: Draws,
    sums: Sums,
}

/// Why a recording gave no result.
enum Failed {
    /// The device recorded none.
    Recording(KernelError),
    Pass(Error),
}

impl From<KernelError> for Failed {
    fn from(error: KernelError) -> Self {
        Self::Recording(error)
    }
}

impl<I: Clone> StepGraph<I> {
    /// No graph, because of `why`.
    pub fn off(why: impl Into<String>) -> Self {
        Self { state: State::Off(why.into()), replays: 0, is_news: false }
    }

    /// A graph on `device`, of inputs that are `held` so, which is an error to fail if it
    /// `is_asked_for`.
    pub(super) fn on(device: &Device, held: Held<I>, is_asked_for: bool) -> Self {
        let (device, inputs, warm_up) = (device.clone(), Vec::new(), Stage::None);
        let (failed, interrupted) = (0, 0);
        let before = Before { held, device, is_asked_for, failed, interrupted, inputs, warm_up };
        Self { state: State::Before(before), replays: 0, is_news: false }
    }

    /// A graph of `objective`'s steps on `device`, unless `config` or what its steps do is
    /// against it.
    ///
    /// # Errors
    ///
    /// With `devices.graph = "on"`, why there is none.
    pub fn of<O: Objective<Inputs = I>>(
        config: &Config,
        objective: &O,
        device: &Device,
        ranks: usize,
    ) -> Result<Self, ConfigError> {
        let choice = config.devices.graph;
        let held = match choice {
            GraphChoice::Off => Err("devices.graph = \"off\"".to_owned()),
            GraphChoice::Auto if !runs_cuda(device) => Err("graphs are CUDA's".to_owned()),
            GraphChoice::Auto | GraphChoice::On => may_record(config, device, ranks)
                .map_or_else(|| objective.held(), |why| Err(why.to_owned())),
        };
        match (held, choice) {
            (Ok(held), _) => Ok(Self::on(device, held, choice == GraphChoice::On)),
            (Err(why), GraphChoice::On) => Err(refused(&why)),
            (Err(why), _) => Ok(Self::off(why)),
        }
    }

    /// Why there is no graph, if there is none and will be none.
    pub fn why_not(&self) -> Option<&str> {
        match &self.state {
            State::Off(why) => Some(why),
            State::Before(_) | State::Recorded(_) => None,
        }
    }

    /// Whether steps are recorded, in words.
    pub fn described(&self) -> String {
        match self.why_not() {
            None => "steps are recorded once, and replayed as a graph".to_owned(),
            Some(why) => format!("steps are launched kernel by kernel: {why}"),
        }
    }

    /// Why the recording failed, once, in words.
    pub fn take_failure(&mut self) -> Option<String> {
        mem::take(&mut self.is_news).then(|| self.described())
    }

    /// Says that something else runs now, such as an evaluation: a warm-up begins anew, as it keeps
    /// what is uploaded meanwhile.
    pub fn interrupt(&mut self) {
        if let State::Before(before) = &mut self.state
            && !matches!(before.warm_up, Stage::None)
        {
            before.warm_up = Stage::None;
            before.interrupted += 1;
        }
    }

    /// What `pass` makes of `shards`, which draws from `seed` and changes `changed` in place.
    pub(super) fn run(
        &mut self,
        shards: Vec<I>,
        seed: u64,
        changed: impl FnOnce() -> Vec<Tensor<1>>,
        pass: &mut dyn FnMut(Vec<I>) -> Result<Sums, Error>,
    ) -> Result<Sums, Error> {
        let before = match &mut self.state {
            State::Off(_) => return pass(shards),
            State::Recorded(recorded) => {
                self.replays += 1;
                write(&recorded.inputs, shards, recorded.overwrite)?;
                return recorded.replay(seed);
            }
            State::Before(Before { interrupted: INTERRUPTIONS.., .. }) => {
                self.give_up("an evaluation or a checkpoint follows every second step or sooner")?;
                return pass(shards);
            }
            State::Before(before) => before,
        };
        let Held { hold, overwrite } = before.held;
        if before.inputs.is_empty() {
            before.inputs = shards.iter().map(hold).collect();
        }
        write(&before.inputs, shards, overwrite)?;
        let shards = before.inputs.clone();
        match mem::replace(&mut before.warm_up, Stage::None) {
            Stage::None => match WarmUp::begin(&before.device) {
                Ok(warm_up) => {
                    before.warm_up = Stage::One(warm_up);
                    pass(shards)
                }
                Err(why) => {
                    self.give_up(&why.to_string())?;
                    pass(shards)
                }
            },
            Stage::One(warm_up) => {
                let (draws, sums) = Draws::collect(|| pass(shards));
                before.warm_up = Stage::Two(warm_up, draws);
                sums
            }
            Stage::Two(warm_up, mut draws) => {
                let own = shards.clone();
                let recorded =
                    warm_up.record(&changed(), || draws.read(|| pass(own)).map_err(Failed::Pass));
                match recorded {
                    Ok((launches, sums)) => {
                        let inputs = shards;
                        let recorded = Recorded { launches, overwrite, inputs, draws, sums };
                        let sums = recorded.replay(seed);
                        self.state = State::Recorded(recorded);
                        self.replays += 1;
                        sums
                    }
                    Err(Failed::Pass(error)) => Err(error),
                    Err(Failed::Recording(why)) => {
                        before.failed += 1;
                        if before.failed == ATTEMPTS {
                            self.give_up(&why.to_string())?;
                        }
                        let sums = pass(shards)?;
                        check_not_lost(&sums, &why)?;
                        Ok(sums)
                    }
                }
            }
        }
    }

    /// Steps run kernel by kernel from here on, unless a graph was asked for.
    fn give_up(&mut self, why: &str) -> Result<(), Error> {
        if matches!(&self.state, State::Before(before) if before.is_asked_for) {
            return Err(DeviceError::of(why).map_or_else(|| refused(why).into(), Error::from));
        }
        (self.state, self.is_news) = (State::Off(why.to_owned()), true);
        Ok(())
    }
}

/// Writes `shards` where `held` ones are.
fn write<I>(
    held: &[I],
    shards: Vec<I>,
    overwrite: fn(&I, I) -> Result<(), KernelError>,
) -> Result<(), Error> {
    if held.len() != shards.len() {
        let (got, held) = (shards.len(), held.len());
        return Err(Error::internal(format!("{got} shards where {held} were recorded")));
    }
    held.iter().zip(shards).try_for_each(|(held, by)| Ok(overwrite(held, by)?))
}

/// Checks that the device computes after a recording that failed: CubeCL takes what its launches
/// may have written for lost, and on CUDA refuses what reads it.
fn check_not_lost(sums: &Sums, why: &KernelError) -> Result<(), Error> {
    let tail = sums.tensors.last().cloned();
    if tail.is_none_or(|tail| tail.try_into_data().is_ok()) {
        return Ok(());
    }
    Err(lost(&why.to_string()))
}

/// The end of a device that lost what it held in a recording: its own fault, such as no memory, or
/// else that of the recording.
fn lost(why: &str) -> Error {
    DeviceError::of(why).map_or_else(
        || {
            Error::failed(format!(
                "a step could not be recorded, and the device lost what it held: {why}: go on \
                 with `--resume auto --set devices.graph=off`"
            ))
        },
        Error::from,
    )
}

fn refused(why: &str) -> ConfigError {
    let expected = format!("\"auto\" or \"off\": a step here has no graph: {why}");
    ConfigError::range("devices.graph", GraphChoice::On, expected)
}

/// Why the steps of `config` have no graph, whatever their task.
fn may_record(config: &Config, device: &Device, ranks: usize) -> Option<&'static str> {
    let model = &config.model;
    let kernels = || model.ssm.scan.resolve(device).is_ok_and(|run| run == Implementation::Kernel);
    if !supports_multi_tensor(device) {
        Some("the device launches no kernels")
    } else if ranks > 1 {
        Some("several ranks exchange gradients within it")
    } else if !kernels() {
        Some("ssm.scan = \"reference\" notes its largest argument on the host")
    } else if model.class_token == ClassToken::Random {
        Some("model.class_token = \"random\" changes what is launched")
    } else if model.flip_ratio > 0.0 {
        Some("model.flip_ratio changes what is launched")
    } else {
        None
    }
}

impl<I> Recorded<I> {
    #[expect(unsafe_code, reason = "what was recorded names memory")]
    fn replay(&self, seed: u64) -> Result<Sums, Error> {
        self.draws.renew(seed)?;
        // SAFETY: `self` holds inputs and draws; the model's parameters are views of a buffer that
        // the optimizer holds as long as it lives, which is as long as the model.
        unsafe { self.launches.replay() }?;
        Ok(self.sums.clone())
    }
}

#[cfg(test)]
mod tests;
