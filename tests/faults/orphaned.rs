//! What engines start is gone, however tokgate ends.
