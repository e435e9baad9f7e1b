//! A step on the GPU of every GPU feature of the build against the same on the CPU.

use burn::module::Module;
use burn::tensor::Device;
use vim_comm::Comm;
use vim_dense::{Segmenter, Shard, ShardSum, losses, predicted, replicas};
use vim_model::{LoadOptions, Names};
use vim_torch::{Array, Element, Item, StateDict};

use crate::support::{
    CLASSES, Named, error, gradients, images, label_tensor, numbers, shaken, small, values,
};

fn gpus() -> Vec<Device> {
    vec![
        #[cfg(feature = "wgpu")]
        Device::wgpu(burn::tensor::DeviceKind::DefaultDevice),
        #[cfg(feature = "cuda")]
        Device::cuda(0),
    ]
}

/// The losses of two shards, their gradients, and the model's values after the step.
fn step(model: &Segmenter, device: &Device) -> (Vec<f32>, Vec<Named>, Named) {
    let models = replicas(model, 2);
    let shard = |first| Shard {
        images: images(first, 2, 64, device),
        labels: label_tensor(first, 2, 64, device),
        first,
    };
    let sums = ShardSum::new(Comm::single(), 2);
    let found = losses(&models, vec![shard(0), shard(2)], 3, &sums).unwrap();
    let values_of: Vec<f32> = found.iter().flat_map(|shard| numbers(shard.loss.clone())).collect();
    let total = found.into_iter().map(|shard| shard.loss).reduce(|a, b| a + b).unwrap();
    let grads = total.backward();
    sums.check().unwrap();
    (values_of, models.iter().map(|model| gradients(model, &grads)).collect(), values(model))
}

#[test]
fn a_step_is_that_of_the_cpu() {
    let (heads, backbone) = small();
    let heads = vim_dense::SegmenterConfig { dropout: 0.2, ..heads };
    let cpu = Device::flex().autodiff();
    let model = shaken(&heads, &backbone, &cpu);
    let mut state = StateDict::default();
    for (key, data) in model.state(Names::Ours).unwrap().iter() {
        let (shape, values) = (data.shape().to_vec(), data.iter().collect());
        state.insert(key.to_owned(), Item::Array(Array { shape, values, stored: Element::F32 }));
    }
    let wide = |values: &[f32]| values.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
    let (losses, grads, after) = step(&model, &cpu);
    for gpu in gpus() {
        let gpu = gpu.autodiff();
        let (other, _) = heads
            .init(&backbone, CLASSES, &gpu, 1)
            .unwrap()
            .load(&state, LoadOptions::default())
            .unwrap();
        let (found, found_grads, found_after) = step(&other, &gpu);
        let off = error(&found, &wide(&losses));
        assert!(off < 1e-5, "losses: {off:.1e}");
        for (shard, (one, two)) in grads.iter().zip(&found_grads).enumerate() {
            assert_eq!(one.len(), two.len());
            for (path, (_, expected)) in one {
                let off = error(&two[path].1, &wide(expected));
                // The pooling to one cell normalizes few numbers: its gradients nearly cancel.
                let bound = if path.contains("psp_modules.0") { 5e-2 } else { 2e-3 };
                assert!(off < bound, "shard {shard}, {path}: {off:.1e}");
            }
        }
        for (path, (_, expected)) in &after {
            let off = error(&found_after[path].1, &wide(expected));
            assert!(off < 1e-5, "after the step, {path}: {off:.1e}");
        }
        let logits = other.valid().slide(images(0, 1, 80, &gpu.inner()), [40, 40]).unwrap();
        let labels = predicted(logits, [97, 33]).unwrap().labels;
        let expected = model.valid().slide(images(0, 1, 80, &Device::flex()), [40, 40]).unwrap();
        let expected = predicted(expected, [97, 33]).unwrap().labels;
        let [labels, expected] =
            [labels, expected].map(|labels| labels.into_data().iter::<i64>().collect::<Vec<_>>());
        let differ = labels.iter().zip(&expected).filter(|(a, b)| a != b).count();
        assert!(differ < 10, "{differ} labels differ");
    }
}
