//! Distributions behind intervals: Student's t, and binomial counts for percentiles.
//!
//! Exact to about 1e-12. It knows probabilities alone; what is estimated, and at which level, is
//! decided in `judge::interval`.

use statrs::function::gamma::ln_gamma;

/// The regularised incomplete beta function I_x(a, b), for positive `a` and `b`.
///
/// The continued fraction needs about √max(a, b) terms near the mean, so that counts in the
/// millions (tokens of a long window) still converge.
pub fn beta_regularised(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta_lower(b, a, 1.0 - x);
    }
    beta_lower(a, b, x)
}

/// I_x(a, b) for x below the mean, by the continued fraction (modified Lentz).
fn beta_lower(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    const TERMS: u32 = 200_000;
    let front =
        (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp() / a;
    let away = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / away(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for m in 1..TERMS {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / away(1.0 + even * d);
        c = away(1.0 + even / c);
        fraction *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / away(1.0 + odd * d);
        c = away(1.0 + odd / c);
        let step = d * c;
        fraction *= step;
        if (step - 1.0).abs() < 1e-15 {
            break;
        }
    }
    front * fraction
}

/// P(T > t) for Student's t with `df` degrees of freedom.
pub fn t_tail(t: f64, df: f64) -> f64 {
    let square = t * t;
    // I_x(df/2, 1/2) = 1 − I_{1−x}(1/2, df/2): the form whose argument does not cancel.
    let both = if square < df {
        1.0 - beta_regularised(0.5, df / 2.0, square / (df + square))
    } else {
        beta_regularised(df / 2.0, 0.5, df / (df + square))
    };
    if t >= 0.0 { both / 2.0 } else { 1.0 - both / 2.0 }
}

/// The t that is exceeded with probability `alpha`: the one-sided critical value.
///
/// `alpha` lies between 0 and 1, `df` is positive.
pub fn t_critical(alpha: f64, df: f64) -> f64 {
    if alpha > 0.5 {
        return -t_critical(1.0 - alpha, df);
    }
    if alpha == 0.5 {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, 2.0);
    while t_tail(high, df) > alpha && high < 1e300 {
        low = high;
        high *= 2.0;
    }
    let constant =
        ln_gamma((df + 1.0) / 2.0) - ln_gamma(df / 2.0) - 0.5 * (df * std::f64::consts::PI).ln();
    let mut t: f64 = (low + high) / 2.0;
    // Newton on the tail; a step that leaves the bracket is replaced by its middle.
    for _ in 0..200 {
        let excess = t_tail(t, df) - alpha;
        if excess > 0.0 {
            low = t;
        } else {
            high = t;
        }
        let density = (constant - (df + 1.0) / 2.0 * (t * t / df).ln_1p()).exp();
        let newton = t + excess / density;
        let next = if newton > low && newton < high { newton } else { (low + high) / 2.0 };
        if (next - t).abs() <= 1e-14 * t.abs() {
            return next;
        }
        t = next;
    }
    t
}

/// P(X ≤ s) for X binomial with `n` trials of probability `p`.
pub fn binomial_at_most(s: u64, n: u64, p: f64) -> f64 {
    if s >= n { 1.0 } else { beta_regularised((n - s) as f64, s as f64 + 1.0, 1.0 - p) }
}

/// P(X ≥ s) for X binomial with `n` trials of probability `p`.
pub fn binomial_at_least(s: u64, n: u64, p: f64) -> f64 {
    if s == 0 {
        1.0
    } else if s > n {
        0.0
    } else {
        beta_regularised(s as f64, (n - s) as f64 + 1.0, p)
    }
}

/// Counts of exceedances among `n` independent samples that settle where a percentile lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exceedances {
    /// With so many samples above a value or fewer, the percentile surely lies at or below it;
    /// `None`: `n` is too small for that whatever the samples.
    pub proven_below: Option<u64>,
    /// With so many samples above a value or more, the percentile surely lies above it.
    pub proven_above: Option<u64>,
}

/// The Clopper–Pearson counts for the `percent`-th percentile of `n` samples, each at `alpha`.
///
/// Counts instead of bounds: both say the same, and a count is an integer.
pub fn exceedances(n: u64, percent: u32, alpha: f64) -> Exceedances {
    let p = f64::from(100 - percent.min(100)) / 100.0;
    // Both tails are monotone in the count, so each search halves.
    let first = |holds: &dyn Fn(u64) -> bool| {
        let (mut low, mut high) = (0, n + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            if holds(middle) { high = middle } else { low = middle + 1 }
        }
        low
    };
    let too_many = first(&|s| binomial_at_most(s, n, p) > alpha);
    let enough = first(&|s| binomial_at_least(s, n, p) <= alpha);
    Exceedances {
        proven_below: too_many.checked_sub(1),
        proven_above: (enough <= n && n > 0).then_some(enough),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden(section: &str) -> Vec<serde_json::Value> {
        let text = include_str!("../../tests/golden/statistics.json");
        let all: serde_json::Value = serde_json::from_str(text).unwrap();
        all[section]["cases"].as_array().unwrap().clone()
    }

    fn number(case: &serde_json::Value, key: &str) -> f64 {
        case[key].as_f64().unwrap()
    }

    fn close(got: f64, want: f64) -> bool {
        (got - want).abs() <= 1e-8 * want.abs().max(1e-300)
    }

    #[test]
    fn t_quantiles_are_those_of_forty_digits() {
        for case in golden("t_quantiles") {
            let got = t_critical(1.0 - number(&case, "p"), number(&case, "df"));
            assert!(close(got, number(&case, "t")), "{got} for {case}");
        }
    }

    #[test]
    fn t_tails_keep_their_digits_far_out() {
        for case in golden("t_upper_tails") {
            let got = t_tail(number(&case, "t"), number(&case, "df"));
            assert!(close(got, number(&case, "p")), "{got} for {case}");
        }
    }

    #[test]
    fn binomial_tails_are_alpha_at_the_clopper_pearson_bounds() {
        for case in golden("clopper_pearson") {
            let (n, s) = (case["n"].as_u64().unwrap(), case["exceedances"].as_u64().unwrap());
            let alpha = number(&case, "alpha_one_sided");
            if s > 0 {
                let got = binomial_at_least(s, n, number(&case, "lower"));
                assert!(close(got, alpha), "{got} for {case}");
            }
            if s < n {
                let got = binomial_at_most(s, n, number(&case, "upper"));
                assert!(close(got, alpha), "{got} for {case}");
            }
        }
    }

    #[test]
    fn counts_that_prove_a_percentile_match_exactly() {
        for case in golden("percentile_rules") {
            let percent = 100 * case["quantile_numerator"].as_u64().unwrap()
                / case["quantile_denominator"].as_u64().unwrap();
            let got = exceedances(
                case["n"].as_u64().unwrap(),
                percent as u32,
                number(&case, "alpha_one_sided"),
            );
            assert_eq!(got.proven_below, case["proven_pass_at_most"].as_u64(), "{case}");
            assert_eq!(got.proven_above, case["proven_fail_at_least"].as_u64(), "{case}");
        }
    }

    #[test]
    fn a_percentile_is_provable_from_the_known_counts_on() {
        // ceil(ln alpha / ln q) samples: 5 for p50, 29 for p90, 59 for p95, 299 for p99.
        for (percent, least) in [(50, 5), (90, 29), (95, 59), (99, 299)] {
            assert_eq!(exceedances(least, percent, 0.05).proven_below, Some(0));
            assert_eq!(exceedances(least - 1, percent, 0.05).proven_below, None);
        }
    }

    #[test]
    fn millions_of_samples_converge() {
        let n = 5_000_000;
        let found = exceedances(n, 99, 0.05);
        // The normal approximation is good here: 50 000 ∓ 1.645 × 222.5.
        let below = found.proven_below.unwrap() as f64;
        let above = found.proven_above.unwrap() as f64;
        assert!((below - (50_000.0 - 366.0)).abs() < 5.0, "{below}");
        assert!((above - (50_000.0 + 366.0)).abs() < 5.0, "{above}");
    }
}
