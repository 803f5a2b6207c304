//! Compiler library.
