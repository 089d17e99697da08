//! Noise: how far a simulated time strays from its table.
//!
//! The same seed gives the same noise. Each busy period of the engine (from idle to idle) has its
//! own stream of random numbers, so that a step more or less in one cell, which real time can
//! bring, does not shift the noise of the next.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, StandardNormal};

/// How much noise there is. Fractions of the time they act on.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Noise {
    /// Standard deviation of a decode step within a launch.
    pub(crate) within: f64,
    /// Lag-1 correlation of successive steps, in 0..1.
    pub(crate) correlation: f64,
    /// Standard deviation of all times of a launch between launches.
    pub(crate) between: f64,
    /// Standard deviation of prefill and admission.
    pub(crate) first_token: f64,
    /// Growth of the step time for each minute since the engine was last idle.
    pub(crate) drift: f64,
}

/// Draws factors.
#[derive(Debug)]
pub(crate) struct NoiseSource {
    noise: Noise,
    seed: u64,
    launch: f64,
    period: u64,
    steps: StdRng,
    firsts: StdRng,
    last: f64,
}

impl NoiseSource {
    pub(crate) fn new(noise: Noise, seed: u64) -> NoiseSource {
        let z: f64 = StandardNormal.sample(&mut StdRng::seed_from_u64(mix(seed, 1)));
        let mut source = NoiseSource {
            noise,
            seed,
            launch: positive(1.0 + noise.between * z),
            period: 0,
            steps: StdRng::seed_from_u64(0),
            firsts: StdRng::seed_from_u64(0),
            last: 0.0,
        };
        source.begin_period();
        source
    }

    /// The engine begins to work after it was idle.
    pub(crate) fn begin_period(&mut self) {
        self.period += 1;
        self.steps = StdRng::seed_from_u64(mix(self.seed, 2 * self.period));
        self.firsts = StdRng::seed_from_u64(mix(self.seed, 2 * self.period + 1));
        self.last = StandardNormal.sample(&mut self.steps);
    }

    /// Factor on the next decode step, `seconds` after the busy period began.
    pub(crate) fn step(&mut self, seconds: f64) -> f64 {
        let z: f64 = StandardNormal.sample(&mut self.steps);
        let keep = self.noise.correlation;
        self.last = keep * self.last + (1.0 - keep * keep).sqrt() * z;
        self.launch
            * positive(1.0 + self.noise.within * self.last)
            * (1.0 + self.noise.drift * seconds / 60.0)
    }

    /// Factor on the next prefill or admission.
    pub(crate) fn first_token(&mut self) -> f64 {
        let z: f64 = StandardNormal.sample(&mut self.firsts);
        self.launch * positive(1.0 + self.noise.first_token * z)
    }
}

/// A time can't turn around, however wide the noise.
fn positive(factor: f64) -> f64 {
    factor.max(0.05)
}

/// One well-mixed number out of two (splitmix64).
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut z = a ^ b.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOISE: Noise =
        Noise { within: 0.02, correlation: 0.6, between: 0.01, first_token: 0.03, drift: 0.0 };

    #[test]
    fn steps_have_the_spread_and_correlation_that_were_asked_for() {
        let mut source = NoiseSource::new(Noise { between: 0.0, ..NOISE }, 7);
        let x: Vec<f64> = (0..40_000).map(|_| source.step(0.0) - 1.0).collect();
        let variance = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
        let lagged = x.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / (x.len() - 1) as f64;
        assert!((variance.sqrt() / 0.02 - 1.0).abs() < 0.05, "sd {}", variance.sqrt());
        assert!((lagged / variance - 0.6).abs() < 0.05, "correlation {}", lagged / variance);
    }

    #[test]
    fn a_launch_has_its_own_speed_and_a_period_its_own_stream() {
        let launches: Vec<f64> =
            (0..4000).map(|seed| NoiseSource::new(NOISE, seed).launch - 1.0).collect();
        let sd = (launches.iter().map(|v| v * v).sum::<f64>() / 4000.0).sqrt();
        assert!((sd / 0.01 - 1.0).abs() < 0.05, "sd between launches {sd}");

        let (mut a, mut b) = (NoiseSource::new(NOISE, 3), NoiseSource::new(NOISE, 3));
        a.step(0.0);
        a.begin_period();
        b.begin_period();
        assert_eq!(a.step(0.0), b.step(0.0), "one step more in the period before changes nothing");
    }

    #[test]
    fn drift_grows_with_the_time_since_idle() {
        let mut source = NoiseSource::new(Noise { drift: 0.12, ..Noise::default() }, 1);
        assert!((source.step(30.0) - 1.06).abs() < 1e-12);
    }
}
