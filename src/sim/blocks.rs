//! KV blocks: which are free, which are cached, which go first.
//!
//! Like vLLM's block pool: a block with references is in use; one without may still hold the KV of
//! a known prefix and is found by its hash until it is taken for something else, least recently
//! used first. It knows no time and no request.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Block {
    references: u32,
    /// Hash of the prefix that ends in this block; 0 where nothing is known of it.
    hash: u64,
    previous: u32,
    next: u32,
}

/// Keys are hashes already.
#[derive(Debug, Default)]
struct Already(u64);

impl Hasher for Already {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

/// All KV blocks of an engine.
#[derive(Debug)]
pub(crate) struct Blocks {
    blocks: Vec<Block>,
    /// Ends of the list of blocks without references: the head is taken first.
    head: u32,
    tail: u32,
    free: usize,
    cached: HashMap<u64, u32, BuildHasherDefault<Already>>,
}

impl Blocks {
    pub(crate) fn new(count: usize) -> Blocks {
        let mut blocks = Blocks {
            blocks: vec![Block { references: 0, hash: 0, previous: NONE, next: NONE }; count],
            head: NONE,
            tail: NONE,
            free: 0,
            cached: HashMap::default(),
        };
        for block in 0..count {
            blocks.put_last(block as u32);
        }
        blocks
    }

    /// Blocks in use.
    pub(crate) fn used(&self) -> usize {
        self.blocks.len() - self.free
    }

    /// How many of the first hashes are cached.
    pub(crate) fn hits(&self, hashes: &[u64]) -> usize {
        hashes.iter().take_while(|hash| self.cached.contains_key(hash)).count()
    }

    /// Takes `total` blocks, the first of them the cached ones of `hits`; `None` where there is no room.
    pub(crate) fn take(&mut self, hits: &[u64], total: usize) -> Option<Vec<u32>> {
        let found: Vec<u32> =
            hits.iter().map_while(|hash| self.cached.get(hash).copied()).collect();
        let resting =
            found.iter().filter(|block| self.blocks[**block as usize].references == 0).count();
        if total - found.len() > self.free - resting {
            return None;
        }
        let mut table = found;
        table.reserve(total - table.len());
        for &block in &table {
            if self.blocks[block as usize].references == 0 {
                self.unlink(block);
            }
            self.blocks[block as usize].references += 1;
        }
        while table.len() < total {
            table.push(self.pop()?);
        }
        Some(table)
    }

    /// One block more; false where there is none.
    pub(crate) fn grow(&mut self, table: &mut Vec<u32>) -> bool {
        self.pop().map(|block| table.push(block)).is_some()
    }

    /// Makes the prefix in `table` known by its hashes.
    pub(crate) fn publish(&mut self, table: &[u32], hashes: &[u64]) {
        for (&block, &hash) in table.iter().zip(hashes) {
            if self.blocks[block as usize].hash == 0 && !self.cached.contains_key(&hash) {
                self.blocks[block as usize].hash = hash;
                self.cached.insert(hash, block);
            }
        }
    }

    /// Gives a table back. The end of a prefix goes before its beginning, and what nobody can find again first.
    pub(crate) fn release(&mut self, table: Vec<u32>) {
        for block in table.into_iter().rev() {
            let entry = &mut self.blocks[block as usize];
            entry.references -= 1;
            if entry.references == 0 {
                if entry.hash == 0 { self.put_first(block) } else { self.put_last(block) }
            }
        }
    }

    /// Loses up to `count` blocks for ever.
    pub(crate) fn lose(&mut self, count: usize) {
        for _ in 0..count {
            if self.pop().is_none() {
                break;
            }
        }
    }

    fn pop(&mut self) -> Option<u32> {
        let block = self.head;
        if block == NONE {
            return None;
        }
        self.unlink(block);
        let entry = &mut self.blocks[block as usize];
        if entry.hash != 0 {
            self.cached.remove(&entry.hash);
            entry.hash = 0;
        }
        entry.references = 1;
        Some(block)
    }

    fn unlink(&mut self, block: u32) {
        let Block { previous, next, .. } = self.blocks[block as usize];
        match previous {
            NONE => self.head = next,
            previous => self.blocks[previous as usize].next = next,
        }
        match next {
            NONE => self.tail = previous,
            next => self.blocks[next as usize].previous = previous,
        }
        self.free -= 1;
    }

    fn put_last(&mut self, block: u32) {
        let tail = self.tail;
        let entry = &mut self.blocks[block as usize];
        (entry.previous, entry.next) = (tail, NONE);
        match tail {
            NONE => self.head = block,
            tail => self.blocks[tail as usize].next = block,
        }
        self.tail = block;
        self.free += 1;
    }

    fn put_first(&mut self, block: u32) {
        let head = self.head;
        let entry = &mut self.blocks[block as usize];
        (entry.previous, entry.next) = (NONE, head);
        match head {
            NONE => self.tail = block,
            head => self.blocks[head as usize].previous = block,
        }
        self.head = block;
        self.free += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_prefix_is_found_until_its_blocks_are_needed() {
        let mut blocks = Blocks::new(4);
        let table = blocks.take(&[], 3).unwrap();
        blocks.publish(&table, &[11, 12]);
        blocks.release(table);
        assert_eq!((blocks.used(), blocks.hits(&[11, 12, 13])), (0, 2));

        // Two blocks hold nothing known and go first: the prefix stays.
        let other = blocks.take(&[], 2).unwrap();
        assert_eq!(blocks.hits(&[11, 12]), 2);
        // The third evicts the end of the prefix, not its beginning.
        let more = blocks.take(&[], 1).unwrap();
        assert_eq!(blocks.hits(&[11, 12]), 1);
        assert!(blocks.take(&[], 2).is_none(), "one block is left");
        assert!(blocks.take(&[11], 2).is_none(), "and it is the cached one itself");
        blocks.release(other);
        blocks.release(more);
        assert_eq!(blocks.used(), 0);
    }

    #[test]
    fn a_shared_block_is_free_when_the_last_has_given_it_back() {
        let mut blocks = Blocks::new(4);
        let first = blocks.take(&[], 2).unwrap();
        blocks.publish(&first, &[5, 6]);
        let second = blocks.take(&[5, 6], 3).unwrap();
        assert_eq!(blocks.used(), 3);
        blocks.release(first);
        assert_eq!(blocks.used(), 3);
        blocks.release(second);
        assert_eq!(blocks.used(), 0);
    }

    proptest! {
        #[test]
        fn no_block_is_lost_or_given_twice(orders in prop::collection::vec((0u64..6, 1usize..9), 1..200)) {
            let mut blocks = Blocks::new(24);
            let mut tables: Vec<Vec<u32>> = Vec::new();
            for (prompt, length) in orders {
                let hashes: Vec<u64> = (1..=length as u64).map(|i| prompt * 100 + i).collect();
                let hits = blocks.hits(&hashes);
                match blocks.take(&hashes[..hits], length) {
                    Some(table) => {
                        blocks.publish(&table, &hashes);
                        tables.push(table);
                    }
                    None => {
                        prop_assert!(!tables.is_empty());
                        blocks.release(tables.remove(0));
                    }
                }
                let mut held: Vec<u32> = tables.concat();
                held.sort_unstable();
                held.dedup();
                prop_assert_eq!(held.len(), blocks.used());
            }
        }
    }
}
