//! The recurrence over tokens: as ONNX's loop, or as one node for all of them.
//!
//! `h[t] = a_bar·h[t−1] + b_bar·B[t]·u[t] + b_prev·B[t−1]·u[t−1]`, `y[t] = C[t]·h[t]`.

use vim_kernels::{Decay, Form};

use crate::gains::{Factor, Step, step};
use crate::graph::{Graph, MICROSOFT, Value, body, float, int, ints, text};
use crate::proto::{Info, element};
use crate::{Options, ScanNode};

/// What a scan reads.
#[derive(Clone, Debug)]
pub(crate) struct Inputs {
    /// `[B, L, D]`.
    pub(crate) u: Value,
    /// `[B, L, D]`, positive.
    pub(crate) delta: Value,
    /// `[D, N]`, negative.
    pub(crate) a: Value,
    /// `[B, L, N]`.
    pub(crate) b: Value,
    /// `[B, L, N]`.
    pub(crate) c: Value,
    /// `[B, D, N]` of zeros.
    pub(crate) start: Value,
    /// D and N.
    pub(crate) sizes: [usize; 2],
}

/// y, `[B, L, D]`, from the last token on if `reverse` is set; of a two-way method the mean of both
/// ways.
pub(crate) fn scan(
    graph: &mut Graph,
    form: Form,
    inputs: &Inputs,
    reverse: bool,
    options: &Options,
) -> Value {
    let mut way = |reverse| match options.scan {
        ScanNode::Loop => looped(graph, form, inputs, reverse, options),
        ScanNode::Attention | ScanNode::Microsoft => {
            attended(graph, form, inputs, reverse, options)
        }
    };
    if !form.two_way {
        return way(reverse);
    }
    let (forward, backward) = (way(false), way(true));
    let sum = graph.add(&forward, &backward);
    graph.scale(&sum, 0.5)
}

/// A gain times what it is of, `[…, D, 1]` by `[…, 1, N]`.
fn driven(graph: &mut Graph, gain: &Factor, u: &str, b: &str) -> Value {
    match gain {
        Factor::PerToken(gain) => {
            let of_token = graph.mul(gain, u);
            graph.mul(&of_token, b)
        }
        Factor::PerState(gain) => {
            let product = graph.mul(u, b);
            graph.mul(gain, &product)
        }
    }
}

/// As a `Scan`, whose body computes the coefficients of one token: nothing of `L·D·N` numbers is
/// ever stored. A method that reads the token before has that token's `B·u` as a second state.
fn looped(
    outer: &mut Graph,
    form: Form,
    inputs: &Inputs,
    reverse: bool,
    options: &Options,
) -> Value {
    let Inputs { u, delta, a, b, c, start, sizes: [d_inner, d_state] } = inputs;
    let mut graph = Graph::new("t", options.opset);
    let [of_delta, of_u, of_b, of_c] = [("delta_t", 2), ("u_t", 2), ("b_t", 1), ("c_t", 2)]
        .map(|(name, axis)| graph.unsqueeze(name, axis));
    let Step { a_bar, b_bar, b_prev } = step(&mut graph, form, &of_delta, a);
    let mut sum = graph.mul(&a_bar, "h");
    let mut states = vec!["h"];
    let mut results = Vec::new();
    let drive = match b_prev {
        None => driven(&mut graph, &b_bar, &of_u, &of_b),
        Some(b_prev) => {
            states.push("before");
            let product = graph.mul(&of_u, &of_b);
            graph.rename(&product, "before_next");
            let (Factor::PerToken(previous) | Factor::PerState(previous)) = &b_prev;
            let of_before = graph.mul(previous, "before");
            sum = graph.add(&sum, &of_before);
            let (Factor::PerToken(own) | Factor::PerState(own)) = &b_bar;
            results.push("before_next");
            graph.mul(own, &product)
        }
    };
    let next = graph.add(&sum, &drive);
    graph.rename(&next, "h_next");
    results.insert(0, "h_next");
    let read = graph.matmul(&next, &of_c);
    let read = graph.squeeze(&read, 2);
    graph.rename(&read, "y_t");

    let batch = options.batch();
    let (state, token) = ([batch, Some(*d_inner), Some(*d_state)], [batch, Some(*d_inner)]);
    let shared = [batch, Some(*d_state)];
    let of = |name: &str, sides: &[Option<usize>]| Info::new(name, element::FLOAT, sides);
    let mut given: Vec<Info> = states.iter().map(|name| of(name, &state)).collect();
    given.extend(
        [("delta_t", &token), ("u_t", &token), ("b_t", &shared), ("c_t", &shared)]
            .map(|(name, sides)| of(name, sides)),
    );
    let mut made: Vec<Info> = results.iter().map(|name| of(name, &state)).collect();
    made.push(of("y_t", &token));
    let token_graph = graph.finish("token", given, made);
    let mut read: Vec<&str> = states.iter().map(|_| start.as_str()).collect();
    read.extend([delta, u, b, c].map(String::as_str));
    let way = i64::from(reverse);
    let attributes = vec![
        body("body", token_graph),
        int("num_scan_inputs", 4),
        ints("scan_input_axes", &[1; 4]),
        ints("scan_input_directions", &[way; 4]),
        ints("scan_output_axes", &[1]),
        ints("scan_output_directions", &[way]),
    ];
    let mut results = outer.ops("Scan", &read, attributes, states.len() + 1);
    results.remove(states.len())
}

