//! The gains against f64, and what a file says of itself. Whole models run in onnxruntime:
//! scripts/verify_export.py.

use std::collections::HashMap;

use prost::Message;
use vim_kernels::discretize;
use vim_model::burn::tensor::Device;
use vim_model::{Discretization, NamedArrays, SsmConfig, StateMatrix, VariantArray, VimConfig};

use crate::gains::{Factor, Step, step};
use crate::graph::Graph;
use crate::proto::{self, Length, Model, element};
use crate::{OnnxError, Options, Pixels, ScanNode, classifier, write};

/// What `graph` computes of single numbers, in f32.
fn evaluate(graph: &proto::Graph, given: [(&str, f32); 2]) -> HashMap<String, f32> {
    let mut values: HashMap<String, f32> =
        given.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    for tensor in &graph.initializer {
        let bytes = tensor.raw_data[..].try_into().expect("one number");
        values.insert(tensor.name.clone(), f32::from_le_bytes(bytes));
    }
    for node in &graph.node {
        let x: Vec<f32> = node.input.iter().map(|name| values[name]).collect();
        let result = match (&node.op_type[..], &x[..]) {
            ("Add", [a, b]) => a + b,
            ("Sub", [a, b]) => a - b,
            ("Mul", [a, b]) => a * b,
            ("Div", [a, b]) => a / b,
            ("Max", [a, b]) => a.max(*b),
            ("Min", [a, b]) => a.min(*b),
            ("Exp", [a]) => a.exp(),
            ("Greater", [a, b]) => f32::from(a > b),
            ("Where", [condition, a, b]) => {
                if *condition > 0.0 {
                    *a
                } else {
                    *b
                }
            }
            (op, _) => panic!("{op} in a gain"),
        };
        values.insert(node.output[0].clone(), result);
    }
    values
}

#[test]
fn gains_of_every_method_are_those_of_f64() {
    for &method in Discretization::VARIANTS {
        for &series in method.series() {
            let form = method.form().under(series);
            let mut graph = Graph::new("v", crate::OPSET);
            let Step { a_bar, b_bar, b_prev } = step(&mut graph, form, "delta", "a");
            let graph = graph.finish("gains", Vec::new(), Vec::new());
            let of = |factor: &Factor| match factor {
                Factor::PerToken(value) | Factor::PerState(value) => value.clone(),
            };
            for delta in [1e-8_f32, 1e-4, 1e-3, 0.03, 0.1, 0.3, 0.9, 2.0, 8.0] {
                for a in [-1e-3_f32, -0.4, -1.0, -1.12, -2.0, -3.4, -9.0, -16.0] {
                    let values = evaluate(&graph, [("delta", delta), ("a", a)]);
                    // What a graph sees of x is its rounding.
                    let x = f64::from(delta * a);
                    let exact = discretize(method, series, f64::from(delta), x / f64::from(delta));
                    let mut pairs = vec![(values[&a_bar], exact.a_bar)];
                    pairs.push((values[&of(&b_bar)], exact.b_bar));
                    pairs.extend(b_prev.as_ref().map(|gain| values[&of(gain)]).zip(exact.b_prev));
                    for (place, (got, expected)) in pairs.into_iter().enumerate() {
                        // Of a decay what counts is its distance from 1; polynomials in x cancel.
                        // f32 has nothing like e⁻¹²⁸.
                        let scale = match (place, series) {
                            (0, _) => 1.0,
                            _ if method.bounded(series) => expected.abs().max(1e-30),
                            _ => {
                                f64::from(delta)
                                    * (1.0 + x.abs().powi(4))
                                    * (1.0 + f64::from(delta).powi(2))
                            }
                        };
                        let error = (f64::from(got) - expected).abs() / scale;
                        assert!(
                            error < 2e-6,
                            "{method} {series} {delta} {a} [{place}]: {got} for {expected}"
                        );
                    }
                }
            }
        }
    }
}

fn small() -> VimConfig {
    VimConfig {
        image_size: [16, 24].into(),
        patch_size: 8,
        depth: 2,
        d_model: 16,
        num_classes: 3,
        ..VimConfig::default()
    }
}

fn exported(config: &VimConfig, options: &Options) -> Result<Model, OnnxError> {
    let model = config.init(&Device::flex(), 0).expect("a small model");
    let graph = classifier(config, &NamedArrays::of(&model), options)?;
    let texts = [("method", config.method_label())];
    let bytes = write(graph.clone(), options, "1.2", &texts)?;
    assert_eq!(bytes, write(graph, options, "1.2", &texts)?, "the same bytes");
    Ok(Model::decode(&bytes[..]).expect("a message"))
}

