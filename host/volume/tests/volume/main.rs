//! Volumes on members whose power goes at any moment, that are swapped, stale, missing or damaged.

mod copies;
mod crash;
mod damage;
mod disk;
mod fixture;
mod refusals;
mod resume;
mod unreadable;
