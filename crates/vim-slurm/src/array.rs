//! Job arrays: sets of task numbers in the notation of sbatch and scontrol.

use std::fmt;

/// Tasks of one array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobArray {
    /// Task numbers, ascending.
    pub indices: Vec<u32>,
    /// A task's work has the index task number + `offset`.
    pub offset: u32,
    /// The most tasks that run at the same time.
    pub throttle: Option<u32>,
}

/// Splits `indices` into arrays whose task numbers are below the cluster's `max_array_size`.
///
/// [`JobArray::offset`] makes up for the difference.
pub fn split(indices: &[u32], max_array_size: u32, throttle: Option<u32>) -> Vec<JobArray> {
    let size = max_array_size.max(1);
    let mut sorted = indices.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
        .chunk_by(|a, b| a / size == b / size)
        .map(|chunk| {
            let offset = chunk[0] / size * size;
            let indices = chunk.iter().map(|index| index - offset).collect();
            JobArray { indices, offset, throttle }
        })
        .collect()
}

impl fmt::Display for JobArray {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.indices.chunk_by(|a, b| a + 1 == *b);
        for (place, run) in runs.enumerate() {
            let comma = if place == 0 { "" } else { "," };
            match run {
                [first, .., last] => write!(formatter, "{comma}{first}-{last}")?,
                [one] => write!(formatter, "{comma}{one}")?,
                [] => {}
            }
        }
        self.throttle.map_or(Ok(()), |throttle| write!(formatter, "%{throttle}"))
    }
}

/// Parses task numbers as sbatch takes and scontrol prints them: `2-5,8-12:2%2`.
pub fn expand(text: &str) -> Option<Vec<u32>> {
    let (list, _) = text.split_once('%').unwrap_or((text, ""));
    let mut indices = Vec::new();
    for part in list.split(',') {
        let (range, step) = match part.split_once(':') {
            Some((range, step)) => (range, step.parse().ok().filter(|step| *step > 0)?),
            None => (part, 1),
        };
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        indices.extend((first..=last).step_by(step));
    }
    Some(indices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_numbers_are_short() {
        let array =
            |indices: &[u32], throttle| JobArray { indices: indices.to_vec(), offset: 0, throttle };
        assert_eq!(array(&[0, 1, 2, 3], None).to_string(), "0-3");
        assert_eq!(array(&[0, 2, 3, 7], Some(8)).to_string(), "0,2-3,7%8");
        assert_eq!(expand("0,2-3,7%8").unwrap(), [0, 2, 3, 7]);
        assert_eq!(expand("0-10:5").unwrap(), [0, 5, 10]);
        assert_eq!(expand("7").unwrap(), [7]);
        assert_eq!(expand("0-3..."), None);
    }

    #[test]
    fn arrays_stay_below_the_limit() {
        let all: Vec<u32> = (0..2500).collect();
        let parts = split(&all, 1001, Some(4));
        let shown: Vec<String> = parts.iter().map(JobArray::to_string).collect();
        assert_eq!(shown, ["0-1000%4", "0-1000%4", "0-497%4"]);
        let mut reached: Vec<u32> = Vec::new();
        for part in &parts {
            assert!(part.indices.iter().all(|index| *index < 1001));
            reached.extend(part.indices.iter().map(|index| index + part.offset));
        }
        assert_eq!(reached, all);
        assert_eq!(split(&[5, 3, 3], 1001, None)[0].indices, [3, 5]);
        assert_eq!(split(&[], 1001, None), []);
        assert_eq!(split(&[1001, 7], 1001, None).len(), 2);
    }
}
