//! What an enabled controller does: namespaces, I/O queue pairs, shutdown.

use std::sync::Arc;
use std::time::Duration;

use nvme_queue::RingAddresses;
use nvme_wire::admin::Cns;
use nvme_wire::identify::{IdentifyNamespace, NamespaceList};
use nvme_wire::regs::{Cc, Csts, doorbell_offset, offset};
use nvme_wire::{Sqe, Status};
use warpstore_simt::Native;

use crate::backing::BarOffset;
use crate::controller::{Controller, Disabled, Enabled};
use crate::error::{Error, Step};
use crate::memory::{Mapped, QueueMemory};
use crate::namespace::{self, ControllerInfo, Namespace};
use crate::queue_pair::{QueuePair, QueuePairRequest};
use crate::shadow::{Doorbell, Shadows};
use crate::watch::Watch;

/// Namespaces that are listed, if a controller cannot list them itself and says that it has more.
const MAX_NAMESPACES: u32 = NamespaceList::LEN as u32;

impl Controller<Enabled> {
    /// What the controller says about itself.
    pub fn info(&self) -> &ControllerInfo {
        &self.state.info
    }

    /// I/O queue pairs that the controller granted, at most as many as were asked for.
    pub fn n_io_queues(&self) -> u16 {
        self.state.n_io_queues
    }

    /// Identifiers of the active namespaces, ascending; the first 1024 of them.
    ///
    /// A controller that cannot list them is asked for each.
    ///
    /// # Errors
    /// As for every admin command.
    pub fn active_namespaces(&mut self) -> Result<Vec<u32>, Error> {
        let admin = self.state.live.admin();
        match admin.identify(Cns::ACTIVE_NAMESPACES, 0) {
            Ok(words) => Ok(NamespaceList::from_words(words).active().collect()),
            Err(Error::Refused { status, .. }) if status.code() == Status::INVALID_FIELD => {
                let mut active = Vec::new();
                for nsid in 1..=self.state.info.n_namespaces.min(MAX_NAMESPACES) {
                    let words = admin.identify(Cns::NAMESPACE, nsid)?;
                    if IdentifyNamespace::from_words(words).nsze != 0 {
                        active.push(nsid);
                    }
                }
                Ok(active)
            }
            Err(error) => Err(error),
        }
    }

    /// Identifies namespace `nsid`.
    ///
    /// # Errors
    /// `Namespace` if it is inactive or has a format that cannot be used; else as for every admin
    /// command.
    pub fn namespace(&mut self, nsid: u32) -> Result<Namespace, Error> {
        let words = self.state.live.admin().identify(Cns::NAMESPACE, nsid)?;
        let page = IdentifyNamespace::from_words(words);
        let (max_transfer, awupf_z) = (self.state.info.max_transfer, self.state.awupf_z);
        let named = |fault| Error::Namespace {
            controller: self.watch.name(),
            nsid,
            fault,
        };
        let namespace = Namespace::new(nsid, &page, max_transfer, awupf_z).map_err(named)?;
        self.check_command_set(nsid)?;
        Ok(namespace)
    }

