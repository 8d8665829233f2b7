//! Session, memory and the two runners: CUDA and host threads.
