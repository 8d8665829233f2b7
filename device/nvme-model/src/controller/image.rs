//! The image of a controller, which serves its I/O queues: filled here, copied to be served elsewhere,
//! and taken back.

use std::sync::atomic::Ordering;

use super::Controller;
use crate::layout::{
    self, fault, fault_rule, header, mode, namespace, namespace_entry, record, record_of,
};
use crate::profile::Link;
use crate::write_cache::WriteCache;

/// Where the parts of an image lie that is served from elsewhere; see [`Controller::image`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Address of the media there, as long as the controller's own; 0 for no media.
    pub media: u64,
    /// Address of the link's two zeroed clock words there, shared by the controllers of one
    /// link; 0 for no link term.
    pub link: u64,
}

impl Controller {
    /// Writes what the configuration says.
    pub(super) fn fill_image(&self, link: Option<Link>, pending: u64) {
        let image = self.image_here();
        let configuration = &self.configuration;
        image.write(header::QUEUES, configuration.queues as u64);
        image.write(header::PAGE, 4096);
        image.write(header::MAX_TRANSFER, configuration.max_transfer());
        image.write(header::NAMESPACES, configuration.namespaces.len() as u64);
        image.write(header::PENDING_MASK, pending - 1);
        let (media, bytes) = self.media.place();
        if self.media.is_file() {
            image.write(header::FILE, media);
        }
        let mut served = media;
        if let Some(cache) = &self.cache {
            let address = std::ptr::from_ref::<WriteCache>(cache).expose_provenance();
            image.write(header::WRITE_CACHE, address as u64);
            served = cache.view().address();
        }
        image.write_pair(header::MEDIA, [served, bytes]);
        let mut base = 0;
        for (nsid, space) in (1..).zip(&configuration.namespaces) {
            let entry = namespace_entry(nsid);
            image.write(entry + namespace::BASE, base);
            image.write(entry + namespace::LBAS, space.lbas);
            image.write(entry + namespace::SHIFT, space.lba_bytes.ilog2() as u64);
            base += space.lbas * space.lba_bytes as u64;
        }
        let profile = &configuration.profile;
        if configuration.is_timed() {
            image.write(header::MODE, mode::TIMED);
        }
        let faults = &configuration.faults;
        image.write(header::FAULTS, faults.rules.len() as u64);
        image.write(header::FAULT_SEED, faults.seed);
        if faults.has_late() {
            let late = layout::words(configuration.queues as u64, pending);
            image.write(header::LATE, late);
        }
        for (index, rule) in (0..).zip(&faults.rules) {
            for (word, value) in (fault_rule(index)..).zip(rule.to_words()) {
                image.write(word, value);
            }
        }
        for (word, value) in (header::OCCUPATION..).zip(profile.occupation_ns) {
            image.write(word, value);
        }
        for (word, value) in (header::MIN_LATENCY..).zip(profile.min_latency_ns) {
            image.write(word, value);
        }
        if let (Some(generation), Some(link)) = (profile.link, link) {
            image.write(header::LINK_PER_BYTE, generation.per_byte());
            image.write(header::LINK_ADDRESS, link.address());
        }
    }

    /// A copy of the image, to be served from another place: the words to put there, at a
    /// 128-byte aligned address that [`Image::new`](crate::Image::new) is then given.
    ///
    /// Take it when queues and DMA ranges are set up; changes made here later do not reach the
    /// copy. Stop serving the copy before queues are deleted or the controller is reset, and give
    /// its words to [`Controller::take_back`].
    ///
    /// # Panics
    /// If the controller has a volatile write cache, which only its own process can serve.
    pub fn image(&self, place: Placement) -> Vec<u64> {
        assert!(
            self.cache.is_none(),
            "a volatile write cache is served in its own process only"
        );
        let _state = self.lock();
        let mut copy: Vec<u64> = (0..self.configuration.image_words())
            .map(|index| self.image_here().read(index))
            .collect();
        let mut set = |word: u64, value| copy[word as usize] = value;
        set(header::SERVING, 0);
        set(header::MEDIA, place.media);
        set(header::FILE, 0);
        set(header::LINK_ADDRESS, place.link);
        if place.media == 0 {
            set(header::MEDIA_BYTES, 0);
        }
        copy
    }

    /// Takes over what a service elsewhere changed in its copy: positions, pending completions,
    /// clocks, counters, and whether a fault stopped it. The queues can then be served here.
    ///
    /// # Panics
    /// If `words` is shorter than what [`Controller::image`] gave.
    pub fn take_back(&self, words: &[u64]) {
        let _state = self.lock();
        let image = self.image_here();
        for instance in 0..layout::INSTANCES {
            let clock = layout::clock(instance);
            image.write(clock, words[clock as usize]);
        }
        let stopped = words[header::MODE as usize] & !mode::TIMED;
        self.words
            .word(header::MODE)
            .fetch_or(stopped, Ordering::Relaxed);
        for index in 0..layout::MAX_FAULTS {
            let hits = fault_rule(index) + fault::HITS;
            image.write(hits, words[hits as usize]);
        }
        for queue in 0..self.configuration.queues as u32 {
            let first = record_of(queue);
            image.write(
                first + record::ADOPTED,
                words[(first + record::ADOPTED) as usize],
            );
            for word in first + record::POSITION..first + record::WORDS {
                image.write(word, words[word as usize]);
            }
        }
        let queues = self.configuration.queues as u64;
        let pending = self.configuration.pending_entries();
        let first = layout::pending(queues, pending, 0, 0);
        for word in first..self.configuration.image_words() {
            image.write(word, words[word as usize]);
        }
    }
}
