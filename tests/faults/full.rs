//! Disks that are missing, read-only or full, and readers of reports at any moment.