/// Names, types and shapes; a side of 0 is the caller's.
fn described(infos: &[proto::Info]) -> Vec<(&str, i32, Vec<i64>)> {
    let one = |info: &proto::Info| {
        let tensor = info.r#type.as_ref()?.tensor_type.as_ref()?;
        let sides = tensor.shape.iter().flat_map(|shape| &shape.dim);
        let length = |side: &proto::Dimension| match &side.length {
            Some(Length::Value(value)) => *value,
            Some(Length::Parameter(_)) | None => 0,
        };
        Some((tensor.elem_type, sides.map(length).collect()))
    };
    let named = |info: &'_ proto::Info| one(info).expect("a tensor");
    infos.iter().map(|info| (&info.name[..], named(info).0, named(info).1)).collect()
}

#[test]
fn inputs_and_outputs_are_as_asked() {
    let model = exported(&small(), &Options::default()).unwrap();
    let graph = model.graph.unwrap();
    assert_eq!(described(&graph.input), [("images", element::FLOAT, vec![1, 3, 16, 24])]);
    assert_eq!(described(&graph.output), [("logits", element::FLOAT, vec![1, 3])]);
    assert_eq!((model.ir_version, model.opset_import.len()), (8, 1));
    assert_eq!((&model.producer_name[..], &model.producer_version[..]), ("vim-train", "1.2"));

    let pixels = Some(Pixels { mean: [0.5; 3], std: [0.5; 3] });
    let options = Options { pixels, dynamic: true, half: true, ..Options::default() };
    let model = exported(&small(), &options).unwrap();
    let graph = model.graph.unwrap();
    assert_eq!(described(&graph.input), [("pixels", element::UINT8, vec![0, 16, 24, 3])]);
    let outputs = ["probabilities", "logits"].map(|name| (name, element::FLOAT, vec![0, 3]));
    assert_eq!(described(&graph.output), outputs);
    let text = |key: &str| model.metadata_props.iter().find(|entry| entry.key == key);
    assert_eq!(text("weights_type").unwrap().value, "float16");
    assert_eq!(text("method").unwrap().value, "zoh");
    let stored: HashMap<&str, i32> =
        graph.initializer.iter().map(|tensor| (&tensor.name[..], tensor.data_type)).collect();
    assert_eq!(stored["layers.0.mixer.in_proj.weight"], element::FLOAT16);
    assert_eq!(stored["layers.1.mixer.backward.a_log"], element::FLOAT);
    assert_eq!(stored["norm_f.weight"], element::FLOAT);
}

#[test]
fn a_way_is_the_loops_own_direction() {
    let model = exported(&small(), &Options::default()).unwrap();
    let graph = model.graph.unwrap();
    let of = |op: &str| graph.node.iter().filter(|node| node.op_type == op).count();
    assert_eq!((of("Scan"), of("LinearAttention"), of("Slice")), (4, 0, 2), "no flips");
    let directions = graph.node.iter().flat_map(|node| &node.attribute);
    let backward = directions.filter(|one| one.name == "scan_output_directions" && one.ints == [1]);
    assert_eq!(backward.count(), 2);
    let microsoft = Options { scan: ScanNode::Microsoft, ..Options::default() };
    let model = exported(&small(), &microsoft).unwrap();
    assert_eq!(model.opset_import[1].domain, "com.microsoft");
}

#[test]
fn what_has_no_graph_is_refused() {
    let refused = |config: &VimConfig, options: Options| exported(config, &options).unwrap_err();
    let of_opset = |opset| Options { opset, ..Options::default() };
    let says = |error: OnnxError, part: &str| assert!(error.to_string().contains(part), "{error}");
    says(refused(&small(), of_opset(12)), "use 13 to 27");
    says(refused(&small(), of_opset(28)), "no later one");
    let attention = Options { scan: ScanNode::Attention, ..of_opset(21) };
    says(refused(&small(), attention), "use 27 to 27");
    let ssm = SsmConfig { a: StateMatrix::Full, ..SsmConfig::default() };
    let full = VimConfig { ssm, discretization: Discretization::Bilinear, ..small() };
    says(refused(&full, Options::default()), "ssm.a = \"full\"");
}
