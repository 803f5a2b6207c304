//! The scheduler's tests, in one program. `alloc`, which counts allocations, is one of its own.

mod json;
mod ladder;
mod lifetime;
mod models;
mod optimal;
mod random;
mod rules;
mod spec_modulo;
mod steps;
