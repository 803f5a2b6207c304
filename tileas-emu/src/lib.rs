//! PTX emulator on the CPU.
pub mod layout;
pub mod num;
