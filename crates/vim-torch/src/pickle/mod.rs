//! A pickle to plain nodes.
//!
//! Python's pickle is a program for a machine with a stack; running it may call anything. This machine
//! calls nothing. It makes nodes in an arena, so that values which share or contain each other cost
//! nothing twice and are dropped without recursion, and it knows the few constructors that tensors are
//! saved by. Whatever else a pickle makes is an inert [`Node::Object`].
//!
//! # Source
//!
//! Python's `pickletools`, protocols 2 to 5; `torch.serialization` for the meaning of persistent ids.

mod machine;
mod node;
mod operand;

pub(crate) use machine::run;
pub(crate) use node::{Id, Node, Nodes, short};
