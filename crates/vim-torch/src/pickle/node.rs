//! The values that a pickle makes.

use crate::limits::MAX_NODES;

/// A node's place in the arena.
pub(crate) type Id = u32;

/// A value. Containers hold the ids of their parts, so that a node costs no more than its part of
/// the pickle.
#[derive(Debug)]
pub(crate) enum Node {
    None,
    Bool,
    /// An integer of 64 bits.
    Int(i64),
    /// A float, bytes or a long integer: not needed.
    Opaque(&'static str),
    Text(String),
    /// A tuple, list or set.
    Sequence(Vec<Id>),
    /// A dictionary, with or without order.
    Dict(Vec<(Id, Id)>),
    /// `module.name`, both texts: a class or function, not looked up.
    Global {
        module: Id,
        name: Id,
    },
    /// An instance of an unknown class.
    Object {
        class: Id,
    },
    /// A persistent id: what it was made from, a sequence.
    Storage(Id),
    /// The arguments of the constructor of a view of a storage, a sequence.
    Tensor(Id),
}

/// The arena.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    nodes: Vec<Node>,
    /// Parts of nodes that were copied from another.
    copied: usize,
}

impl Nodes {
    pub(super) fn push(&mut self, node: Node) -> Result<Id, String> {
        self.charge(0)?;
        self.nodes.push(node);
        Ok((self.nodes.len() - 1) as Id) // MAX_NODES is far below 2^32
    }

    /// Counts `parts` that were copied, for which the pickle has no bytes.
    pub(super) fn charge(&mut self, parts: usize) -> Result<(), String> {
        self.copied = self.copied.saturating_add(parts);
        if self.nodes.len().saturating_add(self.copied) >= MAX_NODES {
            return Err(format!("it makes more than {MAX_NODES} values"));
        }
        Ok(())
    }

    /// # Panics
    ///
    /// Never for an [`Id`] of this arena, the only ones there are.
    pub(crate) fn get(&self, id: Id) -> &Node {
        &self.nodes[id as usize]
    }

    pub(super) fn get_mut(&mut self, id: Id) -> &mut Node {
        &mut self.nodes[id as usize]
    }

    pub(crate) fn text(&self, id: Id) -> Option<&str> {
        if let Node::Text(text) = self.get(id) { Some(text) } else { None }
    }

    pub(crate) fn sequence(&self, id: Id) -> Option<&[Id]> {
        if let Node::Sequence(items) = self.get(id) { Some(items) } else { None }
    }

    pub(crate) fn dict(&self, id: Id) -> Option<&[(Id, Id)]> {
        if let Node::Dict(pairs) = self.get(id) { Some(pairs) } else { None }
    }

    /// A number that counts something.
    pub(crate) fn count(&self, id: Id) -> Option<usize> {
        let Node::Int(number) = *self.get(id) else { return None };
        usize::try_from(number).ok()
    }

    /// Module and name of a class or function.
    pub(crate) fn global(&self, id: Id) -> Option<(&str, &str)> {
        let Node::Global { module, name } = *self.get(id) else { return None };
        Some((self.text(module)?, self.text(name)?))
    }

    /// A description of a node for an error message.
    pub(crate) fn describe(&self, id: Id) -> String {
        match *self.get(id) {
            Node::None => "nothing (None)".into(),
            Node::Bool => "a truth value".into(),
            Node::Int(_) => "an integer".into(),
            Node::Opaque(what) => what.into(),
            Node::Text(_) => "a text".into(),
            Node::Sequence(_) => "a list".into(),
            Node::Dict(_) => "a dictionary".into(),
            Node::Global { .. } => format!("the class {}", self.name_of(id)),
            Node::Object { class } => format!("an object of the class {}", self.name_of(class)),
            Node::Storage(_) => "a storage".into(),
            Node::Tensor(_) => "a tensor".into(),
        }
    }

    fn name_of(&self, id: Id) -> String {
        let (module, name) = self.global(id).unwrap_or(("an unknown module", "?"));
        format!("{}.{}", short(module), short(name))
    }
}

/// The first characters of a text that may be anything, on one line.
pub(crate) fn short(text: &str) -> String {
    const SHOWN: usize = 60;
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}
