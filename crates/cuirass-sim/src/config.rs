//! `CUIRASS_SIM`: what driver and which devices are simulated.

use std::sync::OnceLock;

/// The configuration, read once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How many devices.
    pub devices: usize,
    /// Compute capability: 90 for 9.0. `None`: the profile's.
    pub arch: Option<u32>,
    /// Bytes of memory of each device.
    pub memory: u64,
    /// The driver's CUDA version: 13000 for 13.0.
    pub driver: u32,
    /// The seed of a deterministic schedule.
    pub seed: Option<u64>,
    /// Whether stderr is left alone.
    pub quiet: bool,
    /// Whether PTX of any version is taken, however old the simulated driver.
    pub any_ptx: bool,
    /// Whether the stream-order checker is on.
    pub check_order: bool,
    /// How many thread-instructions a kernel may run before it is stopped.
    pub fuel: Option<u64>,
}

/// The version of the driver that was measured.
const DRIVER: u32 = 13000;
const NAME: &str = "CUIRASS_SIM";

/// The process's configuration, or what is wrong with it.
pub fn config() -> Result<&'static Config, &'static str> {
    static CONFIG: OnceLock<Result<Config, String>> = OnceLock::new();
    let config = CONFIG.get_or_init(|| match std::env::var(NAME) {
        Ok(text) => parse(&text),
        Err(std::env::VarError::NotPresent) => parse(""),
        Err(std::env::VarError::NotUnicode(_)) => Err(format!("{NAME} is not UTF-8")),
    });
    config.as_ref().map_err(String::as_str)
}

/// Reads `key=value,key=value`.
///
/// # Errors
/// A sentence that names the word that is wrong.
pub fn parse(text: &str) -> Result<Config, String> {
    let mut config = Config {
        devices: 1,
        arch: None,
        memory: crate::host::default_memory().min(crate::profile::MEMORY),
        driver: DRIVER,
        seed: None,
        quiet: false,
        any_ptx: false,
        check_order: false,
        fuel: None,
    };
    let mut given = Vec::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let wrong = |what: &str| Err(format!("{NAME}: \"{word}\": {what}"));
        let Some((key, value)) = word.split_once('=') else { return wrong("key=value is wanted") };
        let (key, number) = (key.trim(), value.parse::<u64>());
        if given.contains(&key) {
            return wrong("it is given twice");
        }
        given.push(key);
        match (key, number) {
            ("devices", Ok(count @ 0..=64)) => config.devices = count as usize,
            ("devices", _) => return wrong("a number of devices from 0 to 64 is wanted"),
            ("arch", Ok(arch @ 50..=129)) => config.arch = Some(arch as u32),
            ("arch", _) => return wrong("an architecture such as 90 is wanted"),
            ("memory", _) => match size(value) {
                Some(bytes) if bytes >= 1 << 20 => config.memory = bytes,
                _ => return wrong("a size such as 4GiB, of 1MiB at least, is wanted"),
            },
            ("driver", _) => match version(value) {
                Some(driver) => config.driver = driver,
                None => return wrong("a CUDA version from 11.2 to 13.9, such as 12.4, is wanted"),
            },
            ("seed", Ok(seed)) => config.seed = Some(seed),
            ("seed", _) => return wrong("a number is wanted"),
            ("quiet", Ok(quiet @ 0..=1)) => config.quiet = quiet == 1,
            ("quiet", _) => return wrong("0 or 1 is wanted"),
            ("fuel", Ok(fuel)) => config.fuel = Some(fuel),
            ("fuel", _) => return wrong("a number of instructions is wanted"),
            ("ptx", _) if value == "any" => config.any_ptx = true,
            ("ptx", _) => return wrong("only ptx=any is known"),
            ("check", _) if value == "order" => config.check_order = true,
            ("check", _) => return wrong("only check=order is known"),
            _ => return wrong("known keys are devices, arch, memory, driver, seed, quiet, ptx, fuel, check"),
        }
    }
    Ok(config)
}

fn size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (count, unit) = text.split_at(digits);
    let unit = match unit {
        "" | "B" => 1,
        "KiB" | "K" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        "TiB" | "T" => 1 << 40,
        _ => return None,
    };
    count.parse::<u64>().ok()?.checked_mul(unit)
}

fn version(text: &str) -> Option<u32> {
    let (major, minor) = text.split_once('.')?;
    let (major, minor) = (major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?);
    let version = major * 1000 + minor * 10;
    (minor <= 9 && (11020..=13090).contains(&version)).then_some(version)
}

/// Drivers before which CUDA version take PTX up to which version; from 13.0 on the numbers go together.
const NEWEST_PTX: [(u32, (u32, u32)); 16] = [
    (11030, (7, 2)),
    (11040, (7, 3)),
    (11050, (7, 4)),
    (11060, (7, 5)),
    (11070, (7, 6)),
    (11080, (7, 7)),
    (12000, (7, 8)),
    (12010, (8, 0)),
    (12020, (8, 1)),
    (12030, (8, 2)),
    (12040, (8, 3)),
    (12050, (8, 4)),
    (12070, (8, 5)),
    (12080, (8, 6)),
    (12090, (8, 7)),
    (13000, (8, 8)),
];

impl Config {
    /// The newest PTX version that a driver of this CUDA version takes.
    pub fn newest_ptx(&self) -> (u32, u32) {
        if self.any_ptx {
            return (u32::MAX, 0);
        }
        match NEWEST_PTX.iter().find(|(before, _)| self.driver < *before) {
            Some((_, newest)) => *newest,
            None => (9, (self.driver - 13000) / 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_read() {
        let config =
            parse("devices=2, arch=80,memory=4GiB,driver=12.4,seed=42,quiet=1,ptx=any,fuel=7,check=order").unwrap();
        assert_eq!((config.devices, config.arch, config.memory), (2, Some(80), 4 << 30));
        assert_eq!((config.driver, config.seed, config.quiet, config.fuel), (12040, Some(42), true, Some(7)));
        assert!(config.any_ptx && config.check_order);
        assert!(!parse("").unwrap().check_order);
    }

    #[test]
    fn a_wrong_word_is_named() {
        for text in [
            "devices",
            "devices=-1",
            "memory=4Gib",
            "driver=9.0",
            "driver=twelve",
            "color=red",
            "quiet=2",
            "ptx=9",
            "check=all",
        ] {
            let wrong = parse(text).unwrap_err();
            assert!(wrong.contains(text), "{wrong}");
        }
    }

    #[test]
    fn a_key_is_given_once() {
        for word in [
            "devices=3",
            "arch=90",
            "memory=8GiB",
            "driver=13.0",
            "seed=2",
            "quiet=1",
            "fuel=7",
            "ptx=any",
            "check=order",
        ] {
            let wrong = parse(&format!("{word},{word}")).unwrap_err();
            assert!(wrong.contains(&format!("\"{word}\": it is given twice")), "{wrong}");
        }
        assert!(parse("devices=2, devices =3").unwrap_err().contains("\"devices =3\": it is given twice"));
    }

    #[test]
    fn ptx_follows_the_driver() {
        assert_eq!(parse("driver=12.0").unwrap().newest_ptx(), (8, 0));
        assert_eq!(parse("driver=13.0").unwrap().newest_ptx(), (9, 0));
        assert_eq!(parse("").unwrap().newest_ptx(), (9, 0));
        assert_eq!(parse("driver=12.6").unwrap().newest_ptx(), (8, 5));
        assert_eq!(parse("driver=12.9").unwrap().newest_ptx(), (8, 8));
        assert_eq!(parse("driver=13.1").unwrap().newest_ptx(), (9, 1));
    }
}
