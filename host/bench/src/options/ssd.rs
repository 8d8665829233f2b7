//! Which SSDs: the value of `--ssd`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;
use serde::Serialize;
use warpstore::VfioSsd;

use super::name_of;

/// What `--ssd` takes.
pub(super) const SYNTAX: &str = "model:PROFILE[,media=FILE|ram|none|hbm|host][,lba=512|4096], \
    process:PROFILE[,media=FILE|ram][,lba=512|4096][,serving=THREADS] for emulated SSDs in a process of their \
    own, socket:PATH,… for such a process that runs already, or vfio:SERIAL[/NSID],… for real SSDs";

/// Whose speed an emulated SSD has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "names of products")]
pub enum Profile {
    P5800x,
    Pm1735,
    #[value(name = "980pro")]
    #[serde(rename = "980pro")]
    Pro980,
    Pm1753,
    Pm1763,
    Gp1,
    Future100m,
    /// As fast as it is served.
    Ideal,
}

/// Where an emulated SSD keeps its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Media {
    /// Memory of the process.
    Ram,
    /// Nowhere: reads bring whatever the buffer holds, writes are dropped.
    None,
    /// GPU memory.
    Hbm,
    /// Pinned host memory.
    Host,
    /// A file. Its name cannot hold a comma.
    File(PathBuf),
}

/// The SSDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ssd {
    /// Emulated, all alike.
    Model(Model),
    /// The same, in a process that is started for the run.
    Process(Process),
    /// The same, in a process that runs already: the socket of each.
    Socket(Vec<PathBuf>),
    /// Real ones, each named.
    Vfio(Vec<VfioSsd>),
}

/// An emulated SSD, as the command line describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Whose speed it has.
    pub profile: Profile,
    /// Where it keeps its data; by default what suits the runner.
    pub media: Option<Media>,
    /// Bytes of a logical block: 512 or 4096.
    pub lba: u32,
}

/// Emulated SSDs in a process of their own, as the command line describes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// What each is like.
    pub model: Model,
    /// Threads that serve their queues; by default what the machine has to spare.
    pub serving: Option<u32>,
}

impl FromStr for Ssd {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match kind {
            "model" => model(rest).map(Self::Model),
            "process" => process(rest).map(Self::Process),
            "socket" => sockets(rest).map(Self::Socket),
            "vfio" => vfio(rest).map(Self::Vfio),
            "file" | "host" => Err(format!(
                "this build has no {kind} SSDs yet; use model:PROFILE"
            )),
            _ => Err(format!("it must be {SYNTAX}")),
        }
    }
}

impl Ssd {
    /// Where emulated SSDs keep their data, if the command line says so.
    pub fn media(&self) -> Option<&Media> {
        match self {
            Self::Model(model) | Self::Process(Process { model, .. }) => model.media.as_ref(),
            Self::Vfio(_) | Self::Socket(_) => None,
        }
    }

    /// Bytes of a logical block; real SSDs tell it when they are open.
    pub fn lba(&self) -> Option<u32> {
        match self {
            Self::Model(model) | Self::Process(Process { model, .. }) => Some(model.lba),
            Self::Vfio(_) | Self::Socket(_) => None,
        }
    }

    /// Whether the SSDs are emulated in the process that runs the kernels, or by its GPU.
    pub fn is_inside(&self) -> bool {
        matches!(self, Self::Model(_))
    }

    /// Whether the SSDs are real.
    pub fn is_real(&self) -> bool {
        matches!(self, Self::Vfio(_))
    }
}

/// As `model`, with `serving=THREADS` too, but only with media that a process of its own can have.
fn process(text: &str) -> Result<Process, String> {
    let is_serving = |part: &&str| part.starts_with("serving=");
    let (mut serving, rest): (Vec<&str>, Vec<&str>) = text.split(',').partition(is_serving);
    let model = model(&rest.join(","))?;
    if let Some(media @ (Media::None | Media::Hbm | Media::Host)) = &model.media {
        return Err(format!(
            "media={media} is not for a process of its own; it keeps its media in ram or in a file"
        ));
    }
    let threads = serving.pop().map(|part| {
        let number = part.trim_start_matches("serving=").parse();
        match number {
            Ok(threads @ 1..=MAX_SERVING) => Ok(threads),
            _ => Err(format!(
                "'{part}' is no number of threads from 1 to {MAX_SERVING}"
            )),
        }
    });
    if !serving.is_empty() {
        return Err("'serving' comes second; give one only".to_owned());
    }
    Ok(Process {
        model,
        serving: threads.transpose()?,
    })
}

