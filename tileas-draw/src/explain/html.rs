//! Explanations as a page: the words of [`super::text`], each loop followed by its drawing and tables.

use super::Explanation;
use super::text::{
    agent_lines, binding_lines, channel_line, clock_lines, obstacle_lines, other_lines, search_lines,
    source_lines, verdict, what_if_line,
};
use crate::Options;
use crate::html::{document, html_sections};
use crate::svg::escape;
use std::fmt::{self, Write};
use tileas_schedule::explain::{RegionExplanation, Verdict};

impl Explanation {
    /// A self-contained page.
    pub fn to_html(&self, options: &Options) -> String {
        let mut body = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_page(&mut body, options);
        document("Why this schedule", &body)
    }

    fn write_page(&self, out: &mut String, options: &Options) -> fmt::Result {
        let mut loops = self.kernels.iter().flat_map(|k| &k.loops);
        for (region, picture) in self.regions().zip(&self.pictures) {
            writeln!(out, "<h1>{}</h1>", escape(&region.name))?;
            write_region(out, region)?;
            if let Some(l) = loops.next() {
                if let Some(text) = &l.real_cycles {
                    writeln!(out, "<p>{}</p>", escape(text))?;
                }
                list(out, "In clocks", &clock_lines(l))?;
                list(out, "Agents", &agent_lines(l))?;
                list(out, "Source", &source_lines(l))?;
            }
            out.push_str(&html_sections(std::slice::from_ref(picture), options));
        }
        for k in &self.kernels {
            writeln!(out, "<h1>kernel @{}</h1>", escape(&k.name))?;
            if k.loops.is_empty() {
                writeln!(out, "<p>No loop to schedule.</p>")?;
            }
            for c in &k.channels {
                list(out, &channel_line(c), &c.facts)?;
            }
            let settings: Vec<String> =
                k.what_if.iter().map(|w| format!("{}: {}", w.setting, w.effect)).collect();
            list(out, "Other settings", &settings)?;
        }
        Ok(())
    }
}

fn list(out: &mut String, head: &str, lines: &[String]) -> fmt::Result {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(out, "<h3>{}</h3><ul>", escape(head))?;
    for l in lines {
        writeln!(out, "<li>{}</li>", escape(l))?;
    }
    writeln!(out, "</ul>")
}

fn write_region(out: &mut String, r: &RegionExplanation) -> fmt::Result {
    writeln!(out, "<p class=\"bind\">{}</p>", escape(&verdict(r)))?;
    if r.verdict == Verdict::Empty {
        return Ok(());
    }
    list(out, "What binds", &binding_lines(r))?;
    list(out, "What needs less", &other_lines(r))?;
    if let Some(ii) = r.tighter.ii {
        list(out, &format!("Why not II {ii}"), &obstacle_lines(r))?;
    }
    let changes: Vec<String> = r.what_if.iter().map(|w| what_if_line(w, r)).collect();
    list(out, "What would change it", &changes)?;
    list(out, "How it was found", &search_lines(r))?;
    list(out, "Refinement", &r.rounds)?;
    list(out, "Remarks", &r.notes)?;
    write!(out, "<details><summary>Slack</summary><table><tr><th>id</th>")?;
    for head in ["start", "earliest", "latest", "alone", "path", "around"] {
        write!(out, "<th class=\"n\">{head}</th>")?;
    }
    writeln!(out, "</tr>")?;
    let some = |v: Option<i64>| v.map_or("-".to_owned(), |v| v.to_string());
    for o in &r.ops {
        write!(out, "<tr><td>{}</td>", escape(&o.id))?;
        let s = &o.slack;
        let cells = [o.start.to_string(), s.earliest.to_string(), s.latest.to_string(), some(s.alone)];
        for v in cells.into_iter().chain([s.path().to_string(), some(s.around)]) {
            write!(out, "<td class=\"n\">{v}</td>")?;
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</table></details>")
}
