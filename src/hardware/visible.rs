//! Visibility: which of a machine's GPUs an engine sees, by the variables that hide some of them.
//!
//! Pure: it is told the GPUs in their driver's order and what the environment says, and chooses by the rules of
//! CUDA and ROCm. Of a slice (MIG) it knows that one process sees one.

use super::Gpu;
use super::probe::{GpuNow, Lost};

/// What of an environment decides which GPUs an engine sees.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Visible {
    /// `CUDA_VISIBLE_DEVICES`; on AMD in place of `HIP_VISIBLE_DEVICES`.
    cuda: Option<String>,
    /// `CUDA_DEVICE_ORDER`.
    order: Option<String>,
    /// `NVIDIA_VISIBLE_DEVICES`: what a container was given. It hides nothing that is there.
    given: Option<String>,
    /// `ROCR_VISIBLE_DEVICES`.
    rocr: Option<String>,
    /// `HIP_VISIBLE_DEVICES`, whose numbers count what `ROCR_VISIBLE_DEVICES` shows.
    hip: Option<String>,
}

/// A GPU or a slice of one, as it was found.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Found {
    pub(super) gpu: Gpu,
    pub(super) now: GpuNow,
}

/// A GPU with the slices that it is cut into.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Device {
    pub(super) whole: Found,
    pub(super) slices: Vec<Slice>,
}

/// A slice.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Slice {
    pub(super) found: Found,
    /// Its GPU instance and compute instance.
    pub(super) instance: Option<(u32, u32)>,
}

/// A place in a driver's order.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Place {
    Device(Box<Device>),
    Lost(Lost),
}

impl Place {
    pub(super) fn lost(self) -> Option<Lost> {
        match self {
            Place::Device(_) => None,
            Place::Lost(lost) => Some(lost),
        }
    }
}

/// What an engine sees.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Choice {
    pub(super) seen: Vec<Found>,
    /// Why that is not every GPU.
    pub(super) why: Vec<String>,
    /// What may make it another one.
    pub(super) notes: Vec<String>,
}

/// What an entry of a list names: a GPU by its place, whole or a slice of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    Whole(usize),
    Slice(usize, usize),
}

impl Visible {
    /// What the environment says in which `lookup` finds values.
    pub fn of(lookup: impl Fn(&str) -> Option<String>) -> Visible {
        Visible {
            cuda: lookup("CUDA_VISIBLE_DEVICES"),
            order: lookup("CUDA_DEVICE_ORDER"),
            given: lookup("NVIDIA_VISIBLE_DEVICES"),
            rocr: lookup("ROCR_VISIBLE_DEVICES"),
            hip: lookup("HIP_VISIBLE_DEVICES"),
        }
    }

    /// What the environment of this process says.
    pub fn here() -> Visible {
        Visible::of(|name| std::env::var_os(name).map(|it| it.to_string_lossy().into_owned()))
    }

    /// Why a container sees no driver, where a word on that can be had from what it was given.
    pub(super) fn container(&self) -> Option<String> {
        let given = self.given.as_deref()?;
        Some(match given {
            "" | "void" | "none" => {
                format!("NVIDIA_VISIBLE_DEVICES=\"{given}\" gives this container no GPU")
            }
            _ => format!(
                "NVIDIA_VISIBLE_DEVICES=\"{given}\" asks for GPUs: was this container started with the NVIDIA runtime?"
            ),
        })
    }

    /// What CUDA shows of GPUs.
    pub(super) fn cuda(&self, places: &[Place]) -> Choice {
        let mut choice = Choice::default();
        let list = self.cuda.as_deref();
        let (named, wrong) = match list {
            None => (all(places), None),
            Some(list) => read(list, |entry| cuda_entry(entry, places)),
        };
        let named = self.one_slice(named, places, &mut choice);
        choice.seen = named.iter().filter_map(|it| found(places, *it)).cloned().collect();
        if let Some(list) = list {
            hidden(
                "CUDA_VISIBLE_DEVICES",
                list,
                choice.seen.len(),
                places.len(),
                wrong,
                &mut choice,
            );
            let numbered = list.split(',').any(|entry| number(entry).is_some());
            let in_order = self.order.as_deref() == Some("PCI_BUS_ID");
            if numbered && !in_order && !alike(places) {
                choice.notes.push(order_note("CUDA_VISIBLE_DEVICES"));
            }
        }
        choice
    }