    /// A zoned namespace looks like any other in Identify, and some take reads.
    fn check_command_set(&mut self, nsid: u32) -> Result<(), Error> {
        // Older controllers have neither the descriptors nor other command sets (Base 1.3).
        if (self.vs.mjr(), self.vs.mnr()) < (1, 3) {
            return Ok(());
        }
        let admin = self.state.live.admin();
        match admin.identify(Cns::NAMESPACE_DESCRIPTORS, nsid) {
            Ok(words) => namespace::command_set(&words).map_err(|fault| Error::Namespace {
                controller: self.watch.name(),
                nsid,
                fault,
            }),
            // Some controllers lack them although they must not.
            Err(Error::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Asks the controller to take the doorbells of I/O queues from `memory`, where it offers that and
    /// its pages have room for them; false if not, or if it refuses. From then on registers alone do not
    /// ring: pairs are used by block I/O and behind a [`Proxy`](crate::Proxy), and not by submitters that
    /// ring themselves.
    ///
    /// # Errors
    /// `Memory` if `memory` is smaller than [`Controller::shadow_bytes`] or not aligned; else as for
    /// every admin command.
    ///
    /// # Panics
    /// If there is an I/O queue already.
    pub fn use_shadow_doorbells(&mut self, memory: Arc<dyn QueueMemory>) -> Result<bool, Error> {
        assert!(self.state.pairs.is_empty(), "doorbells come before queues");
        let (page, dstrd) = (self.page_bytes(), self.cap.dstrd());
        let queues = self.n_io_queues();
        if !self.state.info.shadow_doorbells || !Shadows::have_room(page, dstrd, queues) {
            return Ok(false);
        }
        let backing = &self.watch.backing;
        let memory = Mapped::zeroed(backing, memory, self.shadow_bytes(), 0, page)?;
        let [values, events] = Shadows::iovas(&memory, page);
        let shadows = Shadows::new(&memory, page, dstrd);
        // The controller may use the pages from now on, whatever it answers.
        self.state.live.retain(memory);
        let command = Sqe::doorbell_buffer_config(values.0, events.0);
        match self.state.live.admin().run(command) {
            Ok(_) => self.state.shadows = Some(shadows),
            // It has registers as well.
            Err(Error::Refused { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Whether I/O queues ring in memory first.
    pub fn uses_shadow_doorbells(&self) -> bool {
        self.state.shadows.is_some()
    }

    /// The highest identifier that no queue pair has.
    pub(crate) fn free_queue_id(&self) -> Result<u16, Error> {
        let granted = self.n_io_queues();
        let is_free = |qid: &u16| !self.state.pairs.contains(qid);
        (1..=granted)
            .rev()
            .find(is_free)
            .ok_or_else(|| Error::NoQueue {
                controller: self.watch.name(),
                granted,
            })
    }

    /// The doorbells of a queue pair: SQ tail, CQ head.
    pub(crate) fn doorbells(&self, qid: u16) -> Result<[Doorbell<Native>; 2], Error> {
        let shadows = self.state.shadows.as_ref();
        let shadows = shadows.and_then(|shadows| shadows.cells(qid));
        let doorbell = |is_cq| {
            let at = BarOffset(doorbell_offset(qid, is_cq, self.cap.dstrd()));
            Ok(Doorbell {
                register: self.watch.doorbell(at)?,
                shadow: shadows.map(|cells| cells[usize::from(is_cq)]),
            })
        };
        Ok([doorbell(false)?, doorbell(true)?])
    }

    /// Creates the completion queue, then the submission queue; neither is left if one fails.
    ///
    /// # Errors
    /// `QueueSize`; `Backing` if a doorbell lies outside the BAR; `Refused` if the controller does
    /// not take the identifier or the memory; else as for every admin command.
    pub fn create_queue_pair(&mut self, request: QueuePairRequest) -> Result<QueuePair, Error> {
        let QueuePairRequest {
            qid,
            entries,
            sq,
            cq,
        } = request;
        let most = self.max_entries();
        if !entries.is_power_of_two() || !(2..=most).contains(&entries) {
            let controller = self.watch.name();
            return Err(Error::QueueSize {
                controller,
                asked: entries,
                most,
            });
        }
        let doorbells = self.doorbells(qid)?;
        let [sq_doorbell, cq_doorbell] =
            doorbells.map(|doorbell| doorbell.register.address() as u64);
        let rings = RingAddresses {
            sq: sq.address,
            cq: cq.address,
            sq_doorbell,
            cq_doorbell,
        };
        // [DB-2] Not those of a pair that exists: the controller refuses to create it again.
        if !self.state.pairs.contains(&qid) {
            doorbells.iter().for_each(Doorbell::clear_shadow);
        }
        let qsize_z = (entries - 1) as u16;
        let admin = self.state.live.admin();
        admin.run(Sqe::create_io_cq(qid, qsize_z, cq.iova.0))?;
        if let Err(error) = admin.run(Sqe::create_io_sq(qid, qsize_z, qid, sq.iova.0)) {
            // The first error is the one to report; a queue that stays dies with the controller.
            let _ = admin.run(Sqe::delete_io_cq(qid));
            return Err(error);
        }
        self.state.pairs.push(qid);
        Ok(QueuePair {
            qid,
            entries,
            rings,
            shadows: doorbells.map(|doorbell| doorbell.shadow_addresses()),
        })
    }

    /// Deletes a queue pair: the submission queue, then the completion queue. Commands that have
    /// not completed may still do so meanwhile; afterwards its memory is the caller's again.
    ///
    /// # Errors
    /// `Refused` if there is no such pair; else as for every admin command. Its memory then stays
    /// in use until the controller is disabled.
    pub fn delete_queue_pair(&mut self, qid: u16) -> Result<(), Error> {
        let admin = self.state.live.admin();
        admin.run(Sqe::delete_io_sq(qid))?;
        admin.run(Sqe::delete_io_cq(qid))?;
        self.state.pairs.retain(|&pair| pair != qid);
        Ok(())
    }

    /// Shuts the controller down: queue pairs deleted, caches written, disabled (Base 3.6).
    /// Submitters have stopped.
    ///
    /// # Errors
    /// Every step is taken, whatever became of those before. If the last one fails, its error is
    /// returned: the controller runs on, and its queues must stay mapped. Else the error is that
    /// of the first step that failed, and what the controller's cache held may be lost.
    pub fn shutdown(mut self) -> Result<Controller<Disabled>, Error> {
        let deleted = self.delete_all_queue_pairs();
        let written = self.notify_shutdown();
        self.state.live.end().and(deleted).and(written)?;
        Ok(Controller {
            watch: self.watch,
            cap: self.cap,
            vs: self.vs,
            state: Disabled(()),
        })
    }

    fn delete_all_queue_pairs(&mut self) -> Result<(), Error> {
        let pairs = self.state.pairs.clone();
        pairs
            .into_iter()
            .try_for_each(|qid| self.delete_queue_pair(qid))
    }

    /// Sets CC.SHN and waits until the controller has written its caches.
    fn notify_shutdown(&self) -> Result<(), Error> {
        let cc = Cc::from_bits(self.watch.read32(Step::Shutdown, offset::CC)?);
        let request = cc.with_shn(Cc::SHN_NORMAL).into_bits();
        self.watch.backing.write32(BarOffset(offset::CC), request);
        let asked = Duration::from_micros(self.state.info.shutdown_us.into());
        let limit = self.watch.deadlines.shutdown.max(asked);
        let complete = |csts: Csts| csts.shst() == Csts::SHST_COMPLETE;
        self.watch
            .wait(Step::Shutdown, limit, Watch::csts, complete)
    }
}
