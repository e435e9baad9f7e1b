//! The learning rate as a function of the step.

use std::f64::consts::PI;

use crate::config::{ConfigError, OptimConfig};

/// Linear warm-up, then half a cosine down to the least rate.
///
/// > `step < warmup`: `warmup_lr + (lr − warmup_lr)·step/warmup`
/// > `step ≥ warmup`: `min_lr + ½(lr − min_lr)(1 + cos(π·(step − warmup)/(total − warmup)))`
///
/// The original steps once per epoch, starts the cosine at step 0 and jumps where the two meet;
/// here the rate changes at every step and the two pieces join at `lr`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    lr: f64,
    warmup_lr: f64,
    min_lr: f64,
    warmup: u64,
    total: u64,
}

impl Schedule {
    /// The schedule of `optim` over `total_steps` steps.
    ///
    /// # Errors
    ///
    /// If the warm-up is measured by the clock.
    pub fn new(
        optim: &OptimConfig,
        steps_per_epoch: u64,
        total_steps: u64,
    ) -> Result<Self, ConfigError> {
        let Some(warmup) = optim.warmup.in_steps(steps_per_epoch) else {
            return Err(ConfigError::range("optim.warmup", optim.warmup, "steps or epochs"));
        };
        Ok(Self {
            lr: optim.lr,
            warmup_lr: optim.warmup_lr,
            min_lr: optim.min_lr,
            warmup: warmup.round() as u64,
            total: total_steps,
        })
    }

    /// Whether the warm-up ends before training does; if not, the peak is never reached.
    #[must_use]
    pub fn reaches_its_peak(&self) -> bool {
        self.warmup < self.total
    }

    /// The learning rate of step `step`, counted from 0; from the last step on, `min_lr`.
    #[must_use]
    pub fn lr(&self, step: u64) -> f64 {
        if step < self.warmup {
            let share = step as f64 / self.warmup as f64;
            return self.warmup_lr + (self.lr - self.warmup_lr) * share;
        }
        let share = (step - self.warmup) as f64 / (self.total - self.warmup) as f64;
        self.min_lr + 0.5 * (self.lr - self.min_lr) * (1.0 + (PI * share.min(1.0)).cos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(warmup: &str, total: u64) -> Result<Schedule, ConfigError> {
        let optim = OptimConfig { warmup: warmup.parse().unwrap(), ..OptimConfig::default() };
        Schedule::new(&optim, 10, total)
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
    }
}
