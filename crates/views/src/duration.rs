//! Durations as people read them.

/// A duration for people: `120 ms`, `4.2 s`, `3 min 20 s`, `2 h 5 min`.
pub fn duration(millis: u64) -> String {
    let (seconds, minutes, hours) = (millis / 1000, millis / 60_000, millis / 3_600_000);
    let two = |big: u64, unit: &str, small: u64, smaller: &str| match small {
        0 => format!("{big} {unit}"),
        _ => format!("{big} {unit} {small} {smaller}"),
    };
    match millis {
        0..1000 => format!("{millis} ms"),
        1000..60_000 if millis.is_multiple_of(1000) => format!("{seconds} s"),
        1000..60_000 => format!("{seconds}.{} s", millis % 1000 / 100),
        60_000..3_600_000 => two(minutes, "min", seconds % 60, "s"),
        3_600_000..86_400_000 => two(hours, "h", minutes % 60, "min"),
        _ => two(hours / 24, "d", hours % 24, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        let all: Vec<String> = [0, 999, 1000, 4_230, 60_000, 200_000, 7_500_000, 90_000_000]
            .map(duration)
            .into();
        assert_eq!(
            all.join(", "),
            "0 ms, 999 ms, 1 s, 4.2 s, 1 min, 3 min 20 s, 2 h 5 min, 1 d 1 h"
        );
    }
}
