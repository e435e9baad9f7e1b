//! What depends on the step: the learning rate, and when an event that repeats is due.

use std::f64::consts::PI;
use std::time::Duration;

use crate::config::{ConfigError, Interval, OptimConfig, ScheduleKind};

/// A linear warm-up and half a cosine, or a power, down to the least rate, in closed form.
///
/// [`ScheduleKind::Cosine`], with a new rate at every step; the two pieces join at `lr`:
///
/// > `step < warmup`: `warmup_lr + (lr − warmup_lr)·step/warmup`
/// > `step ≥ warmup`: `min_lr + ½(lr − min_lr)(1 + cos(π·(step−warmup)/(total−warmup)))`
///
/// [`ScheduleKind::Reference`], with one rate per epoch at `t = max(epoch − 1, 0)`, because the
/// original sets the rate at the end of an epoch from that epoch's number; the cosine begins at 0,
/// so the two pieces do not join:
///
/// > `t < warmup`: `warmup_lr + (lr − warmup_lr)·t/warmup`
/// > `t ≥ warmup`: `min_lr + ½(lr − min_lr)(1 + cos(π·t/epochs))`
///
/// [`ScheduleKind::Poly`], with a new rate at every step; the warm-up is a factor of the power:
///
/// > `poly = min_lr + (lr − min_lr)·(1 − step/total)^power`
/// > `step < warmup`: `poly·(1 − (1 − step/warmup)·(1 − warmup_lr/lr))`
///
/// [`ScheduleKind::Step`], likewise:
///
/// > `stair = lr·gamma^(milestones ≤ step)`
/// > `step < warmup`: `stair·(1 − (1 − step/warmup)·(1 − warmup_lr/lr))`
///
/// # Source
///
/// Loshchilov and Hutter 2017; timm 0.4.12's `CosineLRScheduler` with one cycle, as the original's
/// `main.py` steps it. Of the power: mmcv 1.7.2's `PolyLrUpdaterHook` with a linear warm-up by
/// iteration, as in the original's `seg/` configurations, which have the power 1. Of the stairs:
/// detectron2's `MultiStepParamScheduler` under `WarmupParamScheduler` of a linear warm-up, as in
/// its `det/`.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    lr: f64,
    warmup_lr: f64,
    min_lr: f64,
    /// In units of `unit` steps, as `total`.
    warmup: u64,
    total: u64,
    /// Steps that share a rate: 1, or the steps of an epoch.
    unit: u64,
    kind: ScheduleKind,
    /// Steps from which on the rate is one time less, ascending.
    milestones: Vec<u64>,
    gamma: f64,
    /// Of the share of steps that are left; 1 where there is none.
    power: Option<f64>,
}

/// What a step of the stairs multiplies the rate by, where nothing else is said.
const GAMMA: f64 = 0.1;

impl Schedule {
    /// The schedule of `optim` over `total_steps` steps.
    pub fn new(
        optim: &OptimConfig,
        steps_per_epoch: u64,
        total_steps: u64,
    ) -> Result<Self, ConfigError> {
        let Some(warmup) = optim.warmup.in_steps(steps_per_epoch) else {
            return Err(ConfigError::range("optim.warmup", optim.warmup, "steps or epochs"));
        };
        let milestone = |&at: &Interval| {
            let steps = at.in_steps(steps_per_epoch).map(|steps| steps.round() as u64);
            steps.ok_or_else(|| ConfigError::range("optim.milestones", at, "steps or epochs"))
        };
        let unit = match optim.schedule {
            ScheduleKind::Cosine | ScheduleKind::Poly | ScheduleKind::Step => 1,
            ScheduleKind::Reference => steps_per_epoch,
        };
        Ok(Self {
            lr: optim.lr,
            warmup_lr: optim.warmup_lr,
            min_lr: optim.min_lr,
            warmup: (warmup / unit as f64).round() as u64,
            total: total_steps / unit,
            unit,
            kind: optim.schedule,
            milestones: optim.milestones.iter().map(milestone).collect::<Result<_, _>>()?,
            gamma: optim.gamma.unwrap_or(GAMMA),
            power: optim.power,
        })
    }

