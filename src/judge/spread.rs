//! Probabilities that depend on an estimated spread: the noncentral t distribution, and
//! expectations over the standard deviation that a sample would show.
//!
//! All by one quadrature over the logarithm of the chi distribution, to about 1e-15 of 1. It knows
//! probabilities alone; what they are asked for is decided in `tolerance` and `power`.

use statrs::function::erf::erfc_inv;

use crate::measure::distribution::t_critical;

/// P(Z > z) for a standard normal Z, to about 1e-12 of itself.
///
/// Near the middle by the series φ(z) (z + z³/3 + z⁵/(3·5) + …) of what lies between 0 and z, farther
/// out by Laplace's continued fraction φ(z)/(z + 1/(z + 2/(z + …))). The error function of `statrs`
/// is good to 4e-11 only.
pub fn normal_tail(z: f64) -> f64 {
    if z < 0.0 {
        return 1.0 - normal_tail(-z);
    }
    if z < 3.0 {
        let (mut term, mut sum) = (z, z);
        for k in 1..200 {
            term *= z * z / f64::from(2 * k + 1);
            sum += term;
            if term < sum * 1e-17 {
                break;
            }
        }
        return 0.5 - density(z) * sum;
    }
    let fraction = (1..120).rev().fold(z, |below, k| z + f64::from(k) / below);
    density(z) / fraction
}

