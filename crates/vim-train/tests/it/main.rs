//! Integration tests, one binary.

#![expect(clippy::unwrap_used, reason = "a test ends at what it cannot do")]

mod bench;
mod commands;
mod config;
mod config_command;
mod cuda_libraries;
mod data;
mod dense;
mod detection;
mod differences;
mod docs;
mod doctor;
mod eval;
mod eval_coco;
mod events;
mod fatal;
mod features;
mod flags;
mod layers;
mod library;
mod nodes;
mod old_runs;
mod packed;
mod predict;
mod profile;
mod provenance;
mod rank_mistakes;
mod rank_tools;
mod ranks;
mod recipe;
mod resume;
mod run_dir;
mod runs;
mod segmentation;
mod slurm;
mod slurm_task;
mod support;
mod survive;
mod sweep;
mod sweep_mistakes;
mod toy_task;
mod train;
mod verify;
mod weights;
mod wrong;
