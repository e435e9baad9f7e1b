//! Builds a graph node by node. A value is the name of a node's result.

use std::collections::HashMap;

use crate::proto::{self, Attribute, Info, Node, Tensor, element, kind};

/// The name of an array of the graph.
pub(crate) type Value = String;

/// The operators of onnxruntime, beside ONNX's own.
pub(crate) const MICROSOFT: &str = "com.microsoft";

/// A graph that grows. Names begin with `prefix`, so that those of a loop's body hide none outside.
#[derive(Debug)]
pub(crate) struct Graph {
    nodes: Vec<Node>,
    initializers: Vec<Tensor>,
    /// The constants so far, by what they are.
    known: HashMap<(i32, Vec<i64>, Vec<u8>), Value>,
    prefix: &'static str,
    count: usize,
    opset: u32,
}

impl Graph {
    pub(crate) fn new(prefix: &'static str, opset: u32) -> Self {
        let (nodes, initializers, known) = Default::default();
        Self { nodes, initializers, known, prefix, count: 0, opset }
    }

    /// The graph of all nodes so far, called `name`.
    pub(crate) fn finish(self, name: &str, input: Vec<Info>, output: Vec<Info>) -> proto::Graph {
        let Self { nodes: node, initializers: initializer, .. } = self;
        proto::Graph { node, name: name.to_owned(), initializer, input, output }
    }

    fn fresh(&mut self) -> Value {
        self.count += 1;
        format!("{}{}", self.prefix, self.count)
    }

    /// An operator with `outputs` results.
    pub(crate) fn ops(
        &mut self,
        op: &str,
        inputs: &[&str],
        attribute: Vec<Attribute>,
        outputs: usize,
    ) -> Vec<Value> {
        let output: Vec<Value> = (0..outputs).map(|_| self.fresh()).collect();
        let (domain, op_type) = op.split_once("::").unwrap_or(("", op));
        self.nodes.push(Node {
            input: inputs.iter().map(|&input| input.to_owned()).collect(),
            output: output.clone(),
            op_type: op_type.to_owned(),
            attribute,
            domain: domain.to_owned(),
        });
        output
    }

    /// An operator with one result.
    pub(crate) fn op<const N: usize>(
        &mut self,
        op: &str,
        inputs: &[&str],
        attributes: [Attribute; N],
    ) -> Value {
        self.ops(op, inputs, attributes.into(), 1).remove(0)
    }

    /// `value` under another name.
    pub(crate) fn rename(&mut self, value: &str, name: &str) {
        let result = self.op("Identity", &[value], []);
        let last = self.nodes.last_mut().expect("invariant: a node was added");
        debug_assert_eq!(last.output, [result]);
        last.output = vec![name.to_owned()];
    }

    fn constant(&mut self, data_type: i32, dims: Vec<i64>, raw_data: Vec<u8>) -> Value {
        let key = (data_type, dims.clone(), raw_data.clone());
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let name = self.fresh();
        self.known.insert(key, name.clone());
        self.initializers.push(Tensor { dims, data_type, name: name.clone(), raw_data });
        name
    }

    /// A number.
    pub(crate) fn number(&mut self, value: f64) -> Value {
        self.constant(element::FLOAT, Vec::new(), (value as f32).to_le_bytes().to_vec())
    }

    /// An array of f32.
    pub(crate) fn numbers(&mut self, shape: &[usize], values: &[f32]) -> Value {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(element::FLOAT, sides(shape), bytes)
    }

    /// A list of whole numbers.
    pub(crate) fn integers(&mut self, values: &[i64]) -> Value {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(element::INT64, vec![values.len() as i64], bytes)
    }

    /// A whole number that is no list.
    pub(crate) fn scalar(&mut self, value: i64) -> Value {
        self.constant(element::INT64, Vec::new(), value.to_le_bytes().to_vec())
    }

    /// An array under a name of its own.
    pub(crate) fn initializer(
        &mut self,
        name: &str,
        data_type: i32,
        shape: &[usize],
        raw_data: Vec<u8>,
    ) -> Value {
        let tensor = Tensor { dims: sides(shape), data_type, name: name.to_owned(), raw_data };
        self.initializers.push(tensor);
        name.to_owned()
    }

    pub(crate) fn add(&mut self, a: &str, b: &str) -> Value {
        self.op("Add", &[a, b], [])
    }

    pub(crate) fn sub(&mut self, a: &str, b: &str) -> Value {
        self.op("Sub", &[a, b], [])
    }

    pub(crate) fn mul(&mut self, a: &str, b: &str) -> Value {
        self.op("Mul", &[a, b], [])
    }

    pub(crate) fn div(&mut self, a: &str, b: &str) -> Value {
        self.op("Div", &[a, b], [])
    }

    pub(crate) fn exp(&mut self, x: &str) -> Value {
        self.op("Exp", &[x], [])
    }

    pub(crate) fn matmul(&mut self, a: &str, b: &str) -> Value {
        self.op("MatMul", &[a, b], [])
    }

    /// `factor·x`; `x` where the factor is 1.
    pub(crate) fn scale(&mut self, x: &str, factor: f64) -> Value {
        if factor == 1.0 {
            return x.to_owned();
        }
        let factor = self.number(factor);
        self.mul(x, &factor)
    }

