//! The command line of `vim-train`. What its commands do is [`vim_engine`]'s.

// In place of the standard library's, which panics where stderr cannot be written.
#[macro_use(eprintln)]
extern crate vim_engine;

pub mod args;
pub mod cli;
mod commands;