fn density(z: f64) -> f64 {
    (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// The z that a standard normal exceeds with probability `alpha`, which lies between 0 and 1.
pub fn normal_critical(alpha: f64) -> f64 {
    let mut z = std::f64::consts::SQRT_2 * erfc_inv(2.0 * alpha);
    // The inverse has about nine digits in the tails; two Newton steps give the rest.
    for _ in 0..2 {
        z += (normal_tail(z) - alpha) / density(z);
    }
    z
}

/// The critical value of an estimate whose spread has `df` degrees of freedom; infinitely many of
/// them stand for a spread that is known, and Student's t becomes the normal distribution.
pub fn critical(alpha: f64, df: f64) -> f64 {
    if df.is_infinite() { normal_critical(alpha) } else { t_critical(alpha, df) }
}

/// P(T > t) for the noncentral t distribution: T = (Z + `shift`) ÷ S, with Z standard normal and
/// `df` × S² chi-squared with `df` degrees of freedom, independent of it.
pub fn noncentral_t_tail(t: f64, df: f64, shift: f64) -> f64 {
    if t < 0.0 {
        // T(shift) = −T(−shift) in distribution.
        return 1.0 - noncentral_t_tail(-t, df, -shift);
    }
    // T > t just where Z > t S − shift.
    expectation(df, &around(t, shift), |s| normal_tail(t * s - shift))
}

/// Between these values of S, in rising order, the probability that Z > t S − `shift` goes from all
/// but 1 to all but 0.
pub fn around(t: f64, shift: f64) -> [f64; 2] {
    const SURELY: f64 = 9.0;
    [(shift - SURELY) / t, (shift + SURELY) / t]
}

/// The t that the noncentral t distribution exceeds with probability `alpha`.
pub fn noncentral_t_critical(alpha: f64, df: f64, shift: f64) -> f64 {
    let excess = |t: f64| noncentral_t_tail(t, df, shift) - alpha;
    let (mut low, mut high) = (shift.min(0.0) - 1.0, shift.max(0.0) + 1.0);
    while excess(high) > 0.0 && high < 1e9 {
        high *= 2.0;
    }
    while excess(low) < 0.0 && low > -1e9 {
        low *= 2.0;
    }
    falling_root(low, high, excess)
}

/// Where a falling function crosses zero between `low` and `high`.
pub fn falling_root(mut low: f64, mut high: f64, f: impl Fn(f64) -> f64) -> f64 {
    let (mut at_low, mut at_high) = (f(low), f(high));
    // False position with halving of the end that stays (Illinois), within a bracket always.
    for _ in 0..200 {
        if at_low <= 0.0 {
            return low;
        }
        if at_high >= 0.0 {
            return high;
        }
        let guess = (low * at_high - high * at_low) / (at_high - at_low);
        let guess = if guess > low && guess < high { guess } else { (low + high) / 2.0 };
        if high - low <= 1e-13 * guess.abs().max(1e-12) {
            return guess;
        }
        let at = f(guess);
        if at > 0.0 {
            (low, at_low) = (guess, at);
            at_high /= 2.0;
        } else if at < 0.0 {
            (high, at_high) = (guess, at);
            at_low /= 2.0;
        } else {
            return guess;
        }
    }
    (low + high) / 2.0
}

/// Nodes and weights of Gauss and Legendre's rule with ten points on −1 … 1, the positive half.
const GAUSS: [(f64, f64); 5] = [
    (0.148_874_338_981_631_21, 0.295_524_224_714_752_87),
    (0.433_395_394_129_247_2, 0.269_266_719_309_996_36),
    (0.679_409_568_299_024_4, 0.219_086_362_515_982_04),
    (0.865_063_366_688_984_5, 0.149_451_349_150_580_6),
    (0.973_906_528_517_171_7, 0.066_671_344_308_688_14),
];

/// E g(S), where `df` × S² is chi-squared with `df` degrees of freedom: S is what a sample shows of
/// a standard deviation of 1. Infinite `df`: S is 1.
///
/// `breaks` are values of S where g has a corner or begins and ends to be steep, in rising order.
pub fn expectation(df: f64, breaks: &[f64], g: impl Fn(f64) -> f64) -> f64 {
    if df.is_infinite() {
        return g(1.0);
    }
    // In u = ln S the density goes as exp(df (u + 1/2 − e^{2u}/2)), highest at u = 0. Dividing by the
    // sum of the weights makes the constant, a gamma function, needless.
    let height = |u: f64| df * (u + 0.5 - (2.0 * u).exp() / 2.0);
    const NOTHING: f64 = -40.0;
    // Ten points on a panel take the density and g to twelve digits each where it is no wider than that.
    const PANELS: f64 = 8.0;
    let width = (0.5f64).min(2.0 / (2.0 * df).sqrt());
    let mut first = 0.0;
    while height(first) > NOTHING {
        first -= width;
    }
    let mut last = 0.0;
    while height(last) > NOTHING {
        last += width;
    }
    let mut ends = vec![first];
    ends.extend(breaks.iter().map(|s| s.ln()).filter(|u| *u > first && *u < last));
    ends.push(last);
    let (mut sum, mut weights) = (0.0, 0.0);
    for piece in ends.windows(2) {
        let panels = ((piece[1] - piece[0]) / width).max(PANELS).ceil() as u32;
        let half = (piece[1] - piece[0]) / f64::from(panels) / 2.0;
        for panel in 0..panels {
            let middle = piece[0] + half * f64::from(2 * panel + 1);
            for (node, weight) in GAUSS {
                for u in [middle - half * node, middle + half * node] {
                    let here = weight * half * height(u).exp();
                    weights += here;
                    sum += here * g(u.exp());
                }
            }
        }
    }
    sum / weights
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::golden::{cases, close, number};
    use crate::measure::distribution::t_tail;

    #[test]
    fn normal_quantiles_are_those_of_forty_digits() {
        for case in cases("normal_quantiles") {
            close(normal_critical(1.0 - number(&case, "p")), number(&case, "z"), 1e-8);
        }
    }

    #[test]
    fn normal_tails_are_those_of_the_tables() {
        // To sixteen digits, as any table of the error function has them.
        for (z, tail) in [
            (1.0, 0.158_655_253_931_457_05),
            (2.0, 0.022_750_131_948_179_21),
            (3.0, 0.001_349_898_031_630_094_5),
            (5.0, 2.866_515_718_791_939e-7),
            (8.0, 6.220_960_574_271_784e-16),
        ] {
            close(normal_tail(z), tail, 1e-11);
            close(normal_tail(-z), 1.0 - tail, 1e-15);
        }
        // Both ways meet where one takes over from the other.
        close(normal_tail(2.999_999_999), normal_tail(3.0), 1e-8);
    }

    #[test]
    fn without_a_shift_it_is_students_t() {
        for df in [1.0, 2.0, 2.5, 6.0, 30.0, 1000.0] {
            for t in [-3.0, -0.5, 0.0, 0.1, 1.0, 4.0, 5.0] {
                close(noncentral_t_tail(t, df, 0.0), t_tail(t, df), 1e-9);
            }
        }
        close(noncentral_t_tail(400.0, 2.0, 0.0), t_tail(400.0, 2.0), 1e-9);
    }

    #[test]
    fn power_is_the_tail_of_forty_digits() {
        for case in cases("power") {
            let shift =
                number(&case, "pairs").sqrt() * number(&case, "gap_log") / number(&case, "sd_log");
            close(shift, number(&case, "noncentrality"), 1e-8);
            let df = number(&case, "df");
            let at = critical(number(&case, "alpha_one_sided"), df);
            close(at, number(&case, "t_critical"), 1e-8);
            close(noncentral_t_tail(at, df, shift), number(&case, "power"), 1e-8);
        }
    }

    #[test]
    fn a_quantile_undoes_its_tail() {
        for (alpha, df, shift) in [(0.05, 2.0, 4.0), (0.95, 4.0, 5.2), (0.5, 19.0, -3.0)] {
            let at = noncentral_t_critical(alpha, df, shift);
            close(noncentral_t_tail(at, df, shift), alpha, 1e-9);
        }
    }

    #[test]
    fn moments_of_an_estimated_spread_are_right() {
        // E S² = 1 whatever the freedom.
        for df in [1.0, 2.0, 7.0, 200.0] {
            close(expectation(df, &[], |s| s * s), 1.0, 1e-11);
        }
        // E max(S, 1) = 1 + ∫ from 1 of P(S > s): for two degrees of freedom 1 + √π erfc(1)/2.
        let want = 1.0 + std::f64::consts::PI.sqrt() * normal_tail(2f64.sqrt());
        close(expectation(2.0, &[1.0], |s| s.max(1.0)), want, 1e-11);
        // For two degrees of freedom P(S > s) = exp(−s²).
        close(expectation(2.0, &[1.3], |s| f64::from(s > 1.3)), (-1.69f64).exp(), 1e-11);
    }

    #[test]
    fn a_known_spread_leaves_the_normal_distribution() {
        close(noncentral_t_tail(1.0, f64::INFINITY, 3.0), normal_tail(-2.0), 1e-12);
        close(critical(0.05, f64::INFINITY), 1.644_853_626_951_472_6, 1e-12);
    }
}
