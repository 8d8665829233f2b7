//! Controller bring-up and admin queue over a Backing.
