//! The census: every GPU that the driver has, in its order, each asked by a thread of its own.
//!
//! A GPU that has fallen off the bus can hold the asker for ever. It is named then, and the others are there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc;

use nvml_wrapper::error::NvmlError;

use super::{Library, device, words};
use crate::hardware::patience::Patience;
use crate::hardware::probe::Lost;
use crate::hardware::visible::{Device, Place};

/// What the driver has.
#[derive(Debug, Clone, PartialEq, Default)]
pub(in crate::hardware) struct Census {
    pub(in crate::hardware) driver: Option<String>,
    pub(in crate::hardware) cuda: Option<String>,
    /// Every GPU that may be used from here.
    pub(in crate::hardware) places: Vec<Place>,
    /// How many there are that may not.
    pub(in crate::hardware) forbidden: usize,
}

/// Counts the GPUs.
///
/// # Errors
/// There is no library or no driver, or it does not answer; in words.
pub(in crate::hardware) fn take(patience: &Patience) -> Result<Census, String> {
    let silent = || format!("it does not answer within {patience}");
    let library = patience.ask(Library::load).ok_or_else(silent)??;
    let library = Arc::new(library);
    let asked = Arc::clone(&library);
    let general = patience.ask(move || {
        let count = asked.nvml.device_count().map_err(|error| words(&error));
        (asked.driver(), asked.cuda(), count)
    });
    let (driver, cuda, count) = general.ok_or_else(silent)?;
    let mut answers = each(&library, count?, patience);
    let mut census = Census { driver, cuda, ..Census::default() };
    for (index, answer) in &mut answers {
        let lost = |why: String| Place::Lost(Lost { index: *index, why });
        let place = match answer.take() {
            None => lost(silent()),
            // CUDA does not number those that a container or a job was not given.
            Some(Err(NvmlError::NoPermission)) => {
                census.forbidden += 1;
                continue;
            }
            Some(Err(error)) => lost(words(&error)),
            Some(Ok(device)) => Place::Device(Box::new(device)),
        };
        census.places.push(place);
    }
    Ok(census)
}

type Answer = Result<Device, NvmlError>;

/// What the driver says of each GPU; nothing of one that it does not answer for in time.
fn each(library: &Arc<Library>, count: u32, patience: &Patience) -> BTreeMap<u32, Option<Answer>> {
    let (tell, told) = mpsc::channel();
    for index in 0..count {
        let (tell, library) = (tell.clone(), Arc::clone(library));
        let ask = move || {
            // Nobody listens any more where it took too long.
            let _ = tell.send((index, device::read(&library.nvml, index)));
        };
        // Where there is no thread to be had, there is no answer.
        let _ = std::thread::Builder::new().name("driver".to_owned()).spawn(ask);
    }
    drop(tell);
    let mut answers: BTreeMap<u32, Option<Answer>> = (0..count).map(|at| (at, None)).collect();
    while let Ok((index, answer)) = told.recv_timeout(patience.left()) {
        answers.insert(index, Some(answer));
    }
    answers
}