    /// Whether the warm-up ends before training does.
    pub fn reaches_its_peak(&self) -> bool {
        self.warmup < self.total
    }

    /// The learning rate of step `step`, counted from 0; constant from the last step on.
    pub fn lr(&self, step: u64) -> f64 {
        let t = match self.kind {
            ScheduleKind::Poly => return self.warming(step, self.poly(step)),
            ScheduleKind::Step => return self.warming(step, self.stair(step)),
            ScheduleKind::Cosine => step,
            ScheduleKind::Reference => (step / self.unit).saturating_sub(1),
        };
        if t < self.warmup {
            let share = t as f64 / self.warmup as f64;
            return self.warmup_lr + (self.lr - self.warmup_lr) * share;
        }
        let start = match self.kind {
            ScheduleKind::Cosine => self.warmup,
            ScheduleKind::Reference | ScheduleKind::Poly | ScheduleKind::Step => 0,
        };
        let share = (t - start) as f64 / (self.total - start) as f64;
        self.min_lr + 0.5 * (self.lr - self.min_lr) * (1.0 + (PI * share.min(1.0)).cos())
    }

    fn poly(&self, step: u64) -> f64 {
        let left = 1.0 - step.min(self.total) as f64 / self.total as f64;
        let left = self.power.map_or(left, |power| left.powf(power));
        self.min_lr + (self.lr - self.min_lr) * left
    }

    fn stair(&self, step: u64) -> f64 {
        let passed = self.milestones.iter().filter(|&&at| at <= step).count();
        self.lr * self.gamma.powi(passed as i32)
    }

    /// The `rate` of a step with the factor of the warm-up.
    fn warming(&self, step: u64, rate: f64) -> f64 {
        if step >= self.warmup {
            return rate;
        }
        let short = (1.0 - step as f64 / self.warmup as f64) * (1.0 - self.warmup_lr / self.lr);
        rate * (1.0 - short)
    }
}

/// Tells when an event that repeats every [`Interval`] is due; ask once after every step.
#[derive(Clone, Copy, Debug)]
pub struct Cadence {
    interval: Interval,
    steps_per_epoch: u64,
    last: Duration,
}

impl Cadence {
    /// A cadence whose clock starts at 0.
    pub fn new(interval: Interval, steps_per_epoch: u64) -> Self {
        Self { interval, steps_per_epoch, last: Duration::ZERO }
    }

