//! Breadth-first search and connected components: edges on the SSDs, the rest in memory.

use warpstore::device::launch::Kernel;
use warpstore::device::{Array, Global};
use warpstore::{Counts, Memory, Session};
use warpstore_kernels::bfs::{NEXT_COUNT, bfs_level};
use warpstore_kernels::cc::{cc_flatten, cc_hook};
use warpstore_kernels::counted::{
    bfs_level_bam, bfs_level_naive, bfs_level_reuse, cc_hook_bam, cc_hook_naive, cc_hook_reuse,
};

use super::plan::{Bytes, Needs, Plan};
use super::volume::{check_same, edges_of};
use super::{Finding, NamedGraph, uncounted};
use crate::exit::Failure;
use crate::options::CacheMode;
use crate::reference::{self, UNREACHED};
use crate::report::{Bfs, Cc, Outcome};
use warpstore_terminal::Progress;

/// A graph on the SSDs of a session.
struct Stored {
    session: Session,
    edges: Array<u32>,
    offsets: Memory<u64>,
}

/// Commands and bytes of a run.
struct Reads {
    commands: u64,
    bytes: u64,
}

impl Stored {
    /// Opens a session and writes the graph to its SSDs, unless it is on a volume there.
    /// Its kernels are `kernels`.
    fn import(plan: &Plan, graph: &NamedGraph, kernels: &[&str]) -> Result<Self, Failure> {
        let edges = graph.graph.edges();
        let verb = match &plan.options.array {
            Some(_) => "open",
            None => "import",
        };
        let progress = Progress::begin(format!("{verb} {}", graph.name), 0);
        let needs = Needs {
            kernels,
            bytes: Bytes::Array(size_of_val(edges) as u64),
            lanes: None,
            blocks: None,
            cache: None,
        };
        let session = plan.open(&needs)?;
        check_same(&graph.name, graph.volume.as_ref(), session.volume())?;
        let edges = match &plan.options.array {
            Some(name) => session.array(&edges_of(name)),
            None => session.create_array("edges", edges),
        };
        let edges = edges.map_err(anyhow::Error::from)?;
        let offsets = session
            .upload(graph.graph.offsets())
            .map_err(anyhow::Error::from)?;
        progress.end(&format!(
            "{} edges on {} SSDs",
            edges.len(),
            plan.options.ssds()
        ));
        Ok(Self {
            session,
            edges,
            offsets,
        })
    }

    fn offsets(&self) -> Global<u64> {
        self.offsets.global()
    }

    /// What was read since the SSDs had counted `before`, if they count.
    fn reads_since(&self, before: Option<Counts>) -> anyhow::Result<Option<Reads>> {
        let after = self.session.counts()?;
        Ok(before.zip(after).map(|(before, after)| Reads {
            commands: after.reads - before.reads,
            bytes: after.bytes - before.bytes,
        }))
    }
}

/// Searches from the source that the options name, level by level.
pub(crate) fn bfs(plan: &Plan, graph: &NamedGraph) -> Result<Finding, Failure> {
    match plan.options.cache_mode {
        CacheMode::None | CacheMode::Optimistic => bfs_by(&bfs_level, plan, graph),
        CacheMode::Naive => bfs_by(&bfs_level_naive, plan, graph),
        CacheMode::Bam => bfs_by(&bfs_level_bam, plan, graph),
        CacheMode::BamReuse => bfs_by(&bfs_level_reuse, plan, graph),
    }
}

/// The same, by `kernel`.
fn bfs_by<K: Kernel<Args = <bfs_level as Kernel>::Args>>(
    kernel: &K,
    plan: &Plan,
    graph: &NamedGraph,
) -> Result<Finding, Failure> {
    let wanted = plan.options.source.unwrap_or(0);
    let source = graph
        .graph
        .vertex(wanted, &graph.file)
        .map_err(anyhow::Error::from)?;
    let stored = Stored::import(plan, graph, &[K::NAME])?;
    let before = stored.session.counts().map_err(anyhow::Error::from)?;
    let progress = Progress::begin("bfs", 0);
    let vertices = graph.graph.vertices() as u64;
    let (distances, seconds) = search(kernel, plan, &stored, vertices, source)?;
    let reads = stored.reads_since(before)?;
    let failed = plan.failed(&stored.session)?;
    stored.session.finish().map_err(anyhow::Error::from)?;
    let expected = reference::Bfs::run(&graph.graph, source);
    let wrong = reference::compare(&expected.distances, &distances).err();
    let found = reference::Bfs::of_distances(distances);
    progress.end(&format!(
        "{} vertices reached in {seconds:.3} s",
        found.reached
    ));
    Ok(Finding {
        outcome: Outcome::Bfs(Bfs {
            graph: graph.name.clone(),
            source,
            reached: found.reached,
            depth: found.depth,
            distance_sum: found.distance_sum,
            seconds,
            reads: reads.as_ref().map(|reads| reads.commands),
            bytes_read: reads.as_ref().map(|reads| reads.bytes),
            failed,
        }),
        wrong: wrong
            .map(|difference| format!("bfs of {}: {difference}", graph.name))
            .or_else(|| uncounted("bfs", failed)),
        remarks: Vec::new(),
    })
}

