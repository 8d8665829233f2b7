//! How kernels ring the doorbells of SSDs outside: in the doorbells themselves, or in a page of host
//! memory from which a thread passes them on.
#![allow(
    unsafe_code,
    reason = "doorbells and their page are reached by address"
)]
// UNSAFETY: doorbells of backings that the session keeps longer than this, and a page of this crate's
// buffers.

use driver_vfio::{Proxy, QueuePair, Refusal};

use crate::Error;
use crate::buffer::{Buffer, Place};
use crate::config::{Configuration, Doorbells};
use crate::cuda::Registered;
use crate::runner::Runner;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// What lets kernels ring. It ends before the SSDs are let go.
#[derive(Default)]
pub(crate) struct Ringing {
    /// Dropped before its page.
    proxy: Option<Proxy>,
    _page: Option<Buffer>,
    /// Doorbells that a GPU reaches.
    _registered: Vec<Registered>,
}

impl Ringing {
    /// Makes `pairs`, those of each SSD one after the other, ones that kernels can ring.
    pub(crate) fn set_up(
        runner: &Runner,
        config: &Configuration,
        pairs: &mut Vec<QueuePair>,
    ) -> Result<Self, Error> {
        if config.ssd.emulated().is_some() {
            return Ok(Self::default());
        }
        match (config.doorbells, runner) {
            (Doorbells::Proxy, _) => Self::by_proxy(runner, pairs),
            (Doorbells::Direct, Runner::Threads(_)) => Ok(Self::default()),
            (Doorbells::Direct, Runner::Cuda(_)) => {
                Self::registered(runner, pairs, config.queues as usize)
            }
        }
    }

    fn by_proxy(runner: &Runner, pairs: &mut Vec<QueuePair>) -> Result<Self, Error> {
        let words = Proxy::words(pairs.len() as u64);
        let page = runner.allocate(Place::Dma, words as usize * 4)?;
        let cells = page.cells(0, words);
        // SAFETY: the page goes after the proxy, and both before the session shuts the SSDs down, whose
        // controllers and backings have the doorbells.
        let proxy = unsafe { Proxy::start(pairs, cells) }
            .map_err(|error| Error::Configuration(format!("no thread for doorbells: {error}")))?;
        *pairs = Proxy::stand_in(pairs, cells);
        Ok(Self {
            proxy: Some(proxy),
            _page: Some(page),
            _registered: Vec::new(),
        })
    }

    /// Lets a GPU reach the pages of each SSD's doorbells.
    fn registered(runner: &Runner, pairs: &[QueuePair], queues: usize) -> Result<Self, Error> {
        let Runner::Cuda(cuda) = runner else {
            return Ok(Self::default());
        };
        let register = |of_ssd: &[QueuePair]| {
            let rings = of_ssd.iter().map(|pair| pair.rings);
            let doorbells = rings.flat_map(|rings| [rings.sq_doorbell, rings.cq_doorbell]);
            let (first, last) = doorbells.fold((u64::MAX, 0), |(first, last), address| {
                (first.min(address), last.max(address))
            });
            let first = first / PAGE * PAGE;
            let bytes = (last + 4).next_multiple_of(PAGE) - first;
            // SAFETY: a backing maps doorbells in whole pages, which it keeps longer than this.
            unsafe { Registered::new(cuda.context(), first, bytes) }
        };
        let registered = pairs.chunks(queues).map(register);
        Ok(Self {
            _registered: registered.collect::<Result<_, _>>()?,
            ..Self::default()
        })
    }

    /// The first doorbell that the proxy refused, if it has refused one.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        let refusals = self.proxy.as_ref().map(Proxy::refusals);
        refusals.unwrap_or_default().into_iter().next()
    }
}
