//! What is gathered, and the same on the CPU, without warpstore.

/// An embedding table and bags of rows to add up.
pub struct Workload {
    /// Elements of a row.
    pub width: usize,
    /// All rows, one after the other.
    pub table: Vec<f32>,
    /// Numbers of the rows of all bags, bag after bag.
    pub rows: Vec<u32>,
    /// Where each bag begins in `rows`; after the last bag, where that ends.
    pub bags: Vec<u64>,
}

impl Workload {
    /// `n_bags` bags of 16 to 48 rows each. As with words or users, few rows are used often: the
    /// cube of a uniform number in 0..1 chooses a row.
    pub fn new(n_rows: usize, width: usize, n_bags: usize) -> Self {
        let mut random = Random(1);
        let table = (0..n_rows * width).map(|_| random.unit() as f32 - 0.5);
        let table = table.collect();
        let (mut rows, mut bags) = (Vec::new(), vec![0]);
        for _ in 0..n_bags {
            for _ in 0..16 + random.next() % 33 {
                rows.push((random.unit().powi(3) * n_rows as f64) as u32);
            }
            bags.push(rows.len() as u64);
        }
        Self {
            width,
            table,
            rows,
            bags,
        }
    }

    /// Number of rows of the table.
    pub fn n_rows(&self) -> usize {
        self.table.len() / self.width
    }

    /// Number of bags.
    pub fn n_bags(&self) -> usize {
        self.bags.len() - 1
    }

    /// The sums of all bags. Rows are added in the kernel's order, so the same bits come out.
    pub fn sums(&self) -> Vec<f32> {
        let mut all = vec![0.0; self.n_bags() * self.width];
        for (bag, sums) in all.chunks_mut(self.width).enumerate() {
            for &row in &self.rows[self.bags[bag] as usize..self.bags[bag + 1] as usize] {
                let row = &self.table[row as usize * self.width..];
                sums.iter_mut()
                    .zip(row)
                    .for_each(|(sum, value)| *sum += value);
            }
        }
        all
    }

    /// How often each row is used.
    pub fn uses(&self) -> Vec<u64> {
        let mut uses = vec![0; self.n_rows()];
        for &row in &self.rows {
            uses[row as usize] += 1;
        }
        uses
    }
}

/// xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators,
/// scrambled").
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    /// Uniform in 0..1.
    fn unit(&mut self) -> f64 {
        self.next() as f64 / (1u64 << 53) as f64
    }
}