/// The levels of a search by `kernel`: distances and seconds of kernel time.
fn search<K: Kernel<Args = <bfs_level as Kernel>::Args>>(
    kernel: &K,
    plan: &Plan,
    stored: &Stored,
    vertices: u64,
    source: u32,
) -> anyhow::Result<(Vec<u32>, f64)> {
    let session = &stored.session;
    let distances = session.upload(&vec![UNREACHED; vertices as usize])?;
    let mut frontier = session.memory::<u32>(vertices)?;
    let mut next = session.memory::<u32>(vertices)?;
    let progress = session.memory::<u32>(1)?;
    distances.write(u64::from(source), &[0])?;
    frontier.write(0, &[source])?;
    let (mut level, mut count, mut seconds) = (0, 1u64, 0.0);
    let config = plan.fill(session, kernel)?;
    let warps = config.lanes() / 32;
    while count > 0 {
        progress.write(NEXT_COUNT, &[0])?;
        let args = (
            stored.edges,
            stored.offsets(),
            frontier.atomics(),
            count,
            // Few vertices: one each, so that all warps have some. Many: as many as there are lanes.
            count.div_ceil(warps).clamp(1, 32) as u32,
            distances.atomics(),
            next.atomics(),
            progress.atomics(),
            level,
        );
        seconds += session.launch(kernel, config, args)?;
        let mut found = [0u32];
        progress.read(NEXT_COUNT, &mut found)?;
        count = u64::from(found[0]);
        std::mem::swap(&mut frontier, &mut next);
        level += 1;
    }
    Ok((distances.to_vec()?, seconds))
}

/// Finds the weakly connected components.
pub(crate) fn cc(plan: &Plan, graph: &NamedGraph) -> Result<Finding, Failure> {
    match plan.options.cache_mode {
        CacheMode::None | CacheMode::Optimistic => cc_by(&cc_hook, plan, graph),
        CacheMode::Naive => cc_by(&cc_hook_naive, plan, graph),
        CacheMode::Bam => cc_by(&cc_hook_bam, plan, graph),
        CacheMode::BamReuse => cc_by(&cc_hook_reuse, plan, graph),
    }
}

/// The same, by `kernel`.
fn cc_by<K: Kernel<Args = <cc_hook as Kernel>::Args>>(
    kernel: &K,
    plan: &Plan,
    graph: &NamedGraph,
) -> Result<Finding, Failure> {
    let kernels = [K::NAME, <cc_flatten as Kernel>::NAME];
    let stored = Stored::import(plan, graph, &kernels)?;
    let before = stored.session.counts().map_err(anyhow::Error::from)?;
    let progress = Progress::begin("cc", 0);
    let vertices = graph.graph.vertices() as u32;
    let (labels, seconds) = components(kernel, plan, &stored, vertices)?;
    let reads = stored.reads_since(before)?;
    let failed = plan.failed(&stored.session)?;
    stored.session.finish().map_err(anyhow::Error::from)?;
    let expected = reference::Components::run(&graph.graph);
    let wrong = reference::compare(&expected.labels, &labels).err();
    let found = reference::Components::of_labels(labels);
    progress.end(&format!(
        "{} components in {seconds:.3} s",
        found.components
    ));
    Ok(Finding {
        outcome: Outcome::Cc(Cc {
            graph: graph.name.clone(),
            components: found.components,
            largest: found.largest,
            seconds,
            reads: reads.as_ref().map(|reads| reads.commands),
            bytes_read: reads.as_ref().map(|reads| reads.bytes),
            failed,
        }),
        wrong: wrong
            .map(|difference| format!("cc of {}: {difference}", graph.name))
            .or_else(|| uncounted("cc", failed)),
        remarks: Vec::new(),
    })
}

/// Labels of all vertices, joined by `kernel`, and seconds of kernel time.
fn components<K: Kernel<Args = <cc_hook as Kernel>::Args>>(
    kernel: &K,
    plan: &Plan,
    stored: &Stored,
    vertices: u32,
) -> anyhow::Result<(Vec<u32>, f64)> {
    let session = &stored.session;
    let parents = session.upload(&(0..vertices).collect::<Vec<u32>>())?;
    let config = plan.fill(session, kernel)?;
    let args = (stored.edges, stored.offsets(), parents.atomics());
    let mut seconds = session.launch(kernel, config, args)?;
    let config = plan.fill(session, &cc_flatten)?;
    seconds += session.launch(&cc_flatten, config, (parents.atomics(),))?;
    Ok((parents.to_vec()?, seconds))
}
