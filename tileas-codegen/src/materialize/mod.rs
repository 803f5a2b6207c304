//! Materialisation.
