//! The page: setup, numbers, and failed rows.

use super::{Names, Source, Table};
use crate::output::summary::rate;

pub(super) fn page(sources: &[Source], names: &Names, tables: &[Table]) -> String {
    let mut page = String::from("# Benchmark\n\n");
    page.push_str(
        "| file | configuration | --set | device | hardware | version | commit | measured |\n",
    );
    page.push_str("|---|---|---|---|---|---|---|---|\n");
    for Source { path, document } in sources {
        let made = |key: &str| document.environment[key].as_str().unwrap_or("–").to_owned();
        let cells = [
            path.display().to_string(),
            document.config.clone(),
            document.overrides.join(", "),
            made("backend"),
            document.hardware.clone().unwrap_or_else(|| "–".into()),
            made("version"),
            made("commit"),
            made("started"),
        ];
        push(&mut page, &cells);
    }
    for table in tables {
        page.push_str(&format!("\n## {}\n\n", table.mode));
        page.push_str(
            "| method | px | type | batch | ms | p10 | p90 | ms/img | img/s | GFLOP/img | GFLOP/s | peak MiB | params, M |\n",
        );
        page.push_str("|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n");
        let dash = || "–".to_owned();
        for series in &table.series {
            for &batch in &table.batches {
                let Some(point) = table.point(series, batch) else { continue };
                let (row, latency) = (point.row, point.latency);
                let cells = [
                    series.clone(),
                    row.image_size.to_string(),
                    row.dtype.clone(),
                    batch.to_string(),
                    format!("{:.3}", latency.median_ms),
                    format!("{:.3}", latency.p10_ms),
                    format!("{:.3}", latency.p90_ms),
                    format!("{:.3}", point.per_image(latency.median_ms)),
                    rate(point.throughput.img_s),
                    row.flops_per_image
                        .map_or_else(dash, |flops| format!("{:.3}", flops as f64 / 1e9)),
                    row.flop_s.map_or_else(dash, |rate| format!("{:.1}", rate / 1e9)),
                    row.peak_memory_bytes
                        .map_or_else(dash, |bytes| format!("{:.1}", bytes as f64 / 2f64.powi(20))),
                    format!("{:.3}", row.parameters as f64 / 1e6),
                ];
                push(&mut page, &cells);
            }
        }
    }
    let failed: Vec<String> = sources
        .iter()
        .enumerate()
        .flat_map(|(number, source)| source.document.results.iter().map(move |row| (number, row)))
        .filter_map(|(number, row)| {
            let (name, reason) = (names.of(number, row), row.error.as_ref()?);
            Some(format!("- {name} {} batch {}: {reason}\n", row.mode, row.batch))
        })
        .collect();
    if !failed.is_empty() {
        page.push_str(&format!("\n## Did not run\n\n{}", failed.concat()));
    }
    page.push_str(
        "\nms: a step, the device waited for after it (median, 10th and 90th percentile). img/s: steps queued one behind\n\
         the other, over the images that they took. GFLOP/s: a training step counted as three forward passes.\n",
    );
    page
}

fn push(page: &mut String, cells: &[String]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    page.push_str(&format!("| {} |\n", cells.join(" | ")));
}
