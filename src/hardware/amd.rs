//! AMD's GPUs, as `amd-smi` or the older `rocm-smi` describe them in JSON.
//!
//! The tools are looked for on `PATH` and run with a limit on their time. Their documents differ from version to
//! version: whatever is not where it is known to be is absent. Which GPUs an engine sees is decided in
//! `hardware::visible`.

mod amd_smi;
mod rocm_smi;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::patience::Patience;
use super::visible::Place;

/// Where the kernel's driver for compute is.
const DRIVER: &str = "/dev/kfd";

/// What the tools tell.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Census {
    pub(super) driver: Option<String>,
    /// The version of ROCm.
    pub(super) rocm: Option<String>,
    pub(super) places: Vec<Place>,
    pub(super) notes: Vec<String>,
}

/// Asks the tool that there is, which has `limit` to answer; `None` where nothing points to an AMD GPU.
///
/// # Errors
/// There is one, and it can't be asked; in words.
pub(super) fn take(limit: Duration) -> Option<Result<Census, String>> {
    let mut failed = Vec::new();
    if let Some(tool) = on_path("amd-smi") {
        match amd_smi::take(&tool, &Patience::of(limit)) {
            Ok(census) => return Some(Ok(census)),
            Err(why) => failed.push(format!("amd-smi: {why}")),
        }
    }
    if let Some(tool) = on_path("rocm-smi") {
        match rocm_smi::take(&tool, &Patience::of(limit)) {
            Ok(census) => return Some(Ok(census)),
            Err(why) => failed.push(format!("rocm-smi: {why}")),
        }
    }
    if !failed.is_empty() {
        return Some(Err(failed.join("; ")));
    }
    Path::new(DRIVER).exists().then(|| {
        Err(format!("there is {DRIVER}, and neither amd-smi nor rocm-smi is on PATH to ask"))
    })
}

/// A tool on `PATH`.
fn on_path(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = std::env::var_os("PATH")?;
    let runs = |file: &PathBuf| {
        std::fs::metadata(file).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(runs)
}

/// The document that a tool prints.
fn ask(tool: &Path, arguments: &[&str], patience: &Patience) -> Result<Value, String> {
    let text = patience.run(Command::new(tool).args(arguments))?;
    document(&text).ok_or_else(|| match text.lines().find(|line| !line.trim().is_empty()) {
        Some(line) => format!("it prints no JSON but: {}", line.trim()),
        None => "it prints nothing".to_owned(),
    })
}

/// The JSON object or array in a text; both tools print warnings before it.
fn document(text: &str) -> Option<Value> {
    let starts = text.match_indices(['{', '[']).map(|(at, _)| at);
    let lines = starts.filter(|at| text[..*at].chars().next_back().is_none_or(|c| c == '\n'));
    lines.into_iter().find_map(|at| {
        let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
        values.next()?.ok()
    })
}

/// The value at the first of some paths, like `vram.size`, at which there is one.
fn at<'a>(value: &'a Value, paths: &[&str]) -> Option<&'a Value> {
    paths.iter().find_map(|path| {
        path.split('.').try_fold(value, |value, key| value.get(key)).filter(|it| is_told(it))
    })
}

fn is_told(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => {
            !matches!(text.trim(), "" | "N/A" | "n/a" | "None" | "null" | "unknown")
        }
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => true,
        Value::Object(fields) => fields.get("value").is_none_or(is_told),
    }
}

/// A number and its unit: `{"value": 300, "unit": "W"}`, `300`, `"300 W"`, `"(800Mhz)"`.
fn quantity(value: &Value) -> Option<(f64, String)> {
    match value {
        Value::Number(number) => Some((number.as_f64()?, String::new())),
        Value::String(text) => {
            let text = text.trim().trim_start_matches('(').trim_end_matches(')');
            let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
            Some((text[..end].parse().ok()?, text[end..].trim().to_owned()))
        }
        Value::Object(fields) => {
            let (number, unit) = quantity(fields.get("value")?)?;
            let told = fields.get("unit").and_then(Value::as_str);
            Some((number, told.map_or(unit, str::to_owned)))
        }
        Value::Null | Value::Bool(_) | Value::Array(_) => None,
    }
}

fn number(value: &Value) -> Option<f64> {
    quantity(value).map(|(number, _)| number)
}

fn whole(value: &Value) -> Option<u32> {
    // A cast that saturates: no clock and no width is negative or so great.
    number(value).map(|number| number.round() as u32)
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.trim().to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Bytes; the tools' units are powers of 1024, and what has none is counted in `plain`.
fn bytes(value: &Value, plain: &str) -> Option<u64> {
    let (number, unit) = quantity(value)?;
    let unit = if unit.is_empty() { plain } else { &unit };
    let power = match unit.to_ascii_lowercase().as_str() {
        "b" => 0,
        "kb" | "kib" => 1,
        "mb" | "mib" => 2,
        "gb" | "gib" => 3,
        _ => return None,
    };
    Some((number * 1024f64.powi(power)) as u64)
}

/// A link by its speed in GT/s and its width, like `gen5 x16`.
fn link(speed: f64, width: u32) -> Option<String> {
    const SPEEDS: [f64; 6] = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0];
    let generation = SPEEDS.iter().position(|it| (it - speed).abs() < 0.2)? + 1;
    Some(format!("gen{generation} x{width}"))
}

/// A GPU's id as ROCm spells it, out of its serial number.
fn uuid(serial: &str) -> Option<String> {
    let digits = serial.trim().trim_start_matches("0x").to_ascii_lowercase();
    let hex = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit());
    (hex && digits.chars().any(|c| c != '0')).then(|| format!("GPU-{digits:0>16}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_found_behind_warnings() {
        let text = "/usr/lib/amdsmi.py:3569: SyntaxWarning: 'return' {odd}\n[WARNING] no group\n[\n {\"gpu\": 0}\n]\nbye\n";
        assert_eq!(document(text), Some(serde_json::json!([{"gpu": 0}])));
        assert_eq!(document("ERROR: no AMD GPU\n"), None);
    }

    #[test]
    fn quantities_are_read_in_every_spelling() {
        let read = |text: &str| quantity(&serde_json::from_str(text).unwrap());
        assert_eq!(read("{\"value\": 300, \"unit\": \"W\"}"), Some((300.0, "W".to_owned())));
        assert_eq!(read("\"300.5 W\""), Some((300.5, "W".to_owned())));
        assert_eq!(read("\"(800Mhz)\""), Some((800.0, "Mhz".to_owned())));
        assert_eq!(read("300"), Some((300.0, String::new())));
        assert_eq!(read("\"N/A\""), None);
        let size = |text: &str| bytes(&serde_json::from_str(text).unwrap(), "MB");
        assert_eq!(size("{\"value\": 65520, \"unit\": \"MB\"}"), Some(65_520 << 20));
        assert_eq!(size("65520"), Some(65_520 << 20));
        assert_eq!(size("\"24 GiB\""), Some(24 << 30));
        assert_eq!(size("\"24 parsecs\""), None);
        assert_eq!(link(16.0, 8).as_deref(), Some("gen4 x8"));
        assert_eq!(link(7.0, 8), None);
    }

    #[test]
    fn an_id_is_spelled_as_rocm_does() {
        assert_eq!(uuid("0x4162405E51BB99B0").as_deref(), Some("GPU-4162405e51bb99b0"));
        assert_eq!(uuid("0x136b01eaaeb0334").as_deref(), Some("GPU-0136b01eaaeb0334"));
        assert_eq!(uuid("N/A"), None);
        assert_eq!(uuid("0x0"), None);
    }
}