/// Most threads that serve emulated SSDs.
const MAX_SERVING: u32 = 256;

/// A path of each, apart by commas.
fn sockets(text: &str) -> Result<Vec<PathBuf>, String> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for part in text.split(',') {
        if part.is_empty() {
            return Err("an SSD needs the path of its socket".to_owned());
        }
        if paths.iter().any(|path| path.as_os_str() == part) {
            return Err(format!("'{part}' comes second; name each SSD once"));
        }
        paths.push(part.into());
    }
    Ok(paths)
}

/// `NAME[/NSID]` of each, apart by commas.
fn vfio(text: &str) -> Result<Vec<VfioSsd>, String> {
    let mut ssds: Vec<VfioSsd> = Vec::new();
    for part in text.split(',') {
        let (name, nsid) = match part.split_once('/') {
            None => (part, None),
            Some((name, nsid)) => match nsid.parse() {
                Ok(number) if number > 0 => (name, Some(number)),
                _ => return Err(format!("'{nsid}' is no number of a namespace, from 1 on")),
            },
        };
        if name.is_empty() {
            return Err("an SSD needs a serial number or a PCI address".to_owned());
        }
        if ssds.iter().any(|ssd| ssd.name == name) {
            return Err(format!("'{name}' comes second; name each SSD once"));
        }
        ssds.push(VfioSsd {
            name: name.to_owned(),
            nsid,
        });
    }
    Ok(ssds)
}

/// `PROFILE[,media=…][,lba=…]`, each at most once.
fn model(text: &str) -> Result<Model, String> {
    let mut parts = text.split(',');
    let profile = parts.next().unwrap_or_default();
    let profile = Profile::from_str(profile, false)
        .map_err(|_| format!("there is no profile '{profile}'; use one of {}", profiles()))?;
    let (mut media, mut lba) = (None, None);
    for part in parts {
        match part.split_once('=') {
            Some(("media", value)) if media.is_none() => media = Some(parse_media(value)?),
            Some(("lba", value)) if lba.is_none() => lba = Some(parse_lba(value)?),
            Some(("media" | "lba", _)) => {
                return Err(format!("'{part}' comes second; give one only"));
            }
            _ => {
                return Err(format!(
                    "'{part}' is neither media=FILE|ram|none|hbm|host nor lba=512|4096"
                ));
            }
        }
    }
    Ok(Model {
        profile,
        media,
        lba: lba.unwrap_or(512),
    })
}

fn parse_media(text: &str) -> Result<Media, String> {
    Ok(match text {
        "" => return Err("media= needs a file, ram, none, hbm or host".to_owned()),
        "ram" => Media::Ram,
        "none" => Media::None,
        "hbm" => Media::Hbm,
        "host" => Media::Host,
        file => Media::File(file.into()),
    })
}

fn parse_lba(text: &str) -> Result<u32, String> {
    match text {
        "512" => Ok(512),
        "4096" => Ok(4096),
        _ => Err(format!("lba={text} must be lba=512 or lba=4096")),
    }
}

/// Every profile's name.
pub(super) fn profiles() -> String {
    let names: Vec<String> = Profile::value_variants()
        .iter()
        .map(|&profile| name_of(profile))
        .collect();
    names.join(", ")
}

impl Profile {
    /// The figures that stand for the name.
    pub fn figures(self) -> warpstore::Profile {
        // The options list the same names: a test holds them together.
        warpstore::Profile::by_name(&self.to_string()).unwrap_or(warpstore::Profile::IDEAL)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name_of(*self))
    }
}

impl fmt::Display for Media {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ram => f.write_str("ram"),
            Self::None => f.write_str("none"),
            Self::Hbm => f.write_str("hbm"),
            Self::Host => f.write_str("host"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.profile)?;
        if let Some(media) = &self.media {
            write!(f, ",media={media}")?;
        }
        write!(f, ",lba={}", self.lba)
    }
}

