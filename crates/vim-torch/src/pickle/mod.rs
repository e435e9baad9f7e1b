//! A pickle to plain nodes.
//!
//! Python's pickle is a program for a stack machine, and running it may call anything. This machine
//! calls nothing. It makes nodes in an arena, so that values that share or contain each other are
//! stored once and dropped without recursion. It knows the few constructors of tensors; any other
//! object is an inert [`Node::Object`].
//!
//! # Source
//!
//! Python's `pickletools`, protocols 2 to 5; `torch.serialization` for persistent ids.

mod machine;
mod node;
mod operand;

pub(crate) use machine::run;
pub(crate) use node::{Id, Node, Nodes, short};