    /// Whether the event is due after `step` steps, `elapsed` after the start of this process.
    ///
    /// Steps and epochs count from the start of training, so that a resumed run keeps the cadence;
    /// minutes count from the last time the event was due.
    pub fn due(&mut self, step: u64, elapsed: Duration) -> bool {
        match self.interval {
            Interval::Steps(_) | Interval::Epochs(_) => {
                let period = self.interval.in_steps(self.steps_per_epoch).unwrap_or(f64::INFINITY);
                // Whole periods, not remainders, so that 0.5ep works for an odd number of steps.
                let periods = |steps: u64| (steps as f64 / period).floor();
                step > 0 && periods(step) > periods(step - 1)
            }
            Interval::Minutes(minutes) => {
                let due = elapsed.saturating_sub(self.last).as_secs_f64() >= minutes * 60.0;
                if due {
                    self.last = elapsed;
                }
                due
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: ScheduleKind, warmup: &str, total: u64) -> Result<Schedule, ConfigError> {
        let warmup = warmup.parse().unwrap();
        let optim = OptimConfig { warmup, schedule: kind, ..OptimConfig::default() };
        Schedule::new(&optim, 10, total)
    }

    fn schedule(warmup: &str, total: u64) -> Result<Schedule, ConfigError> {
        of(ScheduleKind::Cosine, warmup, total)
    }

    #[test]
    fn ends_and_joint() {
        let schedule = schedule("2ep", 100).unwrap();
        assert_eq!(schedule.lr(0), 1e-6);
        assert_eq!(schedule.lr(20), 1e-3);
        assert!((schedule.lr(60) - (1e-3 + 1e-5) / 2.0).abs() < 1e-12);
        assert!((schedule.lr(100) - 1e-5).abs() < 1e-15);
        assert_eq!(schedule.lr(1000), schedule.lr(100));
    }

    #[test]
    fn rises_then_falls() {
        let schedule = schedule("15st", 90).unwrap();
        let rates: Vec<f64> = (0..=90).map(|step| schedule.lr(step)).collect();
        assert!(rates[..=15].windows(2).all(|pair| pair[0] < pair[1]));
        assert!(rates[15..].windows(2).all(|pair| pair[0] > pair[1]));
    }

    #[test]
    fn without_warmup_starts_at_the_peak() {
        assert_eq!(schedule("0ep", 100).unwrap().lr(0), 1e-3);
        assert_eq!(of(ScheduleKind::Reference, "0ep", 100).unwrap().lr(0), 1e-3);
    }

    #[test]
    fn a_warmup_that_does_not_end_only_rises() {
        assert!(schedule("9ep", 100).unwrap().reaches_its_peak());
        for warmup in ["10ep", "100st", "1000st"] {
            let schedule = schedule(warmup, 100).unwrap();
            assert!(!schedule.reaches_its_peak());
            assert!((1..100).all(|step| schedule.lr(step - 1) < schedule.lr(step)));
        }
        assert!(schedule("5min", 100).is_err());
        assert!(!of(ScheduleKind::Reference, "10ep", 100).unwrap().reaches_its_peak());
    }

    /// Ten steps an epoch, 300 epochs, the original's defaults at a rate of 1e-3: the rates of timm
    /// 0.4.12, computed independently from its formula.
    #[test]
    fn the_original_s_rates() {
        let schedule = of(ScheduleKind::Reference, "5ep", 3000).unwrap();
        let epoch = |number: u64| schedule.lr(10 * number);
        // Two epochs at the least rate of the warm-up, then fifths of the way up.
        for (number, want) in
            [(0, 1e-6), (1, 1e-6), (2, 2.008e-4), (3, 4.006e-4), (4, 6.004e-4), (5, 8.002e-4)]
        {
            assert!((epoch(number) - want).abs() < 1e-15, "{number}: {}", epoch(number));
        }
        // The cosine has already gone 5/300 of its way: 1e-5 + ½ · 9.9e-4 · (1 + cos 3°).
        assert!((epoch(6) - 9.993_216_197_035e-4).abs() < 1e-15, "{}", epoch(6));
        // Half way one epoch late, at cos 90° = 0; the last epoch at cos(π · 298/300), above the
        // least rate.
        assert!((epoch(151) - 5.05e-4).abs() < 1e-15, "{}", epoch(151));
        assert!((epoch(299) - 1.010_856_168e-5).abs() < 1e-14, "{}", epoch(299));
        // One rate for all steps of an epoch.
        assert!((0..10).all(|step| schedule.lr(1510 + step) == epoch(151)));
    }

    /// The original's segmentation recipe: 60 000 steps at 1e-4, 1 500 of them warm-up.
    /// Of `det/`: 184 375 steps, a warm-up of 250 from a thousandth.
    #[test]
    fn the_stairs_of_detection() {
        let optim = OptimConfig {
            lr: 1e-4,
            warmup_lr: 1e-7,
            warmup: "250st".parse().unwrap(),
            schedule: ScheduleKind::Step,
            milestones: ["163889st", "177546st"].map(|at| at.parse().unwrap()).to_vec(),
            ..OptimConfig::default()
        };
        let schedule = Schedule::new(&optim, 1844, 184_375).unwrap();
        for (step, want) in [
            (0, 1e-7),
            (125, 1e-4 * (0.5 + 0.5e-3)),
            (250, 1e-4),
            (163_888, 1e-4),
            (163_889, 1e-5),
            (177_546, 1e-6),
            (200_000, 1e-6),
        ] {
            let got = schedule.lr(step);
            assert!((got - want).abs() < 1e-12 * want.max(1e-3), "{step}: {got}, want {want}");
        }
        let halved = OptimConfig { gamma: Some(0.5), ..optim.clone() };
        let halved = Schedule::new(&halved, 1844, 184_375).unwrap();
        assert!((halved.lr(180_000) - 0.25e-4).abs() < 1e-18);
        let clocked = OptimConfig { milestones: vec!["5min".parse().unwrap()], ..optim };
        assert!(Schedule::new(&clocked, 1844, 184_375).is_err());
    }

    #[test]
    fn the_line_of_segmentation() {
        let optim = OptimConfig {
            lr: 1e-4,
            min_lr: 0.0,
            warmup_lr: 1e-10,
            warmup: "1500st".parse().unwrap(),
            schedule: ScheduleKind::Poly,
            ..OptimConfig::default()
        };
        let schedule = Schedule::new(&optim, 10, 60_000).unwrap();
        // By hand: 1e-4 · (1 − t/60000), times 1 − (1 − t/1500)(1 − 1e-6) before step 1500.
        for (step, want) in [
            (0, 1e-10),
            (750, 9.875e-5 * (1.0 - 0.5 * (1.0 - 1e-6))),
            (1500, 9.75e-5),
            (30_000, 5e-5),
            (59_999, 1e-4 / 60_000.0),
            (60_000, 0.0),
            (70_000, 0.0),
        ] {
            let got = schedule.lr(step);
            assert!((got - want).abs() <= 1e-12 * 1e-4, "{step}: {got} {want}");
        }
    }

    /// mmsegmentation's usual recipe: power 0.9 to 1e-4 of 0.01, 160 000 steps, without a warm-up.
    /// The rates are Python's, of `(0.01 − 1e-4) · (1 − t/160000) ** 0.9 + 1e-4`.
    #[test]
    fn mmsegmentation_s_power() {
        let optim = OptimConfig {
            lr: 0.01,
            min_lr: 1e-4,
            warmup: "0st".parse().unwrap(),
            schedule: ScheduleKind::Poly,
            power: Some(0.9),
            ..OptimConfig::default()
        };
        let schedule = Schedule::new(&optim, 10, 160_000).unwrap();
        for (step, want) in [
            (0, 0.01),
            (1, 0.009999944312482597),
            (80_000, 0.005405278639554652),
            (159_999, 0.00010020508184232249),
            (160_000, 0.0001),
        ] {
            let got = schedule.lr(step);
            assert!((got - want).abs() <= 1e-15, "{step}: {got} {want}");
        }
    }

    fn due_steps(interval: &str, steps_per_epoch: u64, until: u64) -> Vec<u64> {
        let mut cadence = Cadence::new(interval.parse().unwrap(), steps_per_epoch);
        (0..=until).filter(|&step| cadence.due(step, Duration::ZERO)).collect()
    }

    #[test]
    fn steps_and_epochs_are_counted_from_the_start_of_training() {
        assert_eq!(due_steps("3st", 7, 10), [3, 6, 9]);
        assert_eq!(due_steps("1ep", 7, 21), [7, 14, 21]);
        assert_eq!(due_steps("0.5ep", 7, 14), [4, 7, 11, 14]);
        assert_eq!(due_steps("0.01ep", 7, 3), [1, 2, 3]);
    }

    #[test]
    fn minutes_are_counted_from_the_last_time() {
        let mut cadence = Cadence::new(Interval::Minutes(1.0), 7);
        let seconds = [0, 59, 61, 119, 121];
        let due = seconds.map(|s| cadence.due(1, Duration::from_secs(s)));
        assert_eq!(due, [false, false, true, false, true]);
    }
}