/// As the command line would say it.
impl fmt::Display for Ssd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model(model) => write!(f, "model:{model}"),
            Self::Process(Process { model, serving }) => {
                write!(f, "process:{model}")?;
                serving.map_or(Ok(()), |threads| write!(f, ",serving={threads}"))
            }
            Self::Socket(paths) => {
                let names: Vec<String> = paths
                    .iter()
                    .map(|path| path.display().to_string())
                    .collect();
                write!(f, "socket:{}", names.join(","))
            }
            Self::Vfio(ssds) => {
                let show = |ssd: &VfioSsd| match ssd.nsid {
                    None => ssd.name.clone(),
                    Some(nsid) => format!("{}/{nsid}", ssd.name),
                };
                let names: Vec<String> = ssds.iter().map(show).collect();
                write!(f, "vfio:{}", names.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_part_is_read() {
        let ssd: Ssd = "model:980pro,lba=4096,media=/data/a b.img".parse().unwrap();
        assert_eq!(
            ssd,
            Ssd::Model(Model {
                profile: Profile::Pro980,
                media: Some(Media::File("/data/a b.img".into())),
                lba: 4096
            })
        );
        let ssd: Ssd = "model:ideal".parse().unwrap();
        assert_eq!(
            ssd,
            Ssd::Model(Model {
                profile: Profile::Ideal,
                media: None,
                lba: 512
            })
        );
        let ssd: Ssd = "vfio:S5XX,0000:c1:00.0/7".parse().unwrap();
        let named = |name: &str, nsid| VfioSsd {
            name: name.to_owned(),
            nsid,
        };
        assert_eq!(
            ssd,
            Ssd::Vfio(vec![named("S5XX", None), named("0000:c1:00.0", Some(7))])
        );
    }

    #[test]
    fn every_profile_is_known_by_the_name_it_prints() {
        assert_eq!(
            profiles(),
            "p5800x, pm1735, 980pro, pm1753, pm1763, gp1, future100m, ideal"
        );
        for profile in Profile::value_variants() {
            assert_eq!(serde_json::to_value(profile).unwrap(), profile.to_string());
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, message) in [
            ("vfio", "an SSD needs a serial number"),
            ("vfio:S1,", "an SSD needs a serial number"),
            ("vfio:S1/0", "'0' is no number of a namespace"),
            ("vfio:S1,S2,S1/2", "'S1' comes second"),
            ("socket:", "an SSD needs the path of its socket"),
            ("socket:a,b,a", "'a' comes second"),
            (
                "process:gp1,serving=0",
                "'serving=0' is no number of threads",
            ),
            ("process:gp1,serving=1,serving=2", "'serving' comes second"),
            ("process:gp1,media=hbm", "media=hbm is not for a process"),
            ("process:gp2", "there is no profile 'gp2'"),
            ("file:/dev/null", "this build has no file SSDs yet"),
            ("host", "this build has no host SSDs yet"),
            ("", "it must be model:PROFILE"),
            ("p5800x", "it must be model:PROFILE"),
            ("model", "there is no profile ''"),
            (
                "model:P5800X",
                "there is no profile 'P5800X'; use one of p5800x, ",
            ),
            ("model:gp1,media=", "media= needs"),
            ("model:gp1,lba=520", "lba=520 must be"),
            ("model:gp1,size=3", "'size=3' is neither"),
            ("model:gp1,", "'' is neither"),
            ("model:gp1,lba=512,lba=4096", "'lba=4096' comes second"),
        ] {
            let error = text.parse::<Ssd>().expect_err(text);
            assert!(error.starts_with(message), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_can_be_read(text in "model:(gp1|ideal)(,media=(ram|none|hbm|host|[a-z/.]{1,9}))?(,lba=(512|4096))?|vfio:A[0-9]{1,9}(/[1-9])?,B[0-9]|process:gp1(,serving=[1-9])?(,media=[a-z/.]{5,9})?|socket:/[a-z]{1,9},[0-9]") {
            let ssd: Ssd = text.parse().unwrap();
            prop_assert_eq!(ssd.to_string().parse::<Ssd>(), Ok(ssd));
        }

        #[test]
        fn no_text_panics(text in "(model|vfio)?:?\\PC{0,20}") {
            let _ = text.parse::<Ssd>();
        }
    }
}
