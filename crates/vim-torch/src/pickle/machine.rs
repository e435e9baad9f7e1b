//! The machine.

use std::collections::HashMap;

use super::node::{Id, Node, Nodes};
use super::operand::Operands;
use crate::error::ReadError;

/// Runs the pickle in `bytes`; returns its nodes and its value.
pub(crate) fn run(bytes: &[u8]) -> Result<(Nodes, Id), ReadError> {
    let mut machine = Machine::default();
    let mut operands = Operands::new(bytes);
    loop {
        let at = operands.at();
        match machine.step(&mut operands) {
            Ok(None) => {}
            Ok(Some(value)) => return Ok((machine.nodes, value)),
            Err(what) => return Err(ReadError::Pickle { at, what }),
        }
    }
}

#[derive(Default)]
struct Machine {
    nodes: Nodes,
    stack: Vec<Id>,
    /// Lengths of the stack where marks were set.
    marks: Vec<usize>,
    memo: HashMap<u64, Id>,
}

impl Machine {
    /// One operation; the pickle's value if it is the last.
    fn step(&mut self, operands: &mut Operands) -> Result<Option<Id>, String> {
        let operation = operands.take(1).map_err(|_| "it ends without a stop")?[0];
        match operation {
            b'.' => return self.pop().map(Some),
            // Frames and versions add nothing to the operations.
            0x80 => drop(operands.take(1)?),
            0x95 => drop(operands.take(8)?),

            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_to_mark()?),
            b'2' => {
                let top = self.top()?;
                self.nodes.charge(1)?;
                self.stack.push(top);
            }
            b'h' => self.recall(operands.unsigned(1)?)?,
            b'j' => self.recall(operands.unsigned(4)?)?,
            b'q' => self.memoize(operands.unsigned(1)?)?,
            b'r' => self.memoize(operands.unsigned(4)?)?,
            0x94 => self.memoize(self.memo.len() as u64)?,

            b'N' => self.push(Node::None)?,
            0x88 | 0x89 => self.push(Node::Bool)?,
            b'K' => self.push(Node::Int(operands.unsigned(1)? as i64))?,
            b'M' => self.push(Node::Int(operands.unsigned(2)? as i64))?,
            b'J' => self.push_integer(operands, 4)?,
            0x8a | 0x8b => {
                let length = operands.unsigned(if operation == 0x8a { 1 } else { 4 })?;
                self.push_integer(operands, length)?;
            }
            b'G' => {
                operands.take(8)?;
                self.push(Node::Opaque("a float"))?;
            }

            b'U' | 0x8c => self.push_text(operands, 1)?,
            b'T' | b'X' => self.push_text(operands, 4)?,
            0x8d => self.push_text(operands, 8)?,
            b'C' => self.push_bytes(operands, 1)?,
            b'B' => self.push_bytes(operands, 4)?,
            0x8e | 0x96 => self.push_bytes(operands, 8)?,

            b')' | b']' | 0x8f => self.push(Node::Sequence(Vec::new()))?,
            b't' | b'l' | 0x91 => {
                let items = self.pop_to_mark()?;
                self.push(Node::Sequence(items))?;
            }
            0x85 => self.push_tuple(1)?,
            0x86 => self.push_tuple(2)?,
            0x87 => self.push_tuple(3)?,
            b'a' => {
                let item = self.pop()?;
                self.append(&[item])?;
            }
            b'e' | 0x90 => {
                let items = self.pop_to_mark()?;
                self.append(&items)?;
            }
            b'}' => self.push(Node::Dict(Vec::new()))?,
            b'd' => {
                let pairs = pairs(&self.pop_to_mark()?)?;
                self.push(Node::Dict(pairs))?;
            }
            b's' => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.set(&[key, value])?;
            }
            b'u' => {
                let items = self.pop_to_mark()?;
                self.set(&items)?;
            }