    /// CUDA puts slices in place of GPUs that are cut. A process sees one slice, and no whole GPU beside it.
    fn one_slice(&self, named: Vec<Named>, places: &[Place], choice: &mut Choice) -> Vec<Named> {
        let mut shown = Vec::new();
        for it in named {
            match it {
                Named::Whole(at) => match device(places, at) {
                    Some(device) if device.whole.gpu.mig == Some(true) => {
                        if device.slices.is_empty() {
                            choice.why.push(format!(
                                "GPU {at} is in MIG mode and has no slice, so that CUDA shows nothing of it"
                            ));
                        } else {
                            shown.push(Named::Slice(at, 0));
                        }
                    }
                    Some(_) | None => shown.push(it),
                },
                Named::Slice(..) => shown.push(it),
            }
        }
        let is_slice = |it: &Named| matches!(it, Named::Slice(..));
        if !shown.iter().any(is_slice) {
            return shown;
        }
        let wholes = shown.iter().filter(|it| !is_slice(it)).count();
        if wholes > 0 {
            shown.retain(is_slice);
            choice
                .why
                .push(format!("beside a slice (MIG) CUDA shows no whole GPU: {wholes} hidden"));
        }
        if self.cuda.is_none() {
            let slices: usize = places.iter().map(|place| slices_of(place).len()).sum();
            shown.truncate(1);
            if slices > 1 {
                choice.why.push(format!(
                    "CUDA shows a process one slice (MIG), and there are {slices}: CUDA_VISIBLE_DEVICES names another"
                ));
            }
        } else if shown.len() > 1 {
            choice.notes.push(format!(
                "CUDA_VISIBLE_DEVICES names {} slices (MIG); one process sees the first of them alone",
                shown.len()
            ));
        }
        shown
    }

    /// What ROCm shows of GPUs.
    pub(super) fn rocm(&self, places: &[Place]) -> Choice {
        let mut choice = Choice::default();
        let mut left = places.to_vec();
        let hip = match (&self.hip, &self.cuda) {
            (Some(list), _) => Some(("HIP_VISIBLE_DEVICES", list)),
            (None, Some(list)) => Some(("CUDA_VISIBLE_DEVICES", list)),
            (None, None) => None,
        };
        let rocr = self.rocr.as_ref().map(|list| ("ROCR_VISIBLE_DEVICES", list));
        for (variable, list) in rocr.into_iter().chain(hip) {
            let (named, wrong) = read(list, |entry| rocm_entry(entry, &left));
            let of = left.len();
            left = named
                .iter()
                .filter_map(|it| match it {
                    Named::Whole(at) | Named::Slice(at, _) => left.get(*at).cloned(),
                })
                .collect();
            hidden(variable, list, left.len(), of, wrong, &mut choice);
            if list.split(',').any(|entry| number(entry).is_some()) && !alike(places) {
                choice.notes.push(order_note(variable));
            }
        }
        choice.seen = left.iter().filter_map(whole).cloned().collect();
        choice
    }
}

fn order_note(variable: &str) -> String {
    let order = if variable == "CUDA_VISIBLE_DEVICES" {
        "CUDA's own, fastest first, may be another: CUDA_DEVICE_ORDER=PCI_BUS_ID makes them one"
    } else {
        "that of the runtime may be another"
    };
    format!(
        "the GPUs are not alike, and {variable} has numbers: they are read in the driver's order; {order}, and ids leave no doubt"
    )
}

fn all(places: &[Place]) -> Vec<Named> {
    (0..places.len()).map(Named::Whole).collect()
}

fn whole(place: &Place) -> Option<&Found> {
    match place {
        Place::Device(device) => Some(&device.whole),
        Place::Lost(_) => None,
    }
}

fn device(places: &[Place], at: usize) -> Option<&Device> {
    match places.get(at)? {
        Place::Device(device) => Some(device),
        Place::Lost(_) => None,
    }
}

fn slices_of(place: &Place) -> &[Slice] {
    match place {
        Place::Device(device) => &device.slices,
        Place::Lost(_) => &[],
    }
}

fn found(places: &[Place], named: Named) -> Option<&Found> {
    match named {
        Named::Whole(at) => Some(&device(places, at)?.whole),
        Named::Slice(at, slice) => Some(&device(places, at)?.slices.get(slice)?.found),
    }
}

