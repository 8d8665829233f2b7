//! Words that loom tracks, behind copyable handles.

use std::any::Any;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;

use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use warpstore_simt::{Cell, Cells, Order, Platform, Scope, System, Word};

/// Loom's memory: every order is explored as C11 defines it, every scope is the whole machine.
#[derive(Clone, Copy, Debug)]
pub struct Loom;

/// One tracked word.
enum Atomic {
    Narrow(AtomicU32),
    Wide(AtomicU64),
}

thread_local! {
    /// The words of the running execution. Loom's threads are coroutines of one OS thread, so
    /// they all see the same table.
    static WORDS: RefCell<Vec<Rc<Atomic>>> = const { RefCell::new(Vec::new()) };
}

/// Drops the words of the execution before, whose loom objects are gone.
pub(crate) fn forget_words() {
    WORDS.with_borrow_mut(Vec::clear);
}

/// Handle to a tracked word.
pub struct LoomCell<T, S> {
    index: usize,
    kind: PhantomData<(T, S)>,
}

/// Handle to consecutive tracked words.
pub struct LoomCells<T, S> {
    first: usize,
    len: u64,
    kind: PhantomData<(T, S)>,
}

impl<T, S> Clone for LoomCell<T, S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, S> Copy for LoomCell<T, S> {}
impl<T, S> Clone for LoomCells<T, S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, S> Copy for LoomCells<T, S> {}

/// A new word, to be made inside [`explore`](crate::explore) before threads are spawned.
pub fn cell<T: Word, S: Scope>(value: T) -> LoomCell<T, S> {
    let atomic = if size_of::<T>() == size_of::<u32>() {
        Atomic::Narrow(AtomicU32::new(to_u64(value) as u32))
    } else {
        Atomic::Wide(AtomicU64::new(to_u64(value)))
    };
    let index = WORDS.with_borrow_mut(|words| {
        words.push(Rc::new(atomic));
        words.len() - 1
    });
    LoomCell {
        index,
        kind: PhantomData,
    }
}

/// New consecutive words, as [`cell`].
pub fn cells<T: Word, S: Scope>(values: &[T]) -> LoomCells<T, S> {
    let first = WORDS.with_borrow(Vec::len);
    for &value in values {
        cell::<T, S>(value);
    }
    LoomCells {
        first,
        len: values.len() as u64,
        kind: PhantomData,
    }
}

/// `Word` has no conversions of its own: protocols never mix widths.
fn to_u64<T: Word>(value: T) -> u64 {
    let value: &dyn Any = &value;
    match (value.downcast_ref::<u32>(), value.downcast_ref::<u64>()) {
        (Some(&narrow), _) => u64::from(narrow),
        (_, Some(&wide)) => wide,
        _ => unreachable!("words are u32 or u64"),
    }
}

fn from_u64<T: Word>(value: u64) -> T {
    let narrow: &dyn Any = &(value as u32);
    let wide: &dyn Any = &value;
    *narrow
        .downcast_ref::<T>()
        .or_else(|| wide.downcast_ref::<T>())
        .expect("words are u32 or u64")
}

/// Runs `$operation` on the atomic of either width; `$argument` names the operands as that
/// width sees them.
macro_rules! on_word {
    ($cell:expr, $operation:ident($($argument:expr),*; $($order:expr),+)) => {
        match &*$cell.word() {
            Atomic::Narrow(word) => u64::from(word.$operation($($argument as u32,)* $($order),+)),
            Atomic::Wide(word) => word.$operation($($argument,)* $($order),+),
        }
    };
}

impl<T: Word, S: Scope> LoomCell<T, S> {
    /// The word itself, shared, because another loom thread may use the table before the
    /// operation on it returns.
    fn word(self) -> Rc<Atomic> {
        WORDS.with_borrow(|words| Rc::clone(&words[self.index]))
    }
}

impl<T: Word, S: Scope> Cell<T> for LoomCell<T, S> {
    fn load(self, order: Order) -> T {
        from_u64(on_word!(self, load(; order.loading())))
    }
    fn store(self, value: T, order: Order) {
        let value = to_u64(value);
        match &*self.word() {
            Atomic::Narrow(word) => word.store(value as u32, order.storing()),
            Atomic::Wide(word) => word.store(value, order.storing()),
        }
    }
    fn compare_exchange(self, current: T, new: T, order: Order) -> Result<T, T> {
        let (old, new) = (to_u64(current), to_u64(new));
        let result = match &*self.word() {
            Atomic::Narrow(word) => word
                .compare_exchange(old as u32, new as u32, order.both(), Ordering::Relaxed)
                .map(u64::from)
                .map_err(u64::from),
            Atomic::Wide(word) => word.compare_exchange(old, new, order.both(), Ordering::Relaxed),
        };
        result.map(from_u64).map_err(from_u64)
    }
    fn fetch_add(self, value: T, order: Order) -> T {
        from_u64(on_word!(self, fetch_add(to_u64(value); order.both())))
    }
    fn fetch_or(self, value: T, order: Order) -> T {
        from_u64(on_word!(self, fetch_or(to_u64(value); order.both())))
    }
    fn fetch_and(self, value: T, order: Order) -> T {
        from_u64(on_word!(self, fetch_and(to_u64(value); order.both())))
    }
}

impl<T: Word, S: Scope> Cells<T> for LoomCells<T, S> {
    type Cell = LoomCell<T, S>;

    fn len(self) -> u64 {
        self.len
    }
    fn at(self, index: u64) -> LoomCell<T, S> {
        assert!(index < self.len, "word {index} of {}", self.len);
        LoomCell {
            index: self.first + index as usize,
            kind: PhantomData,
        }
    }
}

impl Platform for Loom {
    type Cell<T: Word, S: Scope> = LoomCell<T, S>;
    type Cells<T: Word, S: Scope> = LoomCells<T, S>;

    fn fence<S: Scope>(order: Order) {
        if order != Order::Relaxed {
            fence(order.both());
        }
    }
    fn full_fence<S: Scope>() {
        fence(Ordering::SeqCst);
    }
    fn ring(doorbell: LoomCell<u32, System>, value: u32) {
        doorbell.store(value, Order::Relaxed);
    }
    fn load_pair<S: Scope>(cells: LoomCells<u64, S>, index: u64) -> [u64; 2] {
        let low = cells.at(index).load(Order::Relaxed);
        let high = cells.at(index + 1).load(Order::Relaxed);
        [low, high]
    }
    fn store_pair<S: Scope>(cells: LoomCells<u64, S>, index: u64, pair: [u64; 2]) {
        cells.at(index).store(pair[0], Order::Relaxed);
        cells.at(index + 1).store(pair[1], Order::Relaxed);
    }
    fn pause(_attempt: u32) {
        loom::thread::yield_now();
    }
    fn now_ns() -> u64 {
        0
    }
}