            b'c' => {
                let (module, name) = (operands.line()?, operands.line()?);
                let module = self.nodes.push(Node::Text(module))?;
                let name = self.nodes.push(Node::Text(name))?;
                self.push(Node::Global { module, name })?;
            }
            0x93 => {
                let name = self.pop()?;
                let module = self.pop()?;
                self.push(Node::Global { module, name })?;
            }
            b'R' => {
                let arguments = self.pop()?;
                let callable = self.pop()?;
                let made = self.call(callable, arguments)?;
                self.stack.push(made);
            }
            0x81 => {
                self.pop()?;
                self.push_object()?;
            }
            0x92 => {
                self.pop()?;
                self.pop()?;
                self.push_object()?;
            }
            // The state of an object, or attributes of a dictionary: nothing that is looked at.
            b'b' => {
                self.pop()?;
                self.top()?;
            }
            b'Q' => {
                let id = self.pop()?;
                self.push(Node::Storage(id))?;
            }
            b'F' | b'I' | b'L' | b'S' | b'V' | b'g' | b'i' | b'o' | b'p' | b'P' => {
                return Err("it is of protocol 0 or 1; save it with pickle_protocol=2".into());
            }
            0x82..=0x84 | 0x97 | 0x98 => {
                return Err(format!("operation {operation:#04x} is not of torch.save's"));
            }
            other => return Err(format!("{other:#04x} is no operation")),
        }
        Ok(None)
    }

    fn push(&mut self, node: Node) -> Result<(), String> {
        let id = self.nodes.push(node)?;
        self.stack.push(id);
        Ok(())
    }

    fn top(&self) -> Result<Id, String> {
        let floor = self.marks.last().copied().unwrap_or(0);
        match self.stack.last() {
            Some(&top) if self.stack.len() > floor => Ok(top),
            Some(_) | None => Err("the stack is empty".into()),
        }
    }

    fn pop(&mut self) -> Result<Id, String> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Id>, String> {
        let mark = self.marks.pop().ok_or("there is no mark")?;
        Ok(self.stack.split_off(mark))
    }

    fn recall(&mut self, place: u64) -> Result<(), String> {
        let id = *self.memo.get(&place).ok_or_else(|| format!("nothing is kept as {place}"))?;
        self.nodes.charge(1)?;
        self.stack.push(id);
        Ok(())
    }

    fn memoize(&mut self, place: u64) -> Result<(), String> {
        let top = self.top()?;
        self.memo.insert(place, top);
        Ok(())
    }

    fn push_integer(&mut self, operands: &mut Operands, length: u64) -> Result<(), String> {
        let integer = operands.integer(length)?;
        self.push(integer.map_or(Node::Opaque("a long integer"), Node::Int))
    }

    /// A text behind its length, a number of `width` bytes.
    fn push_text(&mut self, operands: &mut Operands, width: u64) -> Result<(), String> {
        let length = operands.unsigned(width)?;
        let text = operands.text(length)?;
        self.push(Node::Text(text))
    }

    /// Bytes behind their length, a number of `width` bytes.
    fn push_bytes(&mut self, operands: &mut Operands, width: u64) -> Result<(), String> {
        let length = operands.unsigned(width)?;
        operands.take(length)?;
        self.push(Node::Opaque("bytes"))
    }

    fn push_tuple(&mut self, length: usize) -> Result<(), String> {
        let mut items = Vec::with_capacity(length);
        for _ in 0..length {
            items.push(self.pop()?);
        }
        items.reverse();
        self.push(Node::Sequence(items))
    }

    fn push_object(&mut self) -> Result<(), String> {
        let class = self.pop()?;
        self.push(Node::Object { class })
    }

    fn append(&mut self, new: &[Id]) -> Result<(), String> {
        let top = self.top()?;
        if let Node::Sequence(items) = self.nodes.get_mut(top) {
            items.extend_from_slice(new);
        }
        Ok(()) // a list of a class of its own is an object, and keeps nothing
    }

    fn set(&mut self, new: &[Id]) -> Result<(), String> {
        let new = pairs(new)?;
        let top = self.top()?;
        if let Node::Dict(pairs) = self.nodes.get_mut(top) {
            pairs.extend(new);
        }
        Ok(())
    }

    /// What calling `callable` with a sequence of `arguments` would make.
    fn call(&mut self, callable: Id, arguments: Id) -> Result<Id, String> {
        let given = self.nodes.sequence(arguments).unwrap_or_default();
        let first = given.first().copied();
        match (self.nodes.global(callable), first) {
            (Some(("collections", "OrderedDict")), None) => self.nodes.push(Node::Dict(Vec::new())),
            (Some(("collections", "OrderedDict")), Some(items)) => {
                let items = self.nodes.sequence(items).unwrap_or_default();
                let pair = |&item: &Id| match *self.nodes.sequence(item)? {
                    [key, value] => Some((key, value)),
                    _ => None,
                };
                let pairs: Vec<(Id, Id)> = items.iter().filter_map(pair).collect();
                self.nodes.charge(pairs.len())?;
                self.nodes.push(Node::Dict(pairs))
            }
            (Some(("torch._utils", "_rebuild_tensor" | "_rebuild_tensor_v2")), _) => {
                self.nodes.push(Node::Tensor(arguments))
            }
            // A parameter is the tensor in it, and a shape the tuple in it.
            (
                Some(
                    ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state")
                    | ("torch", "Size"),
                ),
                Some(inner),
            ) => Ok(inner),
            _ => self.nodes.push(Node::Object { class: callable }),
        }
    }
}

fn pairs(items: &[Id]) -> Result<Vec<(Id, Id)>, String> {
    let (pairs, rest) = items.as_chunks::<2>();
    if !rest.is_empty() {
        return Err("a key has no value".into());
    }
    Ok(pairs.iter().map(|&[key, value]| (key, value)).collect())
}