/// As one node of linear attention with a head for each channel: the whole input as its key, and 1
/// as its value, so that one node serves methods of two tokens too. It knows only logarithms of
/// decays, so the sign of a negative one runs along in key and query.
fn attended(
    graph: &mut Graph,
    form: Form,
    inputs: &Inputs,
    reverse: bool,
    options: &Options,
) -> Value {
    let Inputs { u, delta, a, b, c, sizes: [d_inner, d_state], .. } = inputs;
    let mut order = |x: &str| if reverse { graph.flip(x, 1) } else { x.to_owned() };
    let [u, delta, b, c] = [u, delta, b, c].map(|x| order(x));
    let ones = {
        let (shape, one) = (graph.op("Shape", &[&u], []), graph.number(1.0));
        graph.op("Expand", &[&one, &shape], [])
    };
    let [of_u, of_delta, of_b, of_c] =
        [(&u, 3), (&delta, 3), (&b, 2), (&c, 2)].map(|(x, axis)| graph.unsqueeze(x, axis));
    let Step { a_bar, b_bar, b_prev } = step(graph, form, &of_delta, a);
    let mut key = driven(graph, &b_bar, &of_u, &of_b);
    if let Some(Factor::PerToken(gain) | Factor::PerState(gain)) = b_prev {
        let product = graph.mul(&of_u, &of_b);
        let before = before(graph, &product);
        let of_before = graph.mul(&gain, &before);
        key = graph.add(&key, &of_before);
    }
    let all_channels = graph.integers(&[1, 1, *d_inner as i64, 1]);
    let mut query = graph.op("Expand", &[&of_c, &all_channels], []);
    let decay = match form.decay {
        Decay::Exponential => graph.mul(&of_delta, a),
        Decay::Cayley => {
            let sign = running_sign(graph, &a_bar);
            (key, query) = (graph.mul(&key, &sign), graph.mul(&query, &sign));
            let size = graph.op("Abs", &[&a_bar], []);
            let size = graph.at_least(&size, 1e-30);
            graph.op("Log", &[&size], [])
        }
    };
    let heads = (d_inner * d_state) as i64;
    let [query, key, decay] = [query, key, decay].map(|x| graph.reshape(&x, &[0, 0, heads]));
    let op = match options.scan {
        ScanNode::Microsoft => format!("{MICROSOFT}::LinearAttention"),
        ScanNode::Attention | ScanNode::Loop => "LinearAttention".to_owned(),
    };
    let attributes = vec![
        int("q_num_heads", *d_inner as i64),
        int("kv_num_heads", *d_inner as i64),
        float("scale", 1.0),
        text("update_rule", "gated"),
    ];
    let y = graph.ops(&op, &[&query, &key, &ones, "", &decay], attributes, 2).remove(0);
    if reverse { graph.flip(&y, 1) } else { y }
}

/// `x`, `[B, L, D, N]`, of the token before; 0 before the first.
fn before(graph: &mut Graph, x: &str) -> Value {
    let pads = graph.integers(&[0, 1, 0, 0, 0, 0, 0, 0]);
    let padded = graph.op("Pad", &[x, &pads], []);
    graph.slice(&padded, [0, -1], 1)
}

/// The sign of the product of all decays so far: 1 or −1.
fn running_sign(graph: &mut Graph, decay: &str) -> Value {
    let zero = graph.number(0.0);
    let is_negative = graph.op("Less", &[decay, &zero], []);
    let negative = graph.cast_to_f32(&is_negative);
    let axis = graph.scalar(1);
    let count = graph.op("CumSum", &[&negative, &axis], []);
    let two = graph.number(2.0);
    let odd = graph.op("Mod", &[&count, &two], [int("fmod", 1)]);
    let doubled = graph.scale(&odd, -2.0);
    graph.offset(&doubled, 1.0)
}
