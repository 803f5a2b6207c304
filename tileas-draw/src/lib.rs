//! `tileas-draw`: schedules as pictures (chart for terminals, SVG, self-contained HTML page, Chrome trace), and explanations of them.
//!
//! In: [`Picture`]s (a problem, its schedule, who runs what), or a module or bare graphs ([`explain`]). Out: text. Diagnostics only:
//! no pass reads any of it, so drawing cannot change a schedule. One file per form; all share the layout of [`Picture`]s.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod chrome;
pub mod explain;
mod gantt;
mod html;
mod picture;
mod rows;
mod svg;

pub use chrome::chrome_trace;
pub use gantt::gantt;
pub use html::html_page;
pub use picture::{Lanes, Options, Picture};
pub use svg::svg;
