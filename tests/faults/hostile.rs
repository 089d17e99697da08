//! Foreign text in every report and on the terminal.