    /// `x + offset`.
    pub(crate) fn offset(&mut self, x: &str, offset: f64) -> Value {
        let offset = self.number(offset);
        self.add(x, &offset)
    }

    /// `1/x`.
    pub(crate) fn recip(&mut self, x: &str) -> Value {
        let one = self.number(1.0);
        self.div(&one, x)
    }

    /// The larger of `x` and a number.
    pub(crate) fn at_least(&mut self, x: &str, least: f64) -> Value {
        let least = self.number(least);
        self.op("Max", &[x, &least], [])
    }

    /// The smaller of `x` and a number.
    pub(crate) fn at_most(&mut self, x: &str, most: f64) -> Value {
        let most = self.number(most);
        self.op("Min", &[x, &most], [])
    }

    /// `x·sigmoid(x)`.
    pub(crate) fn silu(&mut self, x: &str) -> Value {
        let gate = self.op("Sigmoid", &[x], []);
        self.mul(x, &gate)
    }

    pub(crate) fn unsqueeze(&mut self, x: &str, axis: i64) -> Value {
        let axis = self.integers(&[axis]);
        self.op("Unsqueeze", &[x, &axis], [])
    }

    pub(crate) fn squeeze(&mut self, x: &str, axis: i64) -> Value {
        let axis = self.integers(&[axis]);
        self.op("Squeeze", &[x, &axis], [])
    }

    /// A side of 0 is that of `x`.
    pub(crate) fn reshape(&mut self, x: &str, shape: &[i64]) -> Value {
        let shape = self.integers(shape);
        self.op("Reshape", &[x, &shape], [])
    }

    pub(crate) fn transpose(&mut self, x: &str, order: &[i64]) -> Value {
        self.op("Transpose", &[x], [ints("perm", order)])
    }

    pub(crate) fn concat(&mut self, parts: &[&str], axis: i64) -> Value {
        self.op("Concat", parts, [int("axis", axis)])
    }

    /// Those of `x` along `axis` at `indices`.
    pub(crate) fn gather(&mut self, x: &str, indices: &[i64], axis: i64) -> Value {
        let indices = self.integers(indices);
        self.op("Gather", &[x, &indices], [int("axis", axis)])
    }

    /// From `start` to `end` along `axis`.
    pub(crate) fn slice(&mut self, x: &str, [start, end]: [i64; 2], axis: i64) -> Value {
        let [start, end, axis] = [start, end, axis].map(|value| self.integers(&[value]));
        self.op("Slice", &[x, &start, &end, &axis], [])
    }

    /// Reversed along `axis`.
    pub(crate) fn flip(&mut self, x: &str, axis: i64) -> Value {
        let [start, end, axis, step] =
            [-1, i64::MIN + 1, axis, -1].map(|value| self.integers(&[value]));
        self.op("Slice", &[x, &start, &end, &axis, &step], [])
    }

    /// Parts of `sizes` along the last axis of a `[B, L, …]`.
    pub(crate) fn split<const N: usize>(&mut self, x: &str, sizes: [usize; N]) -> [Value; N] {
        let sizes = self.integers(&sizes.map(|size| size as i64));
        let parts = self.ops("Split", &[x, &sizes], vec![int("axis", 2)], N);
        parts.try_into().expect("invariant: as many parts as sizes")
    }

    /// `ReduceMean` or `ReduceMax` over an axis that stays with one number: from opset 18 on axes
    /// are an input.
    pub(crate) fn reduce(&mut self, op: &str, x: &str, axis: i64) -> Value {
        if self.opset < 18 {
            return self.op(op, &[x], [ints("axes", &[axis])]);
        }
        let axis = self.integers(&[axis]);
        self.op(op, &[x, &axis], [])
    }

    /// `x` as f32.
    pub(crate) fn cast_to_f32(&mut self, x: &str) -> Value {
        self.op("Cast", &[x], [int("to", i64::from(element::FLOAT))])
    }
}

fn sides(shape: &[usize]) -> Vec<i64> {
    shape.iter().map(|&side| side as i64).collect()
}

pub(crate) fn int(name: &str, i: i64) -> Attribute {
    Attribute { name: name.to_owned(), i, r#type: kind::INT, ..Attribute::default() }
}

pub(crate) fn float(name: &str, f: f32) -> Attribute {
    Attribute { name: name.to_owned(), f, r#type: kind::FLOAT, ..Attribute::default() }
}

pub(crate) fn ints(name: &str, ints: &[i64]) -> Attribute {
    let (name, ints) = (name.to_owned(), ints.to_vec());
    Attribute { name, ints, r#type: kind::INTS, ..Attribute::default() }
}

pub(crate) fn text(name: &str, text: &str) -> Attribute {
    let (name, s) = (name.to_owned(), text.as_bytes().to_vec());
    Attribute { name, s, r#type: kind::STRING, ..Attribute::default() }
}

pub(crate) fn body(name: &str, graph: proto::Graph) -> Attribute {
    let (name, g) = (name.to_owned(), Some(graph));
    Attribute { name, g, r#type: kind::GRAPH, ..Attribute::default() }
}
