//! Submission and completion rings as the submitter sees them.
