//! The model against the specification, by bytes: bring-up, commands, rings, media, timing.

mod admin;
mod faults;
mod media;
mod power;
mod power_cuts;
mod prp;
mod queues;
mod rig;
mod serving;
mod timing;
