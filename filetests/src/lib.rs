//! Filetests.
