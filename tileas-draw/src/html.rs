//! A page that needs nothing but a browser: the drawing of each loop, its ops and dependences as tables.
//!
//! In: pictures. Out: one HTML document without any reference to the network. The drawing is that of [`svg`];
//! its tooltips work without script. The script only marks what belongs to the op under the pointer, everywhere on the page, and
//! scales the drawing. All text from kernels and documents is escaped.

use crate::picture::{Options, Picture};
use crate::svg::{details, escape, svg};
use std::fmt::{self, Write};
use tileas_schedule::render::slack;

const STYLE: &str = ":root{color-scheme:light dark;--ink:#1f2328;--dim:#59636e;--line:#d1d9e0;--paper:#fff;--mark:#fff8c5}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--dim:#9198a1;--line:#3d444d;--paper:#0d1117;--mark:#3b2e00}}
body{font:14px/1.45 system-ui,sans-serif;margin:24px;color:var(--ink);background:var(--paper)}
h1{font-size:20px}h2{font-size:17px;margin:28px 0 6px}h3{font-size:14px;margin:18px 0 4px}
table{border-collapse:collapse;font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
td,th{border-bottom:1px solid var(--line);padding:2px 10px 2px 4px;text-align:left}td.n,th.n{text-align:right}
.note{color:var(--dim)}.draw{overflow-x:auto;border:1px solid var(--line);border-radius:6px}.draw svg{max-width:none;display:block}
tr.on{background:var(--mark)}.draw.pick .op,.draw.pick .edge{opacity:.18}.draw .op.on,.draw .edge.on{opacity:1!important}
.bind{font-weight:600}ul{margin:4px 0;padding-left:22px}code{font:12px ui-monospace,monospace}";

const SCRIPT: &str = "document.querySelectorAll('.loop').forEach(box=>{const draw=box.querySelector('.draw');
const all=q=>box.querySelectorAll(q);const off=()=>{draw.classList.remove('pick');all('.on').forEach(e=>e.classList.remove('on'))};
const on=n=>{off();draw.classList.add('pick');const near=new Set([n]);
all('.edge').forEach(e=>{if(e.dataset.a==n||e.dataset.b==n){e.classList.add('on');near.add(e.dataset.a);near.add(e.dataset.b)}});
all('.op').forEach(o=>near.has(o.dataset.n)&&o.classList.add('on'));
all('tr[data-n]').forEach(r=>r.dataset.n==n&&r.classList.add('on'))};
all('.op,tr[data-n]').forEach(o=>{o.onmouseenter=()=>on(o.dataset.n);o.onmouseleave=off});
const svg=draw.querySelector('svg'),zoom=box.querySelector('input'),w=svg.getAttribute('width'),h=svg.getAttribute('height');
zoom.oninput=()=>{svg.setAttribute('width',w*zoom.value);svg.setAttribute('height',h*zoom.value)}})";

/// A document with that title and body, and the style and script that drawings and tables use.
pub(crate) fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>\n<style>{STYLE}</style></head>\n\
         <body>\n{body}<script>{SCRIPT}</script>\n</body></html>\n",
        escape(title)
    )
}

/// The page for some loops.
pub fn html_page(pictures: &[Picture], options: &Options) -> String {
    let mut body = html_sections(pictures, options);
    if body.is_empty() {
        body.push_str("<p>No loop was scheduled.</p>\n");
    }
    document("Schedules", &body)
}

/// The loops as sections of a page, without its frame.
pub fn html_sections(pictures: &[Picture], options: &Options) -> String {
    let mut out = String::new();
    for p in pictures.iter().filter(|p| p.is_valid()) {
        // Writing to a string cannot fail.
        let _ = section(&mut out, p, options);
    }
    out
}

fn section(out: &mut String, p: &Picture, options: &Options) -> fmt::Result {
    writeln!(out, "<section class=\"loop\"><h2>{}</h2>", escape(&p.schedule.name))?;
    writeln!(out, "<p>{}. {}</p>", escape(&p.headline()), escape(&bounds(p)))?;
    write!(out, "<div class=\"draw\">{}</div>", svg(std::slice::from_ref(p), options))?;
    writeln!(
        out,
        "<p class=\"note\">Solid: slots held; thin line: until the result is ready; paler: later iterations. An arrow begins where a \
         result is ready and ends where it is needed, its width is the slack; dashed arrows lead to later iterations. \
         Zoom <input type=\"range\" min=\"0.5\" max=\"6\" step=\"0.1\" value=\"1\"></p>"
    )?;
    ops(out, p)?;
    dependences(out, p)?;
    writeln!(out, "</section>")
}

fn bounds(p: &Picture) -> String {
    let b = &p.schedule.bounds;
    let slot = b.resource_slot.map_or("-", |x| &p.problem.slots()[x].name);
    let pool = b.density_pool.map_or("-", |x| &p.problem.pools()[x].name);
    format!(
        "Lower bounds: resource {} ({slot}), recurrence {}, fine density {} ({pool}), dependency {}.",
        b.resource, b.recurrence, b.fine_density, b.dependency
    )
}

fn ops(out: &mut String, p: &Picture) -> fmt::Result {
    let s = &p.schedule;
    writeln!(
        out,
        "<details open><summary>Ops</summary><table><tr><th class=\"n\">order</th><th>id</th><th>op</th><th>by</th>"
    )?;
    for head in ["start", "stage", "row", "latency", "slack"] {
        write!(out, "<th class=\"n\">{head}</th>")?;
    }
    writeln!(out, "</tr>")?;
    for n in s.by_order() {
        let lane = p.lanes.names.get(p.lanes.of[n] as usize).map_or("", |n| n.as_str());
        write!(
            out,
            "<tr data-n=\"{}\" title=\"{}\"><td class=\"n\">{}</td>",
            n.as_u32(),
            escape(&details(p, n)),
            s.order[n]
        )?;
        for text in [p.problem.id(n), p.problem.op_name(n), lane] {
            write!(out, "<td>{}</td>", escape(text))?;
        }
        for v in [s.start[n], s.stage[n], s.start[n] % s.ii, p.problem.latency(n)] {
            write!(out, "<td class=\"n\">{v}</td>")?;
        }
        let slack = slack(&p.problem, s, n).map_or("-".into(), |v| v.to_string());
        writeln!(out, "<td class=\"n\">{slack}</td></tr>")?;
    }
    writeln!(out, "</table></details>")
}

fn dependences(out: &mut String, p: &Picture) -> fmt::Result {
    let s = &p.schedule;
    writeln!(out, "<details><summary>Dependences</summary><table><tr><th>from</th><th>to</th>")?;
    for head in ["latency", "distance", "here", "slack"] {
        write!(out, "<th class=\"n\">{head}</th>")?;
    }
    writeln!(out, "</tr>")?;
    for e in p.problem.edges().values() {
        let here = i128::from(s.start[e.to]) + i128::from(s.ii) * i128::from(e.distance);
        let here = here - i128::from(s.start[e.from]);
        write!(out, "<tr><td>{}</td><td>{}</td>", escape(p.problem.id(e.from)), escape(p.problem.id(e.to)))?;
        for v in [i128::from(e.latency), e.distance.into(), here, here - i128::from(e.latency)] {
            write!(out, "<td class=\"n\">{v}</td>")?;
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</table></details>")
}
