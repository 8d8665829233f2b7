//! Charts, one a panel. SVG text is laid out by whoever shows it, so no font is needed here.

use plotters::coord::Shift;
use plotters::prelude::*;

/// A panel of an SVG drawing.
pub(super) type Panel<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Drawing into a string fails only inside plotters.
pub(super) type DrawError = DrawingAreaErrorKind<std::io::Error>;

const FONT: (&str, i32) = ("sans-serif", 15);
const TITLE_FONT: (&str, i32) = ("sans-serif", 20);
/// Told apart by colour-blind readers too (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(150, 150, 150),
];
/// Width of the legend, and the distance of its lines.
const LEGEND_SIZE: (i32, i32) = (190, 22);

/// What the axes are.
pub(super) struct Axes<'a> {
    pub(super) title: &'a str,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
    /// How a value of y is written.
    pub(super) y_label: fn(f64) -> String,
}

/// Repeated measurements of one thing: a bar as high as their median, a whisker from least to most.
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) values: Vec<f64>,
}

/// Points of one line, in the order of x.
pub(super) struct Series {
    pub(super) label: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// Draws bars from zero.
pub(super) fn bars(panel: &Panel<'_>, axes: &Axes<'_>, bars: &[Bar]) -> Result<(), DrawError> {
    let top = top(bars.iter().flat_map(|bar| bar.values.iter().copied()));
    let mut chart = ChartBuilder::on(panel)
        .caption(axes.title, TITLE_FONT)
        .margin(12)
        .x_label_area_size(45)
        .y_label_area_size(80)
        .build_cartesian_2d(0..2 * bars.len() as i32, 0.0..top)?;
    // Bar n lies between 2n and 2n + 2, its name under the middle.
    let label = |x: &i32| match usize::try_from(*x) {
        Ok(x) if x % 2 == 1 => bars[x / 2].label.clone(),
        _ => String::new(),
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(2 * bars.len() + 1)
        .x_label_formatter(&label)
        .y_label_formatter(&|y| (axes.y_label)(*y))
        .x_desc(axes.x)
        .y_desc(axes.y)
        .label_style(FONT)
        .axis_desc_style(FONT)
        .draw()?;
    for (left, bar) in (0..).step_by(2).zip(bars) {
        let mut values = bar.values.clone();
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let (Some(&low), Some(&high)) = (values.first(), values.last()) else {
            continue;
        };
        let median = values[values.len() / 2];
        let mut body = Rectangle::new([(left, 0.0), (left + 2, median)], COLOURS[0].filled());
        body.set_margin(0, 0, 20, 20);
        chart.draw_series([body])?;
        if values.len() > 1 {
            let centre = left + 1;
            chart.draw_series([PathElement::new(
                [(centre, low), (centre, high)],
                BLACK.stroke_width(2),
            )])?;
            chart.draw_series(
                [low, high].map(|end| Circle::new((centre, end), 3, BLACK.filled())),
            )?;
        }
    }
    Ok(())
}

/// Draws lines from x = 0 on, with a legend beside; `x_label` names a place on the x axis.
pub(super) fn lines(
    panel: &Panel<'_>,
    axes: &Axes<'_>,
    series: &[Series],
    x_label: &dyn Fn(&f64) -> String,
) -> Result<(), DrawError> {
    let width = panel.dim_in_pixel().0 as i32;
    let (plot, beside) = panel.split_horizontally(width - LEGEND_SIZE.0);
    let points = || {
        series
            .iter()
            .flat_map(|series| series.points.iter().copied())
    };
    let right = top(points().map(|(x, _)| x));
    let mut chart = ChartBuilder::on(&plot)
        .caption(axes.title, TITLE_FONT)
        .margin(12)
        .x_label_area_size(45)
        .y_label_area_size(80)
        .build_cartesian_2d(0.0..right, 0.0..top(points().map(|(_, y)| y)))?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(9)
        .x_label_formatter(x_label)
        .y_label_formatter(&|y| (axes.y_label)(*y))
        .x_desc(axes.x)
        .y_desc(axes.y)
        .label_style(FONT)
        .axis_desc_style(FONT)
        .draw()?;
    let coloured = || series.iter().zip(COLOURS.iter().cycle());
    for (series, colour) in coloured() {
        let line = series.points.iter().copied();
        chart.draw_series(LineSeries::new(line, colour.stroke_width(2)).point_size(4))?;
    }
    for (y, (series, colour)) in (60..).step_by(LEGEND_SIZE.1 as usize).zip(coloured()) {
        let stroke = colour.stroke_width(3);
        beside.draw(&PathElement::new([(0, y), (18, y)], stroke))?;
        beside.draw(&Text::new(series.label.clone(), (24, y - 7), FONT))?;
    }
    Ok(())
}

/// The end of an axis that begins at zero.
fn top(values: impl Iterator<Item = f64>) -> f64 {
    let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
    if most > 0.0 { most * 1.06 } else { 1.0 }
}
