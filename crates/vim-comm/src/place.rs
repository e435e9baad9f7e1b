//! Which rank of how many.

use serde::{Deserialize, Serialize};

/// Which rank of how many, and on which node. Ranks are numbered node by node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Fields")]
pub struct Place {
    rank: usize,
    /// Ranks of each node.
    nodes: Vec<usize>,
}

/// A place as it is written.
#[derive(Deserialize)]
struct Fields {
    rank: usize,
    nodes: Vec<usize>,
}

impl TryFrom<Fields> for Place {
    type Error = String;

    fn try_from(fields: Fields) -> Result<Self, String> {
        let Fields { rank, nodes } = fields;
        let text = format!("rank {rank} of nodes with {nodes:?} ranks does not exist");
        Self::new(rank, nodes).ok_or(text)
    }
}

impl Place {
    /// Rank `rank` of nodes with the numbers of ranks `nodes`; `None` if there is no such rank, or
    /// a node without ranks.
    pub fn new(rank: usize, nodes: Vec<usize>) -> Option<Self> {
        let world = nodes.iter().try_fold(0_usize, |sum, &ranks| sum.checked_add(ranks))?;
        (rank < world && !nodes.contains(&0)).then_some(Self { rank, nodes })
    }

    /// The only rank.
    pub fn single() -> Self {
        Self { rank: 0, nodes: vec![1] }
    }

    /// This rank, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub fn world(&self) -> usize {
        self.nodes.iter().sum()
    }

    /// The node of this rank, from 0.
    pub fn node(&self) -> usize {
        self.node_of(self.rank)
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Ranks of each node.
    pub fn ranks_of_nodes(&self) -> &[usize] {
        &self.nodes
    }

    /// This rank among those of its node, from 0.
    pub fn local_rank(&self) -> usize {
        self.rank - self.nodes[..self.node()].iter().sum::<usize>()
    }

    /// Number of ranks of this rank's node.
    pub fn local_world(&self) -> usize {
        self.nodes[self.node()]
    }

    /// The node of `rank`; the last one for ranks that do not exist.
    pub fn node_of(&self, rank: usize) -> usize {
        let ends = self.nodes.iter().scan(0, |end, ranks| {
            *end += ranks;
            Some(*end)
        });
        ends.take_while(|&end| end <= rank).count().min(self.nodes.len() - 1)
    }

    /// The place of `rank` of the same ranks; `None` if there is no such rank.
    pub fn with_rank(&self, rank: usize) -> Option<Self> {
        Self::new(rank, self.nodes.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_numbered_node_by_node() {
        let places = (0..7).map(|rank| Place::new(rank, vec![2, 1, 4]).unwrap());
        let got: Vec<_> = places.map(|p| (p.node(), p.local_rank(), p.local_world())).collect();
        let want = [(0, 0, 2), (0, 1, 2), (1, 0, 1), (2, 0, 4), (2, 1, 4), (2, 2, 4), (2, 3, 4)];
        assert_eq!(got, want);
        assert_eq!(Place::new(0, vec![2, 1, 4]).unwrap().world(), 7);
        assert_eq!(Place::single(), Place::new(0, vec![1]).unwrap());
        assert_eq!(Place::single().with_rank(1), None);
    }

    #[test]
    fn a_place_that_does_not_exist_is_not_read() {
        let place = Place::new(2, vec![2, 2]).unwrap();
        let text = serde_json::to_string(&place).unwrap();
        assert_eq!(serde_json::from_str::<Place>(&text).unwrap(), place);
        for text in [
            r#"{"rank":4,"nodes":[2,2]}"#,
            r#"{"rank":0,"nodes":[]}"#,
            r#"{"rank":0,"nodes":[1,0]}"#,
            r#"{"rank":0,"nodes":[18446744073709551615,1]}"#,
        ] {
            assert!(serde_json::from_str::<Place>(text).is_err(), "{text}");
        }
    }
}
