//! What the program has said of its managed memory, page by page.

use super::super::pool::PoolKey;
use std::collections::BTreeMap;

/// What advice is rounded to.
const PAGE: u64 = 4096;

/// Where managed memory can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A device.
    Device(i32),
    /// The host.
    Host,
    /// A NUMA node of the host.
    Node(i32),
}

/// What was said of a page.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Page {
    /// `CU_MEM_ADVISE_SET_READ_MOSTLY`
    pub read_mostly: bool,
    /// `CU_MEM_ADVISE_SET_PREFERRED_LOCATION`
    pub preferred: Option<Place>,
    /// `CU_MEM_ADVISE_SET_ACCESSED_BY`: a bit for each device.
    pub devices: u64,
    /// The same for the host.
    pub host: bool,
    /// Where it was last asked to be.
    pub prefetched: Option<Place>,
}

/// Pages by the first of each run that is alike.
type Runs = BTreeMap<u64, Page>;

/// All advice, by the number of the allocation that it is for.
#[derive(Default)]
pub struct Advice {
    runs: BTreeMap<u64, Runs>,
    /// Where the memory of a pool is rather to be.
    pools: Vec<(PoolKey, Place)>,
}

/// Managed memory that a call is about.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// Its first address.
    pub address: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The number of the allocation that it is in.
    pub id: u64,
    /// The pool that it is of.
    pub pool: Option<PoolKey>,
}

impl Range {
    /// Its first page, and the one behind the last.
    fn pages(&self) -> (u64, u64) {
        (self.address / PAGE, (self.address + self.bytes).div_ceil(PAGE))
    }
}

impl Advice {
    /// A pool of managed memory has been made.
    pub fn pool_made(&mut self, pool: PoolKey, preferred: Option<Place>) {
        self.pools.retain(|(known, _)| *known != pool);
        self.pools.extend(preferred.map(|place| (pool, place)));
    }

    /// An allocation is gone, and what was said of it.
    pub fn forget(&mut self, id: u64) {
        self.runs.remove(&id);
    }

    /// What holds for memory of which nothing was said.
    fn initial(&self, range: &Range) -> Page {
        let preferred = self.pools.iter().find(|(pool, _)| Some(*pool) == range.pool).map(|(_, place)| *place);
        Page { preferred, ..Page::default() }
    }

    /// Says something of all pages that a range touches.
    pub fn say(&mut self, range: &Range, say: impl Fn(&mut Page)) {
        let initial = self.initial(range);
        let runs = self.runs.entry(range.id).or_insert_with(|| Runs::from([(0, initial)]));
        let (first, end) = range.pages();
        for at in [first, end] {
            let before = runs.range(..=at).next_back().map_or(initial, |(_, page)| *page);
            runs.entry(at).or_insert(before);
        }
        runs.range_mut(first..end).for_each(|(_, page)| say(page));
        // Runs that have become alike are one.
        let mut last = None;
        runs.retain(|_, page| last.replace(*page) != Some(*page));
    }

    /// What was said of each page that a range touches; pages that are alike, once.
    pub fn pages(&self, range: &Range) -> Vec<Page> {
        let initial = self.initial(range);
        let Some(runs) = self.runs.get(&range.id) else { return vec![initial] };
        let (first, end) = range.pages();
        let before = runs.range(..=first).next_back().map_or(initial, |(_, page)| *page);
        std::iter::once(before).chain(runs.range(first + 1..end).map(|(_, page)| *page)).collect()
    }
}

/// What all pages have in common.
pub fn common<T: PartialEq>(pages: &[Page], of: impl Fn(&Page) -> Option<T>) -> Option<T> {
    let mut all = pages.iter().map(of);
    let first = all.next()??;
    all.all(|other| other.as_ref() == Some(&first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, pages: u64) -> Range {
        Range { address: first * PAGE + 1, bytes: pages * PAGE - 1, id: 7, pool: None }
    }

    #[test]
    fn a_part_is_split_off_and_joined_again() {
        let mut advice = Advice::default();
        advice.say(&range(10, 8), |page| page.read_mostly = true);
        advice.say(&range(12, 2), |page| page.preferred = Some(Place::Host));
        let preferred =
            |advice: &Advice, first, pages| common(&advice.pages(&range(first, pages)), |page| page.preferred);
        assert_eq!(preferred(&advice, 12, 2), Some(Place::Host));
        assert_eq!(preferred(&advice, 11, 2), None);
        assert_eq!(preferred(&advice, 13, 2), None);
        assert!(advice.pages(&range(10, 8)).iter().all(|page| page.read_mostly));
        assert!(!advice.pages(&range(9, 2)).iter().all(|page| page.read_mostly));
        advice.say(&range(12, 2), |page| page.preferred = None);
        assert_eq!(advice.pages(&range(10, 8)).len(), 1);
        advice.forget(7);
        assert_eq!(advice.pages(&range(10, 8)), [Page::default()]);
    }

    #[test]
    fn runs_say_what_a_list_of_pages_says() {
        const PAGES: u64 = 24;
        let (mut advice, mut list) = (Advice::default(), vec![Page::default(); PAGES as usize]);
        let mut state = 7_u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..5000 {
            let first = draw(PAGES);
            let pages = 1 + draw(PAGES - first);
            let (what, place) = (draw(4), [None, Some(Place::Host), Some(Place::Device(1))][draw(3) as usize]);
            let say = |page: &mut Page| match what {
                0 => page.read_mostly = place.is_some(),
                1 => page.preferred = place,
                2 => page.prefetched = place,
                _ => page.devices ^= 1,
            };
            advice.say(&range(first, pages), say);
            let end = (first + pages) as usize;
            list[first as usize..end].iter_mut().for_each(say);
            let first = draw(PAGES);
            let pages = 1 + draw(PAGES - first);
            let mut expected = list[first as usize..(first + pages) as usize].to_vec();
            expected.dedup();
            assert_eq!(advice.pages(&range(first, pages)), expected);
        }
    }
}
