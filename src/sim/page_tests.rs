//! The profile of the result page, held to the page.
