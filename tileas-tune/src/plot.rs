//! A search as a picture: time of each look in the order of looking, and the best so far.

use crate::tuner::Look;
use plotters::prelude::*;

/// What every point is drawn with.
const RADIUS: i32 = 3;

/// An SVG drawing of the looks that have a time; nothing is drawn of others.
pub fn svg(title: &str, looks: &[Look]) -> String {
    let mut text = String::new();
    // Only a backend that writes to files fails.
    let _ = draw(&mut text, title, looks);
    text
}

fn draw(text: &mut String, title: &str, looks: &[Look]) -> Result<(), Box<dyn std::error::Error>> {
    let modelled: Vec<(f64, f64)> = looks
        .iter()
        .enumerate()
        .filter_map(|(n, look)| Some(((n + 1) as f64, look.time.as_ref()?.us)))
        .collect();
    let measured: Vec<(f64, f64)> =
        looks.iter().enumerate().filter_map(|(n, look)| Some(((n + 1) as f64, look.measured_us?))).collect();
    let all = modelled.iter().chain(&measured).map(|p| p.1);
    let (low, high) = all.fold((f64::INFINITY, 0.0_f64), |(a, b), us| (a.min(us), b.max(us)));
    let (low, high) = if low.is_finite() { (low / 1.2, high * 1.2) } else { (0.1, 1.0) };
    let root = SVGBackend::with_string(text, (800, 400)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..(looks.len() + 1) as f64, (low..high).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("look")
        .y_desc("microseconds")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.3}"))
        .draw()?;
    let mut best = f64::INFINITY;
    let line = modelled.iter().map(|&(n, us)| {
        best = best.min(us);
        (n, best)
    });
    chart
        .draw_series(LineSeries::new(line.collect::<Vec<_>>(), RED.stroke_width(2)))?
        .label("best so far")
        .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], RED.stroke_width(2)));
    chart
        .draw_series(modelled.iter().map(|&p| Circle::new(p, RADIUS, BLUE.filled())))?
        .label("modelled")
        .legend(|(x, y)| Circle::new((x + 8, y), RADIUS, BLUE.filled()));
    if !measured.is_empty() {
        chart
            .draw_series(measured.iter().map(|&p| TriangleMarker::new(p, 2 * RADIUS, BLACK.filled())))?
            .label("measured")
            .legend(|(x, y)| TriangleMarker::new((x + 8, y), 2 * RADIUS, BLACK.filled()));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    root.present()?;
    drop(chart);
    drop(root);
    Ok(())
}
