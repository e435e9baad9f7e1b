//! The main figure: a bar per group with its seeds, and its difference from the baseline.

use vim_chart::{Scale, SeriesStyle, error_bar, escape, fit, line, rounded, text, text_width};

use super::figure::Figure;
use crate::metric::Metric;
use crate::statistics::Paired;
use crate::summary::Group;
use crate::table::spread;

const WIDTH: f64 = 1104.0;
/// The lowest row, and the height of a line of a name.
const ROW: f64 = 44.0;
const LINE: f64 = 17.0;
const TOP: f64 = 34.0;

/// The figure of `groups`; `baseline` is the label of the baseline.
pub(super) fn draw(
    groups: &[Group],
    styles: &[SeriesStyle],
    metric: Metric,
    baseline: Option<&str>,
) -> Figure {
    let factor = metric.factor();
    let longest = groups.iter().map(|group| text_width(&group.label, 14.0)).fold(0.0, f64::max);
    let names = (16.0 + longest).clamp(70.0, 300.0);
    let labels: Vec<_> = groups.iter().map(|group| lines(&group.label, names - 12.0)).collect();
    let most = labels.iter().map(Vec::len).max().unwrap_or(1);
    let row_height = ROW.max(LINE * most as f64 + 10.0);
    let bottom = TOP + row_height * groups.len() as f64;
    let split = if baseline.is_some() { 640.0 } else { WIDTH };
    let values = groups.iter().filter_map(|group| group.sample).flat_map(|sample| {
        let sd = sample.sd.unwrap_or(0.0);
        [sample.min, sample.max, sample.mean - sd, sample.mean + sd].map(|value| factor * value)
    });
    let values: Vec<f64> = values.collect();
    let is_cut = are_close(&values);
    let (low, high) = match is_cut {
        true => rounded(values, 5),
        false => rounded(values.into_iter().chain([0.0]), 5),
    };
    // A percentage is at most 100, and nothing that is compared is negative.
    let high = if metric.is_share() { high.min(100.0) } else { high };
    let x = Scale::new((low.max(0.0), high), (names, split - 122.0));
    let start = x.target().0;
    let mut title = format!("{}{}", metric.title(), metric.unit());
    if is_cut {
        // Not the first tick, which may be above it.
        let low = format!("{low:.6}");
        let low = low.trim_end_matches('0').trim_end_matches('.');
        title.push_str(&format!("; axis from {low}, not 0"));
    }
    let mut body = text("", (names, 16.0), "start", &title);
    body.push_str(&axis(&x, TOP, bottom));
    body.push_str(&line(if is_cut { "zero" } else { "axis" }, (start, TOP), (start, bottom)));
    for (number, (group, style)) in groups.iter().zip(styles).enumerate() {
        let middle = TOP + row_height * (number as f64 + 0.5);
        body.push_str(&format!(r#"<g class="{}">"#, style.class()));
        let first = middle + 5.0 - LINE / 2.0 * (labels[number].len() as f64 - 1.0);
        for (line, words) in labels[number].iter().enumerate() {
            let at = (names - 12.0, first + LINE * line as f64);
            body.push_str(&text("name", at, "end", words));
        }
        let mean = |at: f64| match is_cut {
            true => style.marker((at, middle), 5.0),
            false => format!(
                r#"<rect class="bar" x="{start:.1}" y="{:.1}" width="{:.1}" height="22" rx="3"/>"#,
                middle - 11.0,
                at - start
            ),
        };
        body.push_str(&row(group, &x, metric, (middle, split - 110.0), mean));
        body.push_str("</g>");
    }
    if let Some(baseline) = baseline {
        let place = (split + 24.0, bottom, row_height);
        body.push_str(&differences(groups, styles, metric, baseline, place));
    }
    let label = format!("{} of every group: means, deviations and seeds", metric.title());
    Figure { width: WIDTH, height: bottom + 44.0, label, body }
}

/// Vertical grid lines with numbers.
pub(super) fn axis(x: &Scale, top: f64, bottom: f64) -> String {
    let mut body = String::new();
    for (at, label) in x.ticks(5) {
        body.push_str(&line("grid", (at, top), (at, bottom)));
        body.push_str(&text("", (at, bottom + 18.0), "middle", &label));
    }
    body
}

/// A label in lines of `width`, cut between its parts: settings may differ in the last one alone.
fn lines(label: &str, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in label.split(" · ") {
        match lines.last_mut() {
            Some(line) if text_width(&format!("{line} · {part}"), 14.0) <= width => {
                line.push_str(&format!(" · {part}"));
            }
            _ => lines.push(fit(part, 14.0, width)),
        }
    }
    lines
}

/// Whether bars from 0 would hardly differ: all values are in the upper quarter.
fn are_close(values: &[f64]) -> bool {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(0.0, f64::max);
    low > 0.75 * high && high > 0.0
}

/// A group's mean, deviation and seeds at height `middle`, in words at `right`.
fn row(
    group: &Group,
    x: &Scale,
    metric: Metric,
    (middle, right): (f64, f64),
    mean: impl Fn(f64) -> String,
) -> String {
    let factor = metric.factor();
    let Some(sample) = group.sample else {
        return text("none", (x.target().0 + 8.0, middle + 4.0), "start", "no finished run");
    };
    let mut body = format!(
        "<g><title>{}</title>{}</g>",
        escape(&format!("{}: {}", group.label, spread(group, metric))),
        mean(x.at(factor * sample.mean))
    );
    let values = group.seeds.iter().filter_map(|seed| seed.value.map(|value| (seed, value)));
    for (number, (seed, value)) in values.enumerate() {
        // Vertically staggered, so that equal values stay countable.
        let shift = (number as f64 - (sample.n as f64 - 1.0) / 2.0) * (16.0 / sample.n as f64);
        let name = format!("{}: {}", seed.name, metric.show(value));
        body.push_str(&format!(
            r#"<circle class="seed" cx="{:.1}" cy="{:.1}" r="2.6"><title>{}</title></circle>"#,
            x.at(factor * value),
            middle + shift,
            escape(&name)
        ));
    }
    if let Some(sd) = sample.sd {
        let (start, end) = x.target();
        let at = |value: f64| x.at(factor * value).clamp(start, end);
        body.push_str(&error_bar(
            "error",
            (at(sample.mean - sd), at(sample.mean + sd)),
            middle,
            5.0,
        ));
    }
    body.push_str(&text("value", (right, middle + 4.0), "start", &spread(group, metric)));
    body
}

/// The differences from the baseline with their intervals.
fn differences(
    groups: &[Group],
    styles: &[SeriesStyle],
    metric: Metric,
    baseline: &str,
    (left, bottom, row_height): (f64, f64, f64),
) -> String {
    let factor = metric.factor();
    let paired = |group: &Group| -> Option<Paired> { group.comparison.as_ref()?.paired };
    let reach = reach(&groups.iter().filter_map(paired).collect::<Vec<_>>());
    let ends = groups.iter().filter_map(paired).flat_map(|paired| {
        let half = paired.half_width.unwrap_or(0.0).min(reach);
        [factor * (paired.mean - half), factor * (paired.mean + half)]
    });
    let range = rounded(ends.chain([0.0]), 4);
    let right = WIDTH - 78.0;
    let x = Scale::new(range, (left, right));
    let unit = if metric.is_share() { ", percentage points" } else { "" };
    let what = format!("{unit}: mean and 95 % interval");
    let room = WIDTH - left - text_width("minus ", 12.0) - text_width(&what, 12.0);
    let title = format!("minus {}{what}", fit(baseline, 12.0, room));
    let mut body = text("", (left, 16.0), "start", &title);
    body.push_str(&axis(&x, TOP, bottom));
    body.push_str(&line("zero", (x.at(0.0), TOP), (x.at(0.0), bottom)));
    for (number, (group, style)) in groups.iter().zip(styles).enumerate() {
        let middle = TOP + row_height * (number as f64 + 0.5);
        let beside = (right + 14.0, middle + 4.0);
        body.push_str(&format!(r#"<g class="{}">"#, style.class()));
        if group.is_baseline {
            body.push_str(&text("", beside, "start", "baseline"));
            body.push_str(&style.marker((x.at(0.0), middle), 5.0));
        } else if let Some(paired) = paired(group) {
            if let Some(half) = paired.half_width {
                let clip = |value: f64| x.at((factor * value).clamp(range.0, range.1));
                let ends = (clip(paired.mean - half), clip(paired.mean + half));
                body.push_str(&error_bar("whisker", ends, middle, 5.0));
                for (value, end, arrow) in
                    [(paired.mean - half, ends.0, "◂"), (paired.mean + half, ends.1, "▸")]
                {
                    if (x.at(factor * value) - end).abs() > 0.5 {
                        body.push_str(&text("", (end, middle - 8.0), "middle", arrow));
                    }
                }
            }
            body.push_str(&style.marker((x.at(factor * paired.mean), middle), 5.0));
            body.push_str(&text("value", beside, "start", &metric.show_difference(paired.mean)));
        } else {
            body.push_str(&text("none", beside, "start", "no pair"));
        }
        body.push_str("</g>");
    }
    body
}

/// The limit of the drawn half width, so that a very wide interval does not flatten the others.
/// Arrows mark intervals that are cut.
fn reach(all: &[Paired]) -> f64 {
    let mut halves: Vec<f64> = all.iter().filter_map(|paired| paired.half_width).collect();
    halves.sort_by(f64::total_cmp);
    let largest = all.iter().map(|paired| paired.mean.abs()).fold(0.0, f64::max);
    let median = halves.get(halves.len() / 2).copied().unwrap_or(0.0);
    (4.0 * median).min(3.0 * largest.max(median)).max(1e-9)
}
