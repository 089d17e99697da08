//! Secrets, by whatever way they go out, are found nowhere.
