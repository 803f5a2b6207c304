//! Which points to look at, and when to stop.
//!
//! Descent from the best point known: its neighbours along every axis, then steps of two axes at once; when nothing near is better, on from
//! the next best point whose neighbourhood was not looked at. Points come in batches, whose points do not depend on each
//! other, so that they can be tried side by side; what is asked for next depends on the results alone, not on their order. Ends
//! when the budget is spent or nothing is left.

use crate::space::{Point, Space};
use rustc_hash::{FxHashMap, FxHashSet};

/// A search over a space.
#[derive(Clone, Debug)]
pub struct Search {
    sizes: Vec<usize>,
    /// Points that may still be asked for.
    left: usize,
    asked: FxHashSet<Point>,
    /// Time by point; infinite for one that does not work.
    times: FxHashMap<Point, f64>,
    /// Points whose neighbours were asked for, by how many axes change at once.
    expanded: FxHashSet<(Point, usize)>,
    start: Option<Point>,
}

impl Search {
    /// From a point on, over so many points at most. By default (`None`) a fifth of the space, but at least 8 points.
    pub fn new(space: &Space, start: Point, budget: Option<usize>) -> Search {
        let points = space.points();
        let budget = budget.unwrap_or((points / 5).max(8)).clamp(1, points);
        Search {
            sizes: space.axes.iter().map(|a| a.values.len()).collect(),
            left: budget,
            asked: FxHashSet::default(),
            times: FxHashMap::default(),
            expanded: FxHashSet::default(),
            start: Some(start),
        }
    }

    /// How many points it may still ask for.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Points to try now; none at the end. The results of all points asked for before have to be told first.
    pub fn next_batch(&mut self) -> Vec<Point> {
        if let Some(start) = self.start.take() {
            return self.ask(vec![start]);
        }
        while self.left > 0 {
            let mut known: Vec<(&Point, f64)> = self.times.iter().map(|(p, &t)| (p, t)).collect();
            known.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| a.0.cmp(b.0)));
            // The best point of which something near is unknown; one axis at a time first.
            let next = known.iter().find_map(|(p, t)| {
                let next = (1..=2).find(|&axes| !self.expanded.contains(&((*p).clone(), axes)))?;
                // Of points that do not work, two axes at once may: but only where nothing works.
                (t.is_finite() || known[0].1.is_infinite()).then(|| ((*p).clone(), next))
            });
            let batch = match next {
                Some((point, axes)) => {
                    let near = if axes == 1 { self.beside(&point) } else { self.across(&point) };
                    self.expanded.insert((point, axes));
                    near
                }
                None => match self.first_unknown() {
                    Some(point) => vec![point],
                    None => return Vec::new(),
                },
            };
            let batch = self.ask(batch);
            if !batch.is_empty() {
                return batch;
            }
        }
        Vec::new()
    }

    /// The time of a point that was asked for; `None`: it does not work.
    pub fn tell(&mut self, point: &[usize], time: Option<f64>) {
        let time = time.filter(|t| t.is_finite()).unwrap_or(f64::INFINITY);
        self.times.insert(point.to_vec(), time);
    }

    /// The best point so far.
    pub fn best(&self) -> Option<(&Point, f64)> {
        let known = self.times.iter().filter(|(_, t)| t.is_finite()).map(|(p, &t)| (p, t));
        known.min_by(|a, b| a.1.total_cmp(&b.1).then_with(|| a.0.cmp(b.0)))
    }

    fn ask(&mut self, mut points: Vec<Point>) -> Vec<Point> {
        points.retain(|p| !self.asked.contains(p));
        points.truncate(self.left);
        self.left -= points.len();
        self.asked.extend(points.iter().cloned());
        points
    }

    fn step(&self, point: &[usize], axis: usize, up: bool) -> Option<Point> {
        let mut near = point.to_vec();
        near[axis] = if up { near[axis] + 1 } else { near[axis].checked_sub(1)? };
        (near[axis] < self.sizes[axis]).then_some(near)
    }

    fn beside(&self, point: &[usize]) -> Vec<Point> {
        let steps = (0..self.sizes.len()).flat_map(|axis| [(axis, false), (axis, true)]);
        steps.filter_map(|(axis, up)| self.step(point, axis, up)).collect()
    }

    fn across(&self, point: &[usize]) -> Vec<Point> {
        let mut all = Vec::new();
        for a in 0..self.sizes.len() {
            for b in a + 1..self.sizes.len() {
                for (up_a, up_b) in [(false, true), (true, false), (true, true), (false, false)] {
                    all.extend(self.step(point, a, up_a).and_then(|p| self.step(&p, b, up_b)));
                }
            }
        }
        all
    }

    /// The first point, by its values, that nobody asked for.
    fn first_unknown(&self) -> Option<Point> {
        let mut point = vec![0; self.sizes.len()];
        loop {
            if !self.asked.contains(&point) {
                return Some(point);
            }
            let axis = (0..self.sizes.len()).rev().find(|&a| point[a] + 1 < self.sizes[a])?;
            point[axis] += 1;
            point[axis + 1..].fill(0);
        }
    }
}