fn alike(places: &[Place]) -> bool {
    let mut names = places.iter().filter_map(whole).map(|found| &found.gpu.name);
    let first = names.next();
    names.all(|name| Some(name) == first)
}

/// What a list names, in its order: the first entry that is nothing ends it, and is told; one that stands there twice
/// makes it show nothing.
fn read(list: &str, entry: impl Fn(&str) -> Option<Named>) -> (Vec<Named>, Option<String>) {
    let mut named = Vec::new();
    for text in list.split(',').map(str::trim) {
        match entry(text) {
            None => return (named, Some(format!("there is no {text}")).filter(|_| telling(text))),
            Some(it) if named.contains(&it) => {
                return (Vec::new(), Some(format!("{text} stands there twice")));
            }
            Some(it) => named.push(it),
        }
    }
    (named, None)
}

/// Whether an entry that names nothing was meant to name something: `-1`, `none` and the empty one were not.
fn telling(entry: &str) -> bool {
    entry.starts_with(|c: char| c.is_ascii_digit())
        || entry.contains("GPU-")
        || entry.contains("MIG-")
}

/// The number at the beginning of an entry, as the C library would read it.
fn number(entry: &str) -> Option<usize> {
    let entry = entry.trim();
    let entry = entry.strip_prefix('+').unwrap_or(entry);
    let end = entry.find(|c: char| !c.is_ascii_digit()).unwrap_or(entry.len());
    entry[..end].parse().ok()
}

/// The one among ids that begins so; none where several do.
fn begins<T>(ids: impl Iterator<Item = (T, Option<String>)>, beginning: &str) -> Option<T> {
    let mut matching =
        ids.filter(|(_, id)| id.as_ref().is_some_and(|id| id.starts_with(beginning)));
    let first = matching.next()?;
    matching.next().is_none().then_some(first.0)
}

fn cuda_entry(entry: &str, places: &[Place]) -> Option<Named> {
    if entry.starts_with("GPU-") {
        return begins(wholes(places), entry).map(Named::Whole);
    }
    if entry.starts_with("MIG-") {
        let slices = places.iter().enumerate().flat_map(|(at, place)| {
            let of = move |(nth, slice): (usize, &Slice)| ((at, nth), slice.found.gpu.uuid.clone());
            slices_of(place).iter().enumerate().map(of)
        });
        let named = begins(slices, entry).or_else(|| instance(entry, places));
        return named.map(|(at, nth)| Named::Slice(at, nth));
    }
    number(entry).filter(|at| *at < places.len()).map(Named::Whole)
}

/// The slice of the older spelling, `MIG-GPU-<id of the GPU>/<GPU instance>/<compute instance>`.
fn instance(entry: &str, places: &[Place]) -> Option<(usize, usize)> {
    let mut parts = entry.strip_prefix("MIG-")?.split('/');
    let (gpu, of_gpu, of_compute) = (parts.next()?, parts.next()?, parts.next()?);
    let wanted = (of_gpu.parse().ok()?, of_compute.parse().ok()?);
    let at = begins(wholes(places), gpu)?;
    let nth = slices_of(&places[at]).iter().position(|slice| slice.instance == Some(wanted))?;
    Some((at, nth))
}

fn rocm_entry(entry: &str, places: &[Place]) -> Option<Named> {
    if entry.starts_with("GPU-") {
        return begins(wholes(places), &entry.to_ascii_lowercase().replacen("gpu-", "GPU-", 1))
            .map(Named::Whole);
    }
    number(entry).filter(|at| *at < places.len()).map(Named::Whole)
}

fn wholes(places: &[Place]) -> impl Iterator<Item = (usize, Option<String>)> {
    let id = |place: &Place| whole(place).and_then(|found| found.gpu.uuid.clone());
    places.iter().map(id).enumerate()
}

/// Says that a variable hides GPUs, and why where it was not meant to.
fn hidden(
    variable: &str,
    list: &str,
    shown: usize,
    of: usize,
    wrong: Option<String>,
    choice: &mut Choice,
) {
    if shown == of && wrong.is_none() {
        return;
    }
    let wrong = wrong.map(|wrong| format!(": {wrong}")).unwrap_or_default();
    choice.why.insert(0, format!("{variable}=\"{list}\" shows {shown} of {of} GPUs{wrong}"));
}

#[cfg(test)]
mod tests;
