//! A graph that a volume has.

use anyhow::{Context, Result, bail};
use warpstore::{MemberNames, VfioSsd, VolumeAccess, open_volume};
use warpstore_graph::{Budget, Graph};
use warpstore_terminal::Progress;
use warpstore_volume::{Description, ElementType, MemberName, Volume};
use zerocopy::FromBytes;

use super::NamedGraph;
use crate::options::{Layout, Options, Ssd};

/// Reads the graph `array` of a volume, and gives with it the options as the volume makes them: number
/// and layout of the SSDs.
///
/// # Errors
/// The volume cannot be opened, has no such graph, or one that is too large for the memory.
pub(super) fn read(
    options: &Options,
    members: &MemberNames,
    array: &str,
) -> Result<(Options, NamedGraph)> {
    let mut volume = open_volume(members, VolumeAccess::ReadOnly)?;
    let progress = Progress::begin(format!("read {array} of {members}"), 0);
    let [offsets, edges] = [
        (offsets_of(array), ElementType::U64),
        (edges_of(array), ElementType::U32),
    ];
    let lengths = [&offsets, &edges].map(|(name, element)| length(&volume, name, *element));
    let [vertices, count] = lengths;
    Budget::of_machine().admit(vertices?, count?)?;
    let offsets = elements::<u64>(&mut volume, &offsets.0)?;
    let edges = elements::<u32>(&mut volume, &edges.0)?;
    let file = format!("{array} of {members}");
    let graph = Graph::new(offsets, edges).map_err(|fault| fault.in_file(file.as_ref()))?;
    progress.end(&format!(
        "{} vertices, {} edges",
        graph.vertices(),
        graph.edges().len()
    ));
    let described = described(options, &volume);
    let name = file.clone();
    let file = file.into();
    let volume = Some(volume.description().clone());
    Ok((
        described,
        NamedGraph {
            name,
            file,
            graph,
            volume,
        },
    ))
}

/// Refuses a session that is on another volume, or another generation, than the graph of this name was read
/// from: the volume was let go of between.
pub(super) fn check_same(
    name: &str,
    read: Option<&Description>,
    opened: Option<&Description>,
) -> Result<()> {
    match read == opened {
        true => Ok(()),
        false => {
            bail!("{name} was written anew by somebody else since it was read; run this again")
        }
    }
}

/// The array with the row offsets of graph `name`.
fn offsets_of(name: &str) -> String {
    format!("{name}.offsets")
}

/// The array with the destinations of graph `name`.
pub(super) fn edges_of(name: &str) -> String {
    format!("{name}.edges")
}

fn length(volume: &Volume, name: &str, element: ElementType) -> Result<u64> {
    let array = volume.array(name).with_context(|| {
        "a graph is two arrays, NAME.offsets and NAME.edges, and --array says NAME".to_owned()
    })?;
    match array.element == element {
        true => Ok(array.len),
        false => bail!(
            "array {name} has elements of type {}, not {element}",
            array.element
        ),
    }
}

fn elements<T: FromBytes>(volume: &mut Volume, name: &str) -> Result<Vec<T>> {
    let mut bytes = Vec::new();
    volume.copy(name, &mut bytes)?;
    let elements = bytes.chunks_exact(size_of::<T>());
    let read = elements.map(|element| T::read_from_bytes(element).ok());
    read.collect::<Option<Vec<T>>>()
        .with_context(|| format!("array {name} has no whole elements"))
}

/// The options with what the volume says itself.
fn described(options: &Options, volume: &Volume) -> Options {
    let description = volume.description();
    let mut options = options.clone();
    options.stripe = Some(description.stripe);
    options.layout = match description.layout {
        warpstore::device::Layout::Stripe => Layout::Stripe,
        warpstore::device::Layout::Replicate => Layout::Replicate,
    };
    let names = volume.member_names();
    let real = names.iter().filter_map(|name| match name.parse() {
        Ok(MemberName::Vfio(name)) => Some(VfioSsd { name, nsid: None }),
        _ => None,
    });
    match real.collect::<Vec<_>>() {
        real if real.is_empty() => options.ssds = Some(description.members),
        real => options.ssd = Ssd::Vfio(real),
    }
    options
}

#[cfg(test)]
mod tests {
    use warpstore_volume::{ArrayShape, UNIT};
    use warpstore_volume::{FileMember, Members, NewVolume, Plan};

    use super::*;

    #[test]
    fn a_volume_that_was_written_anew_meanwhile_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m");
        let shape = ArrayShape {
            name: "a".to_owned(),
            element: ElementType::U8,
            len: 1,
        };
        let new = NewVolume::new(warpstore::device::Layout::Stripe, UNIT, &[shape]).unwrap();
        let bytes = new.member_bytes_for_two(1).unwrap();
        let mut members = {
            let member = FileMember::create(&path, bytes, false).unwrap();
            Members::new(vec![Box::new(member)]).unwrap()
        };
        let mut flash = || {
            let plan = Plan::make(&new, &mut members, |_| false).unwrap();
            let source: Box<dyn std::io::Read> = Box::new(&b"x"[..]);
            plan.write(&mut members, vec![source], UNIT, &mut |_, _| {})
                .unwrap()
        };
        let (read, opened) = (flash(), flash());
        assert!(check_same("g", Some(&read), Some(&read)).is_ok());
        assert!(check_same("g", None, None).is_ok());
        let refused = check_same("g", Some(&read), Some(&opened)).unwrap_err();
        assert!(
            refused.to_string().contains("g was written anew"),
            "{refused}"
        );
    }
}
